"""A drafter that knows the answer, and is wrong where it is told to."""

from __future__ import annotations

from collections.abc import Sequence

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.protocol.options import DrafterName, ProposalMethod


class ScriptedDrafter(Drafter):
    """Proposes 0, 1, 2… right tokens and wrong ones after them."""

    name: DrafterName = "ngram"
    is_free = True

    def __init__(self, tokens: Sequence[int]) -> None:
        """``tokens`` of the prompt and of the answer to it."""
        self._tokens = list(tokens)
        self._round = 0

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        self._sequence = sequence

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        right = self._round % (count + 1)
        self._round += 1
        place = len(self._sequence)
        truth = self._tokens[place : place + count]
        tokens = [token if place < right else token ^ 1 for place, token in enumerate(truth)]
        return Proposal(tokens, confidences=[1.0] * len(tokens))

    def accepted(self) -> None:
        pass

    def forget(self) -> None:
        pass
