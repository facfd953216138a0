"""The drafter that proposes what the answer's grammar forces: keys of a schema, braces, quotation marks."""

from __future__ import annotations

from app.engine.decoding.grammar import Grammar
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod

_CERTAIN = 12.0


class GrammarDrafter(Drafter):
    """Needs no model. The text is forced, but the target may have other tokens for it, so they are tested as usual."""

    name: DrafterName = "grammar"
    is_free = True

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._grammar: Grammar | None = None

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        self._grammar = task.grammar

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        """All tokens are equally certain, as after a long match."""
        tokens = self._grammar.forced(min(count, MAX_DRAFT_LENGTH)) if self._grammar else []
        return Proposal(tokens, confidences=[_CERTAIN] * len(tokens))

    def accepted(self) -> None:
        """The loop takes the grammar along."""
