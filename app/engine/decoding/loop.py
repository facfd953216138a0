"""The draft–verify loop. Decoding without a draft is the same loop with a draft length of 0."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext

import msgspec

from app.engine.decoding import Vocabulary
from app.engine.decoding.accept_rules import Verdict, block, coupled, rejection, sample
from app.engine.decoding.drafting import NO_DRAFT, Draft, Drafting
from app.engine.decoding.grammar import Grammar
from app.engine.decoding.sampling import (
    Floats,
    Logits,
    TopLogits,
    biased,
    distributions,
    logprobs,
    masked,
    penalize_rows,
    stack,
)
from app.engine.decoding.sequence import Cache, Task, TokenSequence, piece_end, shared_prefix, text_of
from app.engine.decoding.text import TextKinds, TextStream, TokenTexts, answer_text
from app.engine.decoding.trees import first_chain
from app.engine.drafters import Proposal
from app.protocol.events import Piece, Round
from app.protocol.options import CONTINUES, EXACT_WIDTH, TARGET_OUTPUTS, DrafterName, FinishReason, TextKind
from app.system import Canceled

_CAUGHT_UP = 4
"""If a roll-back removed too much, up to this many tokens are fed again within the verify pass, more of them before it,
`TARGET_OUTPUTS` at a time: wider passes round differently."""


def _kept(verdict: Verdict, proposal: Proposal) -> int:
    """How many accepted tokens are in the target's cache: those in its first chain."""
    if verdict.path is None or proposal.parents is None:
        return verdict.accepted
    return shared_prefix(verdict.path, first_chain(proposal.parents))


class Decoding:
    """Decodes one answer, round by round, into ``target``'s cache, after a processed prompt."""

    def __init__(
        self,
        target: Cache,
        sequence: TokenSequence,
        vocabulary: Vocabulary,
        drafting: Drafting | None,
        task: Task,
        started: float,
        canceled: Callable[[], bool],
        stops_thinking: Callable[[], bool] = lambda: False,
    ) -> None:
        """``target`` contains the prompt; the answer is added to ``sequence``. Without ``drafting`` nothing is drafted.

        ``started`` is when the request arrived (`time.perf_counter`). ``canceled`` and ``stops_thinking`` are asked in
        every round: whether the answer, or only its thinking, is to end now.
        """
        self._target = target
        self._vocabulary = vocabulary
        self._drafting = drafting
        self._task = task
        self._started = started
        self._canceled = canceled
        self._stops_thinking = stops_thinking
        self._needed = task.needed
        self._grammar = task.grammar
        prompt = text_of(sequence.tokens[: sequence.prompt_length - len(task.continued)])
        self._texts = self._new_texts(prompt)
        self.text = TextStream(self._texts, task.stop, task.continued)
        """What may be shown of the answer; it looks for stop strings."""
        if self._grammar:
            self._grammar.follow(self._new_texts(prompt), task.continued)
        self._sequence = sequence
        """When a round starts, all of its tokens but the last are in the target's cache."""
        self._room = target.length - (task.unit - 1)
        """The most tokens of prompt and answer: a padded pass has to fit, too."""
        self._longest = sys.maxsize if task.max_tokens is None else sequence.prompt_length + task.max_tokens
        """The number of tokens in the sequence at which the answer ends."""
        self._endings: dict[str, list[int]] = {}
        """By their text: the tokens that are forced to end the thinking."""
        self._kinds = TextKinds()
        self._kinds.add(self.text.earlier)
        self._round = 0
        self._learning_seconds = 0.0
        """What the policy took to learn from the last round, which counts toward the next one."""
        self.finish_reason: FinishReason | None = None

    def _new_texts(self, prompt: Sequence[int]) -> TokenTexts:
        piece, grammar = self._vocabulary.piece, self._grammar
        if grammar is None:
            return TokenTexts(piece, self._task.marks, prompt)
        texts = grammar.mark_texts
        return TokenTexts(lambda token: texts.get(token) or piece(token), self._task.marks, prompt, by_grammar=True)

    def rounds(self, prompt_logits: Logits) -> Iterator[Round]:
        """Yield a `Round` for each verify pass until the answer ends; ``finish_reason`` then says why.

        ``prompt_logits`` (one row) are those of the prompt's last token: the first token comes from them.
        """
        try:
            rest = self._rest_of_ending()
            yield self._forced(rest) if rest else self._first(prompt_logits)
            if self._drafting and not self.finish_reason:
                self._drafting.branches = self._target.branches if self._task.unit == 1 else 0
                self._drafting.begin(self._sequence, self._task)
            while not self.finish_reason:
                if self._canceled():
                    yield self._closing()
                elif rest := self._rest_of_ending():
                    self._round += 1
                    yield self._forced(rest)
                    if self._drafting:
                        self._drafting.forced()
                else:
                    yield self._next()
        except Canceled:  # in the middle of a long catch-up
            yield self._closing()
        finally:  # nothing after the end of the answer stays in the cache; of a stop string, nothing at all
            end = len(self._sequence)
            if self.finish_reason == "stop_string":
                end = self._sequence.prompt_length + self.text.safe_tokens
            self._target.roll_back(end)

    # ------------------------------------------------------------ the end of thinking

    def _rest_of_ending(self) -> list[int]:
        """The tokens to force now: what ends the thinking, if it is to end, minus what is already written of it."""
        texts, task, sequence = self._texts, self._task, self._sequence
        goes_on = bool(task.continued) and len(sequence) == sequence.prompt_length
        if not (texts.splitter.thinking or goes_on) or not (self._is_spent() or self._stops_thinking()):
            return []
        between = texts.splitter.between(task.between)
        ending = self._endings.setdefault(between, list(task.closing(between)))
        tail = sequence.tokens[sequence.prompt_length - len(task.continued) :][-len(ending) :]
        written = next((n for n in range(len(tail), 0, -1) if tail[-n:] == ending[:n]), 0)
        if texts.splitter.thinking:
            return ending[written:] if written or texts.can_be_closed else []
        return ending[written:] if written >= texts.since_thinking > 0 and self._is_spent() else []

    def _is_spent(self) -> bool:
        budget = self._task.thinking_budget
        return budget is not None and self._texts.thinking_tokens >= budget

    def _forced(self, tokens: list[int]) -> Round:
        """Add ``tokens``, whatever the target would say. They are fed with the next pass."""
        before = len(self._sequence)
        self._target.roll_back(before)
        shown: list[Piece] = []
        self._texts.splitter.expect_end()
        for token in tokens:
            self._sequence.append(token)
            if self._grammar and self._grammar.is_whole:
                self._grammar.take(token)
            shown += self._show(Piece(text="", id=token, round=self._round))
            if self.finish_reason:
                break
        if self._texts.splitter.thinking:  # this vocabulary has other tokens for the mark than for its text
            self._texts.splitter.close()
        if self._grammar:
            self._grammar.look(self._texts)
        added, since = len(self._sequence) - before, self._since_start()
        pieces = self._told(shown)
        return Round(
            index=self._round, verify_passes=0, pieces=pieces, tokens=added, forced=added, kind="thinking", time=since
        )

    # ------------------------------------------------------------ rounds

    def _first(self, logits: Logits) -> Round:
        begun, kind = time.perf_counter(), self._kind()
        verdict = self._judge(logits, Proposal())
        tokens, pieces = self._take(verdict, Proposal(), None, logits)
        return Round(
            index=self._round,
            verify_passes=0,
            pieces=pieces,
            tokens=tokens,
            kind=kind,
            other_seconds=time.perf_counter() - begun,
            time=self._since_start(),
        )

    def _next(self) -> Round:
        begun, kind = time.perf_counter(), self._kind()
        self._round += 1
        draft = self._draft()
        proposal = draft.proposal.first(draft.tested)
        drafted = time.perf_counter()
        length = len(self._sequence) - 1
        try:
            logits = self._verify(proposal, draft.width)
            verified = time.perf_counter()
            verdict = self._judge(logits, proposal)
            if self._drafting:
                self._drafting.judged(draft, verdict, logits)
            length = len(self._sequence) + _kept(verdict, proposal)
        finally:
            self._target.roll_back(length)
        if verdict.path is not None:
            proposal = proposal.along(verdict.path)
            if self._task.logprobs is not None:
                assert not isinstance(logits, TopLogits)
                logits = logits[[0, *(place + 1 for place in verdict.path)]]
        tokens, pieces = self._take(verdict, proposal, draft.drafter, logits)
        taken = time.perf_counter()
        seconds = (drafted - begun, verified - drafted, taken - verified)
        if self._drafting and not self.finish_reason:
            other = seconds[2] + self._learning_seconds
            if tokens <= verdict.accepted:  # what was accepted behind the thinking was chosen without the grammar
                self._target.roll_back(len(self._sequence) - 1)
            self._drafting.accepted()
            self._drafting.verified(draft, verdict, (*seconds[:2], other))
            self._learning_seconds = time.perf_counter() - taken
        return Round(
            index=self._round,
            verify_passes=1,
            pieces=pieces,
            tokens=tokens,
            drafter=draft.drafter,
            drafted=len(draft.proposal.tokens),
            tested=draft.tested,
            accepted=min(verdict.accepted, tokens),
            continued=proposal.continued,
            paused=draft.decision.paused,
            kind=kind,
            draft_seconds=seconds[0],
            verify_seconds=seconds[1],
            other_seconds=time.perf_counter() - verified,
            time=self._since_start(),
        )

    def _verify(self, proposal: Proposal, width: int) -> Logits:
        """The logits after the context and after each token of ``proposal``, one row more than these.

        A memory that can only go back to checkpoints may lack more than the last token of the context. The pass is
        padded to ``width`` by repeating the last token: that has no effect on the draft, and is rolled back. Padding
        has logits, too, because llama.cpp only reuses a graph with the same number of them; under ``exact`` all tokens
        have, because the kernel that computes logits is chosen by their number.
        """
        target, context, end = self._target, self._sequence.tokens, len(self._sequence) - 1
        draft_tokens = proposal.tokens
        if end - len(target.tokens) > _CAUGHT_UP:
            while (held := len(target.tokens)) < end:
                if self._canceled():
                    raise Canceled
                target.decode(context[held : min(piece_end(context, held, TARGET_OUTPUTS), end)], 0)
        if proposal.parents is not None:
            return target.decode_tree(context[len(target.tokens) :], draft_tokens, proposal.parents)
        target.hold(len(draft_tokens))
        tokens = [*context[len(target.tokens) :], *draft_tokens]
        outputs = len(draft_tokens) + 1
        padding = max(width - outputs, 0) if self._task.unit == 1 else -len(tokens) % self._task.unit
        if len(target.tokens) + len(tokens) + padding > target.length:
            padding = 0
        padded = [*tokens, *tokens[-1:] * padding]
        begin = 0 if self._task.unit == 1 else len(tokens) - outputs
        return target.decode_largest(padded, begin + outputs + padding, self._needed)[begin : begin + outputs]

    def _draft(self) -> Draft:
        if not self._drafting:
            return NO_DRAFT
        limit = min(self._room, self._longest - 1) - len(self._sequence)
        widest = EXACT_WIDTH if self._task.unit > 1 else TARGET_OUTPUTS if self._target.branches else None
        if widest is not None:
            limit = min(limit, widest - max(len(self._sequence) - len(self._target.tokens), 1))
        if self._task.thinking_budget is not None and self._texts.splitter.may_think:
            # What lies behind the end of the thinking would be lost.
            limit = min(limit, max(self._task.thinking_budget - self._texts.thinking_tokens - 1, 0))
        if self._grammar and self._grammar.extra:  # behind such a token the grammar may not be in force
            limit = 0
        return self._drafting.draft(limit, self._kind())

    def _judge(self, logits: Logits, proposal: Proposal) -> Verdict:
        """How much of the draft is accepted, and the target's own token behind it."""
        task, position, draft = self._task, len(self._sequence), proposal.tokens
        if task.logit_bias:
            assert not isinstance(logits, TopLogits)
            logits = biased(logits, task.logit_bias)
        if proposal.parents is None:
            logits = penalize_rows(logits, self._sequence.text.tokens, draft, task.sampling)
        q = proposal.distributions if task.accept != "coupled" else None
        rule = block if task.accept == "block" else rejection
        if proposal.parents is not None:
            return self._judge_tree(logits, proposal)
        if self._grammar and self._grammar.in_force:
            assert not isinstance(logits, TopLogits)
            with closing(self._masked(self._grammar, logits, draft)) as rows:
                if q is not None:
                    p = stack([distributions(row, task.sampling) for row in rows])
                    return rule(p, q, draft, task.seed, position)
                chosen = (next(sample(row, task.sampling, task.seed, position + i)) for i, row in enumerate(rows))
                return coupled(chosen, draft)
        if q is not None:
            return rule(distributions(logits, task.sampling), q, draft, task.seed, position)
        return coupled(sample(logits, task.sampling, task.seed, position), draft)

    def _judge_tree(self, logits: Logits, proposal: Proposal) -> Verdict:
        """Follow the target's own choices from the context into the tree."""
        task, path, accepted, place = self._task, list[int](), list[int](), -1
        history = self._sequence.text.tokens[-task.sampling.penalty_window :]
        assert proposal.parents is not None
        places = {pair: i for i, pair in enumerate(zip(proposal.parents, proposal.tokens, strict=True))}
        with self._grammar.ahead() if self._grammar and self._grammar.in_force else nullcontext() as ahead:
            while True:
                row = penalize_rows(logits[place + 1 : place + 2], [*history, *accepted], [], task.sampling)
                if ahead:
                    assert not isinstance(row, TopLogits)
                    row = masked(row, ahead.allowed())
                token = next(sample(row, task.sampling, task.seed, len(self._sequence) + len(path)))
                behind = places.get((place, token))
                if behind is None:
                    return Verdict(len(path), token, tuple(path))
                if ahead:
                    ahead.take(token)
                path.append(behind)
                accepted.append(token)
                place = behind

    @staticmethod
    def _masked(grammar: Grammar, logits: Floats, draft: list[int]) -> Generator[Logits, None, None]:
        """``logits`` of what ``grammar`` allows, row by row; to ask for another row is to accept a draft token."""
        with grammar.ahead() as ahead:
            yield masked(logits[:1], ahead.allowed())
            for i, token in enumerate(draft, 1):
                ahead.take(token)
                yield masked(logits[i : i + 1], ahead.allowed())

    def _take(
        self, verdict: Verdict, proposal: Proposal, drafter: DrafterName | None, logits: Logits
    ) -> tuple[int, list[Piece]]:
        """Add accepted tokens and the target's own, chosen from ``logits``, until the answer ends; returns their number
        and what may be shown."""
        rejected = None
        if verdict.accepted < len(proposal.tokens):
            rejected = self._vocabulary.piece(proposal.tokens[verdict.accepted]).decode("utf-8", "replace")
        accepted, own = proposal.tokens[: verdict.accepted], len(proposal.tokens) - proposal.continued
        drafters = (drafter if place < own else CONTINUES for place in range(len(accepted)))
        new = [Piece(text="", id=i, drafter=one, round=self._round) for i, one in zip(accepted, drafters, strict=True)]
        new.append(Piece(text="", id=verdict.token, round=self._round, rejected=rejected))
        if self._task.logprobs is not None:
            new = self._with_logprobs(new, logits, self._task.logprobs)
        before, in_force = len(self._sequence), self._grammar.in_force if self._grammar else False
        shown: list[Piece] = []
        for piece in new:
            if self._grammar:
                self._grammar.take(piece.id)
            self._sequence.append(piece.id)
            shown += self._show(piece)
            if self.finish_reason or self._rest_of_ending() or (self._grammar and self._grammar.in_force != in_force):
                break
        return len(self._sequence) - before, self._told(shown)

    def _with_logprobs(self, pieces: list[Piece], logits: Logits, count: int) -> list[Piece]:
        assert not isinstance(logits, TopLogits)
        vocabulary = self._vocabulary
        found = logprobs(
            logits,
            [piece.id for piece in pieces],
            count,
            lambda token: vocabulary.piece(token) or vocabulary.mark(token).encode(),
        )
        return [
            piece if self._vocabulary.is_end(piece.id) else msgspec.structs.replace(piece, logprobs=one)
            for piece, one in zip(pieces, found, strict=True)
        ]

    def _told(self, shown: list[Piece]) -> list[Piece]:
        for piece in shown:
            self._kinds.add(answer_text(piece))
        return shown

    def _show(self, piece: Piece) -> list[Piece]:
        if self._vocabulary.is_end(piece.id):
            return self._ended("end", cut=False, last=piece)
        shown = self.text.add(piece)
        if self._grammar:
            self._grammar.look(self._texts)
        if self.text.met_stop:
            self.finish_reason = "stop_string"
            return shown
        if len(self._sequence) >= self._longest:
            shown += self._ended("length", cut=True)
        elif len(self._sequence) > self._room:
            shown += self._ended("context", cut=True)
        return shown

    def _ended(self, reason: FinishReason, *, cut: bool, last: Piece | None = None) -> list[Piece]:
        """End the answer; returns the text that was held back, which may hold a stop string. ``last``: the token that
        ended it."""
        pieces = self.text.end(cut=cut, last=last)
        self.finish_reason = "stop_string" if self.text.met_stop else reason
        return pieces

    def _closing(self) -> Round:
        """The last round of an answer that the user stopped, with the text that was held back."""
        pieces = self._ended("cancelled", cut=True)
        return Round(index=self._round, verify_passes=0, pieces=pieces, time=self._since_start())

    def _kind(self) -> TextKind:
        """What the text is that comes next."""
        return "thinking" if self._texts.splitter.thinking else self._kinds.kind

    def _since_start(self) -> float:
        return time.perf_counter() - self._started
