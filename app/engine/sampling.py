"""Logits to the target's distribution: penalties, temperature, top-k, top-p, min-p, in this order.

Each step keeps the distribution of the one before, cut and renormalised, as in Hugging Face transformers and vLLM
(llama.cpp applies temperature last by default; the order only matters for top-p and min-p). All functions take several
rows at once, one a position of the draft, because a verify pass yields them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.protocol import Sampling
from app.errors import KnownError

Floats = NDArray[np.float32]
_BLOCKS_PER_CANDIDATE = 8


@dataclass(frozen=True)
class Distributions:
    """Truncated distributions of R positions over at most K candidates each.

    ``ids`` and ``log_probs`` have shape (R, K), most likely candidate first; cut and padding candidates have the log
    probability −inf. Each row of ``exp(log_probs)`` sums to 1.
    """

    ids: NDArray[np.int64]
    log_probs: NDArray[np.float64]

    def probability(self, row: int, token: int) -> float:
        """The probability of ``token`` at position ``row``; 0 when it was cut."""
        found = np.flatnonzero(self.ids[row] == token)
        return float(np.exp(self.log_probs[row, found].max())) if len(found) else 0.0

    def dense(self, row: int, vocabulary: int) -> NDArray[np.float64]:
        """Probabilities of all tokens at position ``row``, shape (vocabulary,)."""
        probabilities = np.zeros(vocabulary)
        kept = np.isfinite(self.log_probs[row])
        probabilities[self.ids[row, kept]] = np.exp(self.log_probs[row, kept])
        return probabilities


def penalise(logits: Floats, history: Sequence[int], sampling: Sampling) -> Floats:
    """One row of logits after repetition, frequency and presence penalties over the end of ``history``.

    Repetition divides positive and multiplies negative logits (Keskar et al., arXiv 1909.05858); frequency and presence
    subtract, per occurrence and once (the OpenAI API's definition). Returns ``logits`` itself when nothing changes.
    """
    window = history[-sampling.penalty_window :] if sampling.penalty_window else []
    if not window or not has_penalties(sampling):
        return logits
    counts = Counter(token for token in window if token < len(logits))
    ids = np.fromiter(counts.keys(), np.int64, len(counts))
    occurrences = np.fromiter(counts.values(), np.float32, len(counts))
    seen = logits[ids]
    factor = np.float32(sampling.repetition_penalty)
    seen = np.where(seen > 0, seen / factor, seen * factor)
    seen -= occurrences * np.float32(sampling.frequency_penalty) + np.float32(sampling.presence_penalty)
    penalised = logits.copy()
    penalised[ids] = seen
    return penalised


def has_penalties(sampling: Sampling) -> bool:
    """Whether any penalty changes anything."""
    return sampling.repetition_penalty != 1.0 or bool(sampling.frequency_penalty) or bool(sampling.presence_penalty)


def penalise_rows(logits: Floats, history: Sequence[int], draft: Sequence[int], sampling: Sampling) -> Floats:
    """Rows of a verify pass, each penalised along the draft that leads to it.

    ``logits`` has shape (len(draft) + 1, vocabulary); row i follows ``history`` and the first i draft tokens. A row is
    only ever used when all draft tokens before it were accepted, so its history is known in advance.
    """
    if not has_penalties(sampling) or not sampling.penalty_window:
        return logits
    recent = list(history[-sampling.penalty_window :])  # not the whole context: this runs for every verify pass
    return np.stack([penalise(row, [*recent, *draft[:i]], sampling) for i, row in enumerate(logits)])


def top_candidates(logits: Floats, k: int) -> NDArray[np.int64]:
    """Ids of the exact k largest of ``logits`` (shape (vocabulary,)), largest first, equal ones by id.

    Without sorting the vocabulary: the k-th largest of the maxima of disjoint blocks is a lower bound of the k-th
    largest value, and only the few values above it are sorted.
    """
    size = len(logits)
    blocks = k * _BLOCKS_PER_CANDIDATE
    if size >= 2 * blocks:
        rows = size // blocks
        maxima = logits[: rows * blocks].reshape(rows, blocks).max(axis=0)
        bound = np.partition(maxima, blocks - k)[blocks - k]
        candidates = np.flatnonzero(logits >= bound)
    else:
        candidates = np.arange(size)
    order = np.lexsort((candidates, -logits[candidates]))[:k]
    return candidates[order]


def distributions(logits: Floats, sampling: Sampling) -> Distributions:
    """The target's distributions for rows of (already penalised) logits, shape (R, vocabulary).

    At temperature 0 each row has one candidate, the most likely token. Raises `KnownError` for logits that are no
    numbers, as a damaged file yields them.
    """
    if not np.isfinite(logits.max(axis=1)).all():
        raise KnownError("The model computes no valid numbers, so its file is probably damaged. Load another file.")
    if sampling.temperature == 0:
        best = np.argmax(logits, axis=1)[:, None]
        return Distributions(best.astype(np.int64), np.zeros(best.shape))
    ids, log_probs = _top_k(logits, sampling) if sampling.top_k else _all(logits, sampling)
    if sampling.top_p < 1.0:
        log_probs = _cut_top_p(log_probs, sampling.top_p)
    if sampling.min_p > 0.0:
        log_probs = _cut(log_probs, log_probs >= log_probs[:, :1] + np.log(sampling.min_p))
    return Distributions(ids, log_probs)


def _top_k(logits: Floats, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    k = min(sampling.top_k, logits.shape[1])
    ids = np.stack([top_candidates(row, k) for row in logits])
    return ids, _normalise(np.take_along_axis(logits, ids, axis=1).astype(np.float64) / sampling.temperature)


def _all(logits: Floats, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Without top-k: as many of the most likely candidates as top-p and min-p can leave over, with their log
    probabilities among all. Only they are sorted, not the vocabulary; all are when neither cuts.
    """
    size, count = logits.shape[1], logits.shape[1]
    scores = logits.astype(np.float64) / sampling.temperature
    best = scores.max(axis=1, keepdims=True)
    log_probs = scores - best - np.log(np.exp(scores - best).sum(axis=1, keepdims=True))
    if sampling.min_p > 0.0:
        count = int((scores >= best + np.log(sampling.min_p)).sum(axis=1).max())
    elif sampling.top_p < 1.0:
        count = 0
        reached = np.zeros(1)
        while count < size and reached.min() < sampling.top_p:
            count = min(max(256, 8 * count), size)
            largest = np.partition(log_probs, size - count, axis=1)[:, size - count :]
            reached = np.exp(largest).sum(axis=1)
    ids = np.stack([top_candidates(row, count) for row in logits])
    return ids, np.take_along_axis(log_probs, ids, axis=1)


def _normalise(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = scores - scores[:, :1]  # rows are sorted: the first is the largest
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _cut(log_probs: NDArray[np.float64], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
    return _normalise(np.where(kept, log_probs, -np.inf))


def _cut_top_p(log_probs: NDArray[np.float64], top_p: float) -> NDArray[np.float64]:
    """Keep the smallest set of most likely candidates whose probabilities reach ``top_p``."""
    probabilities = np.exp(log_probs)
    before = np.cumsum(probabilities, axis=1) - probabilities
    kept = before < top_p
    kept[:, 0] = True
    return _cut(log_probs, kept)
