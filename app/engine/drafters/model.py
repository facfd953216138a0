"""A small model of the same vocabulary as drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.cache import Cache, shared_prefix
from app.engine.drafters import Proposal
from app.engine.protocol import AcceptRule, Sampling
from app.engine.sampling import Distributions, Floats, distributions, has_penalties, penalise, top_candidates
from app.engine.verification import Purpose, draw, gumbel
from app.errors import Cancelled


class ModelDrafter:
    """Drafts with a draft model and keeps its KV cache for what was accepted.

    Under ``coupled`` it proposes with the target's own noise, so that the two agree as often as their distributions do;
    under ``rejection`` it samples with noise of its own and hands out the distributions.
    """

    name = "model"

    def __init__(
        self, cache: Cache, vocabulary: int, ends: Callable[[int], bool], should_stop: Callable[[], bool]
    ) -> None:
        """``vocabulary`` is the number of ids both models know; ``ends`` tells tokens after which nothing follows.

        ``should_stop`` is asked while a prompt is processed.
        """
        self._cache = cache
        self._should_stop = should_stop
        self._vocabulary = vocabulary
        self._ends = ends
        self._context: list[int] = []
        self._proposed: list[int] = []
        self._sampling, self._accept, self._seed = Sampling(), "coupled", 0
        self._lost = False

    def configure(self, sampling: Sampling, accept: AcceptRule, seed: int) -> None:
        """Set how to propose in the next generation."""
        self._sampling, self._accept, self._seed = sampling, accept, seed

    def begin(self, tokens: Sequence[int]) -> None:
        """Take over a prompt. What the cache shares with it is kept, the rest is processed. See `Drafter.begin`."""
        self._context = list(tokens)
        self._proposed = []
        self._lost = any(token >= self._vocabulary for token in tokens)
        if self._lost:
            return
        self._cache.roll_back(shared_prefix(self._cache.tokens, tokens))
        with self._cache.aborting(self._should_stop):
            while missing := self._context[len(self._cache.tokens) :][: self._cache.chunk]:
                if self._should_stop():
                    raise Cancelled
                self._cache.decode(missing, 0)

    def propose(self, count: int) -> Proposal:
        """See `Drafter.propose`."""
        room = self._cache.length - len(self._context)
        count = min(count, room)
        if count <= 0 or self._lost:
            self._proposed = []
            return Proposal()
        row = self._cache.decode(self._context[len(self._cache.tokens) :], 1)[0]
        tokens: list[int] = []
        rows: list[Distributions] = []
        while True:
            token = self._choose(row, tokens, rows)
            tokens.append(token)
            if len(tokens) == count or self._ends(token):
                break
            row = self._cache.decode([token], 1)[0]
        self._proposed = tokens
        return Proposal(tokens, _stack(rows) if rows else None)

    def accepted(self, count: int, token: int) -> None:
        """See `Drafter.accepted`."""
        self._context += [*self._proposed[:count], token]
        self._proposed = []
        self._lost = self._lost or token >= self._vocabulary
        self._cache.roll_back(min(len(self._cache.tokens), len(self._context) - 1))

    def close(self) -> None:
        """See `Drafter.close`."""
        self._cache.close()

    def _choose(self, row: Floats, draft: list[int], rows: list[Distributions]) -> int:
        row = row[: self._vocabulary]
        sampling = self._sampling
        if has_penalties(sampling):
            recent = self._context[-sampling.penalty_window :] if sampling.penalty_window else []
            row = penalise(row, [*recent, *draft], sampling)
        if sampling.temperature == 0:
            token = int(np.argmax(row))
            if self._accept == "rejection":
                rows.append(Distributions(np.array([[token]]), np.zeros((1, 1))))
            return token
        position = len(self._context) + len(draft)
        if self._accept == "rejection":
            q = distributions(row[None, :], sampling)
            rows.append(q)
            return draw(q, self._seed, [position], Purpose.DRAFT)[0]
        ids = _likely(row, sampling)
        scores = row[ids].astype(np.float64) / sampling.temperature + gumbel(self._seed, [position], ids[None, :])[0]
        return int(ids[np.argmax(scores)])


def _likely(row: Floats, sampling: Sampling) -> NDArray[np.int64]:
    """Candidates the target's sampler would leave over, were ``row`` its own.

    Where neither top-k nor min-p bounds them, those are left out that have all together a chance below e^−14.
    """
    if sampling.top_k:
        ids = top_candidates(row, min(sampling.top_k, len(row)))
    else:
        ratio = -np.log(sampling.min_p) if sampling.min_p > 0.0 else 14.0 + np.log(len(row))
        ids = np.flatnonzero(row >= row.max() - np.float32(ratio * sampling.temperature + 1e-3))
    if len(ids) == 0:  # a damaged draft (NaN): any guess will do, it is checked
        return np.zeros(1, np.int64)
    if len(ids) > 1 and (sampling.top_p < 1.0 or sampling.min_p > 0.0):
        ids = _cut(ids, row, sampling)
    return ids


def _cut(ids: NDArray[np.int64], row: Floats, sampling: Sampling) -> NDArray[np.int64]:
    """``ids`` after top-p, over all candidates without top-k, and min-p."""
    ids = ids[np.argsort(-row[ids])]
    weights = np.exp((row[ids] - row[ids[0]]) / sampling.temperature)
    total = weights.sum() if sampling.top_k else np.exp((row - row[ids[0]]) / sampling.temperature).sum()
    kept = (np.cumsum(weights) - weights < sampling.top_p * total) & (weights >= sampling.min_p)
    kept[0] = True
    return np.asarray(ids[kept])


def _stack(rows: list[Distributions]) -> Distributions:
    """Put single rows below each other; shorter ones are padded with candidates of probability 0."""
    width = max(row.ids.shape[1] for row in rows)
    ids = np.zeros((len(rows), width), np.int64)
    log_probs = np.full((len(rows), width), -np.inf)
    for place, row in enumerate(rows):
        ids[place, : row.ids.shape[1]] = row.ids[0]
        log_probs[place, : row.log_probs.shape[1]] = row.log_probs[0]
    return Distributions(ids, log_probs)
