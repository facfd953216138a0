"""A small model of the same vocabulary as drafter."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.cache import Cache, shared_prefix
from app.engine.drafters import Proposal, Worth, always
from app.engine.protocol import AcceptRule, DrafterName, Sampling, Way
from app.engine.sampling import Distributions, Floats, distributions, has_penalties, penalise, top_candidates
from app.engine.verification import Purpose, draw, gumbel
from app.errors import Cancelled, KnownError

_UNKNOWN_TOKENS = "This chat has tokens that the draft model does not know."


class ModelDrafter:
    """Drafts with a draft model and keeps its KV cache for what was accepted.

    Under ``coupled`` it proposes either with the target's own noise, so that the two agree as often as their
    distributions do, or always its likeliest token; under ``rejection`` it samples with noise of its own and hands out
    the distributions.
    """

    name: DrafterName = "model"

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

    def configure(self, sampling: Sampling, accept: AcceptRule, seed: int) -> None:
        """Set how to propose in the next generation."""
        self._sampling, self._accept, self._seed = sampling, accept, seed

    def begin(self, tokens: Sequence[int]) -> None:
        """Take over a prompt. What the cache shares with it is kept, the rest is processed. See `Drafter.begin`."""
        self._context = list(tokens)
        self._proposed = []
        if not self._knows(tokens):
            raise KnownError(_UNKNOWN_TOKENS)
        self._cache.roll_back(shared_prefix(self._cache.tokens, tokens))
        self._catch_up(0)
        self._cache.remember()

    def propose(self, count: int, way: Way = "coupled", worth: Worth = always) -> Proposal:
        """See `Drafter.propose`."""
        self._proposed = []
        count = min(count, self._cache.length - len(self._context))
        if not self._knows(self._context[len(self._cache.tokens) :]):
            raise KnownError(_UNKNOWN_TOKENS)
        if count <= 0:
            return Proposal()
        row = self._caught_up()
        self._cache.hold(count)
        choices: list[_Choice] = []
        while True:
            choice = self._choose(row, self._proposed, way)
            choices.append(choice)
            self._proposed.append(choice.token)
            if len(choices) == count or self._ends(choice.token) or not worth(choice.lead):
                break
            row = self._cache.decode([choice.token], 1)[0]
        rows = [choice.distribution for choice in choices if choice.distribution is not None]
        others = [choice.other for choice in choices if choice.other is not None]
        leads = [choice.lead for choice in choices]
        return Proposal(list(self._proposed), _stack(rows) if rows else None, leads, others)

    def accepted(self, tokens: Sequence[int]) -> None:
        """See `Drafter.accepted`."""
        keep = len(self._context) + shared_prefix(self._proposed, tokens)
        self._context += tokens
        self._proposed = []
        self._cache.roll_back(min(len(self._cache.tokens), keep, len(self._context) - 1))

    def close(self) -> None:
        """See `Drafter.close`."""
        self._cache.close()

    def _caught_up(self) -> Floats:
        """The logits after the context; other drafters may have written much of it."""
        if len(self._context) - len(self._cache.tokens) > self._cache.chunk:
            self._catch_up(1)
        return np.asarray(self._cache.decode(self._context[len(self._cache.tokens) :], 1)[0])

    def _knows(self, tokens: Sequence[int]) -> bool:
        return all(token < self._vocabulary for token in tokens)

    def _catch_up(self, leave: int) -> None:
        """Process what the cache lacks of the context, all but the last ``leave`` tokens."""
        end = len(self._context) - leave
        with self._cache.aborting(self._should_stop):
            while missing := self._context[len(self._cache.tokens) : end][: self._cache.chunk]:
                if self._should_stop():
                    raise Cancelled
                self._cache.decode(missing, 0)

    def _choose(self, row: Floats, draft: list[int], way: Way) -> _Choice:
        row = row[: self._vocabulary]
        sampling = self._sampling
        if has_penalties(sampling):
            recent = self._context[-sampling.penalty_window :] if sampling.penalty_window else []
            row = penalise(row, [*recent, *draft], sampling)
        if sampling.temperature == 0:
            token, lead = _best(row)
            certain = Distributions(np.array([[token]]), np.zeros((1, 1)))
            return _Choice(token, lead, distribution=certain if self._accept == "rejection" else None)
        position = len(self._context) + len(draft)
        if self._accept == "rejection":
            q = distributions(row[None, :], sampling)
            token = draw(q, self._seed, [position], Purpose.DRAFT)[0]
            return _Choice(token, _lead(q.log_probs[0], 0), distribution=q)
        ids = _likely(row, sampling)
        scores = row[ids].astype(np.float64) / sampling.temperature
        noisy = scores + gumbel(self._seed, [position], ids[None, :])[0]
        likeliest, coupled = int(np.argmax(scores)), int(np.argmax(noisy))
        if way == "greedy":
            return _Choice(int(ids[likeliest]), _lead(scores, likeliest), other=int(ids[coupled]))
        return _Choice(int(ids[coupled]), _lead(noisy, coupled), other=int(ids[likeliest]))


@dataclass(frozen=True)
class _Choice:
    token: int
    lead: float
    """Nats between the best and the second-best score. Under ``rejection`` of the distribution, not of the token
    drawn from it: what is drafted further must not depend on a token that is not yet tested."""
    other: int | None = None
    distribution: Distributions | None = None


def _best(row: Floats) -> tuple[int, float]:
    """The likeliest token and its lead. Two passes over the row: a vocabulary of 150,000 is not sorted."""
    token = int(np.argmax(row))
    second = max(row[:token].max(initial=-np.inf), row[token + 1 :].max(initial=-np.inf))
    return token, float(row[token] - second)


def _lead(scores: NDArray[np.float64], best: int) -> float:
    if len(scores) == 1:
        return math.inf
    return float(scores[best] - np.delete(scores, best).max())


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
