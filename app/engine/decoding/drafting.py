"""Who drafts next, and how far: the drafters of one generation and the controller that chooses among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.decoding.sampling import InvalidLogitsError
from app.engine.decoding.sequence import TokenSequence
from app.engine.decoding.task import Task
from app.engine.drafters import Drafter, Proposal, check_needs
from app.engine.policy.controller import Controller, Plan
from app.errors import KnownError
from app.protocol.messages import DrafterName, TextKind

_INVALID_DRAFT = "The draft model computes no valid numbers, so its file is probably damaged. Choose another draft."


@dataclass(frozen=True)
class Draft:
    """What was proposed for one verify pass, of which the first ``tested`` tokens are worth testing."""

    plan: Plan
    proposal: Proposal
    tested: int

    @property
    def drafter(self) -> DrafterName | None:
        """Who proposed; ``None`` where nobody did."""
        return self.plan.drafter if self.proposal.tokens else None


NO_DRAFT = Draft(Plan(None, 0, "coupled"), Proposal(), 0)
"""For a plain pass."""


class Drafting:
    """Asks the drafters as the controller says. Each knows the whole answer, whoever proposed it.

    A drafter that fails costs its help, not the answer: it is left out from then on.
    """

    def __init__(self, controller: Controller, drafters: Sequence[Drafter]) -> None:
        """Raises `NotImplementedError` for a drafter that needs what the loop does not provide."""
        check_needs(drafters)
        self._controller = controller
        self._sequence = TokenSequence()
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self.failure: str | None = None
        """Why a drafter was left out, in words for the user."""

    def begin(self, sequence: TokenSequence, task: Task) -> None:
        """The first token of the answer is there. No drafter decodes anything before `draft`."""
        self._sequence = sequence
        self._controller.costs.length = len(sequence)
        for name, drafter in list(self._drafters.items()):
            try:
                drafter.begin(sequence, task)
            except KnownError as error:
                self._leave_out(name, error)
        self._tell_missing()

    def draft(self, room: int, kind: TextKind = "prose") -> Draft:
        """Propose at most ``room`` tokens, which begin in text of this ``kind``.

        Raises `Cancelled` when told to stop while the draft model processes what it has missed.
        """
        self._controller.enter(kind)
        ngrams = self._drafters.get("ngram")
        found = ngrams.propose(min(room, self._controller.limit)) if ngrams else Proposal()
        if not found.tokens and "model" not in self._drafters:
            return NO_DRAFT  # nothing to decide: on a target of a millisecond a pass the controller's time would show
        plan = self._controller.plan(found, room)
        proposal = found.first(plan.length) if plan.drafter == "ngram" else Proposal()
        if plan.drafter == "model":
            proposal = self._ask(plan)
        elif plan.catch_up:
            self._catch_up(plan.catch_up)
        return Draft(plan, proposal, self._controller.tested(plan, proposal))

    def _ask(self, plan: Plan) -> Proposal:
        try:
            return self._drafters["model"].propose(plan.length, plan.way, self._controller.worth)
        except KnownError as error:
            self._leave_out("model", error)
            return Proposal()

    def _catch_up(self, tokens: int) -> None:
        try:
            self._drafters["model"].catch_up(tokens)
        except KnownError as error:
            self._leave_out("model", error)
        self._tell_missing()

    def _tell_missing(self) -> None:
        if "model" in self._drafters:
            self._controller.behind = self._drafters["model"].missing()

    def verified(self, draft: Draft, accepted: int, token: int, seconds: tuple[float, float, float]) -> None:
        """Tell the controller how a draft went: ``seconds`` of drafting, of the verify pass and of the rest."""
        if draft is NO_DRAFT:
            return
        draft_seconds, verify_seconds, other_seconds = seconds
        self._controller.observe(
            draft.plan,
            draft.proposal,
            draft.tested,
            accepted,
            token,
            draft_seconds=draft_seconds,
            verify_seconds=verify_seconds,
            other_seconds=other_seconds,
        )

    def accepted(self) -> None:
        """The sequence is longer now."""
        self._controller.costs.length = len(self._sequence)
        for drafter in self._drafters.values():
            drafter.accepted()

    def _leave_out(self, name: DrafterName, error: KnownError) -> None:
        del self._drafters[name]
        self._controller.leave_out(name)
        self.failure = _INVALID_DRAFT if isinstance(error, InvalidLogitsError) else str(error)
