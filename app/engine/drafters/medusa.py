"""Medusa heads (arXiv 2401.10774): small networks that guess the next tokens from the target's last hidden state."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats, Logits, TopLogits, check_finite, penalize_rows, top_candidates
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.decoding.trees import Trie
from app.engine.drafters import Drafter, Needs, Proposal, Worth, always
from app.engine.drafters.tree import Ranked, ranked
from app.protocol.options import DrafterName, ProposalMethod, Sampling
from app.system import KnownError

_LIKELIEST = 64
"""How many tokens of a head get the target's noise."""
_PREFIXES = ("", "medusa_head.", "medusa_heads.")
_MOST_HEADS = 16
_OTHER_TARGET = "These Medusa heads belong to another model: their width or vocabulary isn't the target's."


@dataclass(frozen=True)
class Head:
    """A residual block, then a matrix with a row for each token of the draft vocabulary."""

    weight: Floats
    bias: Floats
    output: Floats

    def logits(self, state: Floats) -> Floats:
        """Those of the draft vocabulary, shape (1, V)."""
        inner = np.einsum("ij,j->i", self.weight, state) + self.bias
        state = state + inner / (1.0 + np.exp(-np.clip(inner, -80.0, 80.0)))
        # Not with a BLAS, whose threads wait for each other: on busy cores for 30 ms instead of 0.2.
        logits: Floats = np.einsum("ij,j->i", self.output, state)
        return logits[None, :]


@dataclass(frozen=True)
class MedusaHeads:
    """The heads of a target, and where its hidden states come from."""

    heads: Sequence[Head]
    ids: NDArray[np.int64] | None
    """Which token of the target each of the draft vocabulary is; ``None``: the same."""
    state: Callable[[int], Floats | None]
    """After an output of the target's last pass, by its number."""

    @classmethod
    def read(
        cls, tensors: Mapping[str, NDArray[Any]], shape: tuple[int, int], state: Callable[[int], Floats | None]
    ) -> MedusaHeads:
        """From the ``tensors`` of a published file, for a target of this width and vocabulary (``shape``). Raises
        `KnownError` if they aren't heads, or those of another target."""
        width, vocabulary = shape
        prefix = next((one for one in _PREFIXES if f"{one}0.0.linear.weight" in tensors), None)
        if prefix is None:
            raise KnownError("The file has no Medusa heads: there is no tensor medusa_head.0.0.linear.weight.")
        ids = tensors.get("d2t")
        size = vocabulary if ids is None else ids.size
        heads: list[Head] = []
        while f"{prefix}{len(heads)}.0.linear.weight" in tensors and len(heads) < _MOST_HEADS:
            heads.append(_head(tensors, f"{prefix}{len(heads)}", (width, size)))
        if ids is not None and (ids.dtype.kind != "i" or ids.ndim != 1 or ids.min() < 0 or ids.max() >= vocabulary):
            raise KnownError(_OTHER_TARGET)
        return cls(heads, None if ids is None else ids.astype(np.int64), state)


def _head(tensors: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, int]) -> Head:
    width, size = shape
    found = [tensors.get(f"{name}.{part}") for part in ("0.linear.weight", "0.linear.bias", "1.weight")]
    whole = [tensor.astype(np.float32) for tensor in found if tensor is not None]
    if len(whole) < len(found):
        raise KnownError(f"{name} in the file with the Medusa heads lacks tensors, or has more than one layer.")
    if [tensor.shape for tensor in whole] != [(width, width), (width,), (size, width)] or not size:
        raise KnownError(_OTHER_TARGET)
    return Head(*whole)


class MedusaDrafter(Drafter):
    """Head i guesses the token i + 2 positions after the last one that the target has processed.

    With branches, a draft is a tree of the likeliest combinations of the heads' best tokens, otherwise a chain of their
    first choices; ranked with the target's own noise, because it is tested by what the target itself draws.
    """

    name: DrafterName = "medusa"
    needs: Needs = "hidden states"
    is_automatic = False

    def __init__(self, loaded: MedusaHeads) -> None:
        self._loaded = loaded
        self.longest = len(loaded.heads)
        self.forget()

    def forget(self) -> None:
        self._sequence, self._task = TokenSequence(), Task(sampling=Sampling(), seed=0)
        self._state: Floats | None = None
        self._processed = 0
        """How many tokens of the sequence the target had processed then."""

    def begin(self, sequence: TokenSequence, task: Task) -> None:
        self._sequence, self._task = sequence, task
        self._keep(0, sequence.prompt_length)

    def passed(self, row: int, accepted: int) -> None:
        self._keep(row, len(self._sequence) + accepted)

    def _keep(self, row: int, processed: int) -> None:
        state = self._loaded.state(row)
        self._state, self._processed = None if state is None else state.copy(), processed

    def accepted(self) -> None:
        """Each pass brings the state it needs."""

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        """Nothing where the target hasn't processed all tokens but the last one."""
        if self._state is None or self._processed != len(self._sequence) - 1:
            return Proposal()
        best = [self._best(number, method) for number in range(min(count, self.longest))]
        return _likeliest(best, count, self.branches)

    def _best(self, number: int, method: ProposalMethod) -> Ranked:
        """The best tokens of a head, and their scores. Raises `InvalidLogitsError`."""
        assert self._state is not None
        logits, ids, sampling = self._loaded.heads[number].logits(self._state), self._loaded.ids, self._task.sampling
        check_finite(logits.max())
        found = top_candidates(logits, _LIKELIEST)
        row: Logits = TopLogits.sorted(found if ids is None else ids[found], np.take_along_axis(logits, found, axis=1))
        history = self._sequence.tokens[-sampling.penalty_window :] if sampling.penalty_window else []
        row = penalize_rows(row, history, [], sampling)
        position = len(self._sequence) + self._sequence.left_out + number
        return ranked(row, sampling, self._task.seed, position, method)


def _likeliest(best: Sequence[Ranked], count: int, branches: int) -> Proposal:
    """The ``count`` likeliest tokens of the tree of all combinations, the first chain having the first choices. A
    token's confidence is the log-probability of the path to it."""
    trie, confidences = Trie(count, branches), list[float]()
    totals = [math.log(sum(math.exp(one - scores[0]) for one in scores)) for _, scores in best]
    costs = [[total + scores[0] - one for one in scores] for total, (_, scores) in zip(totals, best, strict=True)]
    waiting = [(costs[0][0], -1, 0, 0)]  # the cost of the path, where it goes on from, position and rank
    while waiting:
        cost, parent, position, rank = heapq.heappop(waiting)
        tokens, own = best[position][0], costs[position]
        if not (places := trie.add([tokens[rank]], parent)):
            continue
        confidences.append(-cost)
        if rank + 1 < len(tokens):
            heapq.heappush(waiting, (cost - own[rank] + own[rank + 1], parent, position, rank + 1))
        if position + 1 < len(best):
            heapq.heappush(waiting, (cost + costs[position + 1][0], places[0], position + 1, 0))
    return Proposal(trie.tokens, confidences=confidences, parents=trie.parents)
