"""Which drafter drafts next, and how many tokens: the drafters of one answer and the policy that chooses among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from app.engine.decoding.accept_rules import Verdict
from app.engine.decoding.grammar import Grammar
from app.engine.decoding.sampling import InvalidLogitsError, Logits, likeliest
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.engine.policy.policy import Decision, Outcome, Policy, Situation
from app.protocol.options import CONTINUES, DRAFTER_WORDS, HEADS, DrafterName, ProposalMethod, TextKind
from app.system import KnownError

_INVALID_DRAFT = (
    "The draft model produces invalid numbers, so its file is probably damaged. Choose another draft model."
)
_REPEATED_TOKENS, _CYCLE = 128, 8
"""An answer is stuck when so many tokens repeat one character or a cycle of at most so many tokens:
https://github.com/ggml-org/llama.cpp/issues/23577."""
_REPEATED = "The answer repeats itself without end, so the rest of it is written without a draft."
_IMAGES = "The {} can't read images, so this answer is written without it."
_INVALID_HEAD = "The {} produced invalid numbers, so the model's file is probably damaged. Download it again."


@dataclass(frozen=True)
class Draft:
    """What was proposed for one verify pass; the first ``tested`` tokens are worth testing."""

    situation: Situation
    decision: Decision
    proposal: Proposal
    tested: int
    width: int = 1
    """How many tokens the pass is padded to, if they fit."""
    tried: Proposal = field(default_factory=Proposal)
    """A token of another drafter that isn't tested, only compared with the target's."""

    @property
    def drafter(self) -> DrafterName | None:
        """Which drafter proposed it; ``None`` if none did."""
        return self.decision.drafter if self.proposal.tokens else None


NO_DRAFT = Draft(Situation(length=0, most=0), Decision(), Proposal(), 0)
"""For a pass without a draft."""


class Drafting:
    """Asks the drafters that the policy chooses. A drafter that fails is no longer used; the answer continues."""

    def __init__(
        self,
        policy: Policy,
        drafters: Sequence[Drafter],
        piece: Callable[[int], bytes] = lambda _: b"",
    ) -> None:
        """``piece`` gives the bytes of a token."""
        self.policy = policy
        self._piece = piece
        self._sequence = TokenSequence()
        self._grammar: Grammar | None = None
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self._missing: dict[DrafterName, int] = {}
        """For each drafter that decodes: how many tokens of the context it has not processed."""
        self.failure: str | None = None
        """Why a drafter is no longer used, for the user."""
        self.slowdown = 1.0
        """How many times as long everything takes while other programs are busy. The policy learns what rounds would
        take without them: a busy phase is no reason to draft less."""
        self.branches = 0
        """How many branches beside its first chain a draft may have."""

    def begin(self, sequence: TokenSequence, task: Task) -> None:
        """The answer has its first token. No drafter decodes anything before `draft`."""
        self._sequence, self._grammar = sequence, task.grammar
        if sequence.has_images and (head := self._head()):
            del self._drafters[head]
            self.failure = _IMAGES.format(DRAFTER_WORDS[head].title)
        for name, drafter in list(self._drafters.items()):
            drafter.branches = self.branches
            try:
                drafter.begin(sequence.text, task)
            except KnownError as error:
                self._leave_out(name, error)
        self._count_missing()

    def draft(self, most: int, kind: TextKind = "prose") -> Draft:
        """Propose at most ``most`` tokens, which begin in text of this ``kind``. Raises `Canceled` if told to stop in a
        catch-up."""
        if self._head() and self._is_repeated():
            self._drafters, self.failure = {}, _REPEATED
        for name in list(self._missing):
            if name not in self._drafters or self._drafters[name].is_full():
                self._drafters.pop(name, None)  # for the rest of this answer: the text only gets longer
                del self._missing[name]
        asked = {name: self._free(name, most) for name, each in list(self._drafters.items()) if each.is_free}
        free = {name: proposal for name, proposal in asked.items() if proposal.tokens}
        if not free and not self._missing:
            return NO_DRAFT  # nothing to decide: if a pass takes a millisecond, the policy's own time would show
        situation = Situation(len(self._sequence), most, dict(self._missing), free, kind)
        decision = self.policy.decide(situation)
        drafted = self._carry_out(decision, situation)
        proposal = self._continued(drafted, decision, most)
        if proposal.parents is not None and not self.branches:  # also if it is empty: a pass may have to be padded
            proposal = proposal.along(())
        is_whole = bool(proposal.parents or proposal.continued)
        tested = len(proposal.tokens) if is_whole else decision.tested(proposal)
        tries = decision.tries
        tried = self._proposed(tries, 1, decision.method) if tries and tries in self._drafters else Proposal()
        return Draft(situation, decision, proposal, tested, self.policy.width(tested + 1), tried)

    def _head(self) -> DrafterName | None:
        """The drafter that reads more of the target than its tokens, if there is one."""
        return next((name for name in self._drafters if name in HEADS), None)

    def _free(self, name: DrafterName, most: int) -> Proposal:
        """What a drafter proposes whose drafts cost nothing."""
        return self._fitting(self._proposed(name, min(most, self.policy.limit)))

    def _fitting(self, proposal: Proposal) -> Proposal:
        """``proposal`` up to where the grammar refuses it. Sampled drafts aren't cut: their length must not depend on a
        token that isn't tested."""
        if self._grammar is None or proposal.distributions is not None or proposal.parents:
            return proposal
        return proposal.first(self._grammar.fits(proposal.tokens))

    def _carry_out(self, decision: Decision, situation: Situation) -> Proposal:
        if (behind := decision.catches_up) is not None:
            try:
                self._drafters[behind].catch_up(decision.catch_up)
                self._missing[behind] = self._drafters[behind].missing()
            except KnownError as error:
                self._leave_out(behind, error)
        name = decision.drafter
        if name is None:
            return Proposal()
        if name in situation.free:
            return situation.free[name].first(decision.length)
        return self._proposed(name, decision.length, decision.method, decision.worth())

    def _continued(self, proposal: Proposal, decision: Decision, most: int) -> Proposal:
        """``proposal`` as it fits, continued by n-grams as far as that is worth testing. Sampled drafts and trees are
        tested as they are."""
        proposal = self._fitting(proposal)
        room = min(most, self.policy.limit) - len(proposal.tokens)
        is_open = proposal.tokens and proposal.distributions is None and not proposal.parents and decision.stopping
        if room <= 0 or not is_open or decision.drafter not in self._missing or CONTINUES not in self._drafters:
            return proposal
        more = self._drafters[CONTINUES].continue_(proposal.tokens, room)
        if not more.tokens:
            return proposal
        tokens, confidences = proposal.tokens + more.tokens, proposal.confidences + more.confidences
        whole = replace(proposal, tokens=tokens, confidences=confidences, continued=len(more.tokens))
        return self._fitting(whole).first(max(decision.tested(whole), len(proposal.tokens)))

    def _proposed(
        self, name: DrafterName, count: int, method: ProposalMethod = "coupled", worth: Worth = always
    ) -> Proposal:
        try:
            return self._drafters[name].propose(count, method, worth)
        except KnownError as error:
            self._leave_out(name, error)
            return Proposal()

    def _is_repeated(self) -> bool:
        """Whether the end of the answer is one character, or a few tokens, over and over."""
        sequence = self._sequence
        if len(sequence) - sequence.prompt_length < _REPEATED_TOKENS + _CYCLE:
            return False
        tokens = sequence.tokens[-_REPEATED_TOKENS - _CYCLE :]
        kinds = set(tokens)
        if len(kinds) > _CYCLE:
            return False
        is_cycle = any(tokens[period:] == tokens[:-period] for period in range(1, _CYCLE + 1))
        return is_cycle or len(set(b"".join(map(self._piece, kinds)))) == 1

    def _count_missing(self) -> None:
        self._missing = {name: each.missing() for name, each in self._drafters.items() if not each.is_free}

    def judged(self, draft: Draft, verdict: Verdict, logits: Logits) -> None:
        """Tell the drafters what a verify pass brought, before it is added to the sequence; the one that drafted is
        shown what the target found most likely."""
        row = verdict.path[-1] + 1 if verdict.path else verdict.accepted
        for each in self._drafters.values():
            each.passed(row, verdict.accepted)
        drafter = self._drafters.get(draft.drafter) if draft.drafter else None
        if drafter and drafter.needs == "logits":
            drafter.seen(likeliest(logits))

    def verified(self, draft: Draft, verdict: Verdict, seconds: tuple[float, float, float]) -> None:
        """Tell the policy the result of a draft, with the ``seconds`` for drafting, the verify pass and the rest."""
        if draft is NO_DRAFT:
            return
        accepted, token, proposal = verdict.accepted, verdict.token, draft.proposal
        own = len(proposal.tokens) - proposal.continued
        if verdict.path is not None:
            proposal = proposal.along(verdict.path)
        for name, missing in self._missing.items():
            seen = own if draft.drafter == name else 0
            has_drafted = draft.drafter == name or (draft.tried.tokens and draft.decision.tries == name)
            self._missing[name] = max(accepted - seen, 0) if has_drafted else missing + accepted + 1
        times = [each / self.slowdown for each in seconds]
        situation, decision, tested, tried = draft.situation, draft.decision, draft.tested, draft.tried
        outcome = Outcome(situation, decision, proposal, tested, accepted, token, times[0], times[1], times[2], tried)
        self.policy.learn(outcome)

    def accepted(self) -> None:
        """The sequence has become longer."""
        for drafter in self._drafters.values():
            drafter.accepted()

    def forced(self) -> None:
        """Tokens that nobody drafted or chose were added to the sequence."""
        self.accepted()
        self._count_missing()

    def _leave_out(self, name: DrafterName, error: KnownError) -> None:
        del self._drafters[name]
        self._missing.pop(name, None)
        words = DRAFTER_WORDS[name]
        invalid = _INVALID_HEAD.format(words.title) if words.tint == "head" else _INVALID_DRAFT
        self.failure = invalid if isinstance(error, InvalidLogitsError) else str(error)
