"""Logits to the target's distribution: penalties, temperature, top-k, top-p, min-p, in this order.

Each step cuts and renormalizes the distribution of the one before, as in Hugging Face transformers and vLLM. llama.cpp
applies the temperature last: top-k and greedy decoding come out the same, but top-p and min-p leave more tokens here
than there above a temperature of 1, and fewer below.

Most functions take several rows at once, one for each position of the draft: a verify pass yields them together.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from app.protocol.events import TokenLogprob
from app.protocol.options import Sampling
from app.system import KnownError

Floats = NDArray[np.float32]


class InvalidLogitsError(KnownError):
    """A model computed something that isn't a number."""


_COLUMNS, _MOST_HEIGHT = 8, 64
"""Columns of `_top_of_row`'s table for each logit that is searched for, and the most rows."""
_STEP, _LEAST_WEIGHT = 0.05, 1e-30
"""How the search for the top-p cutoff is widened: to weights smaller by this factor, and finally to all above this."""
_FEW_ALLOWED = 1024
_ROUNDING = 1e-5
"""How far a bound on values in single precision is widened; the exact cut follows."""


@dataclass(frozen=True)
class TopLogits:
    """The largest logits of R positions, where the others are impossible or weren't copied from the device.

    ``ids`` and ``values`` have shape (R, K), the largest first, equal ones by id.
    """

    ids: NDArray[np.int64]
    values: Floats

    @classmethod
    def sorted(cls, ids: NDArray[Any], values: Floats) -> TopLogits:
        """Those in any order."""
        order = np.lexsort((ids, -values))
        rows = np.arange(len(ids))[:, None]
        return cls(ids[rows, order].astype(np.int64, copy=False), values[rows, order])

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> TopLogits:
        return TopLogits(self.ids[rows], self.values[rows])


Logits = Floats | TopLogits
"""Those of R positions: whole rows, shape (R, vocabulary), or the largest of each."""


@dataclass(frozen=True)
class Distributions:
    """Truncated distributions of R positions over at most K candidates each.

    ``ids`` and ``log_probs`` have shape (R, K), most likely candidate first; cut and padding candidates have the log
    probability −inf. Each row of ``exp(log_probs)`` sums to 1.
    """

    ids: NDArray[np.int64]
    log_probs: NDArray[np.floating[Any]]
    whole: bool = False
    """Nothing is cut: K is the whole vocabulary, and candidates are in the order of their ids."""

    def rows(self, start: int, stop: int | None = None) -> Distributions:
        """The positions from ``start`` up to ``stop``."""
        return Distributions(self.ids[start:stop], self.log_probs[start:stop], self.whole)

    def probability(self, row: int, token: int) -> float:
        """The probability of ``token`` at position ``row``; 0 if it was cut."""
        if self.whole:
            return float(np.exp(self.log_probs[row, token])) if token < self.ids.shape[1] else 0.0
        found = np.flatnonzero(self.ids[row] == token)
        return float(np.exp(self.log_probs[row, found].max())) if len(found) else 0.0

    def dense(self, row: int, vocabulary: int) -> NDArray[np.float64]:
        """Probabilities of all tokens at position ``row``, shape (vocabulary,)."""
        probabilities = np.zeros(vocabulary)
        left = np.isfinite(self.log_probs[row])
        probabilities[self.ids[row, left]] = np.exp(self.log_probs[row, left])
        return probabilities


def has_penalties(sampling: Sampling) -> bool:
    """Whether any penalty changes anything."""
    return sampling.repetition_penalty != 1.0 or bool(sampling.frequency_penalty) or bool(sampling.presence_penalty)


def logits_needed(sampling: Sampling) -> int | None:
    """How many of the largest logits of a row `penalize_rows` and `candidates` need; ``None``: all of them.

    Lowering the logits of W tokens in the window leaves the k largest among the k + W that were largest before. A
    penalty that raises logits can bring in any token.
    """
    kept = sampling.top_k if sampling.temperature > 0 else 1
    if not kept:
        return None
    if not has_penalties(sampling) or not sampling.penalty_window:
        return kept
    least = min(sampling.repetition_penalty - 1.0, sampling.frequency_penalty, sampling.presence_penalty)
    return kept + sampling.penalty_window if least >= 0.0 else None


@overload
def penalize_rows(logits: Floats, history: Sequence[int], draft: Sequence[int], sampling: Sampling) -> Floats: ...
@overload
def penalize_rows(logits: Logits, history: Sequence[int], draft: Sequence[int], sampling: Sampling) -> Logits: ...
def penalize_rows(logits: Logits, history: Sequence[int], draft: Sequence[int], sampling: Sampling) -> Logits:
    """Rows of a verify pass after repetition, frequency and presence penalties.

    ``logits`` has len(draft) + 1 rows; row i follows ``history`` and the first i draft tokens: it is only used when all
    of these were accepted. Returns ``logits`` itself when nothing changes.
    """
    if not has_penalties(sampling) or not sampling.penalty_window:
        return logits
    recent = [*history[-sampling.penalty_window :], *draft]
    held = len(recent) - len(draft)
    counts = Counter(recent[:held])  # counted once: the window may be the whole context
    top = logits if isinstance(logits, TopLogits) else None
    penalized = (logits.values if isinstance(logits, TopLogits) else logits).copy()
    for i, row in enumerate(penalized):
        if i:
            counts[draft[i - 1]] += 1
            if (left := held + i - sampling.penalty_window - 1) >= 0:  # the window moves on by one token
                counts[recent[left]] -= 1
                if not counts[recent[left]]:
                    del counts[recent[left]]
        _penalize(row, counts, sampling, top.ids[i] if top else None)
    return TopLogits.sorted(top.ids, penalized) if top else penalized


def _penalize(row: Floats, counts: Counter[int], sampling: Sampling, row_ids: NDArray[np.int64] | None) -> None:
    """Change the logits of the tokens in ``counts`` in place. ``row_ids`` are those of ``row``, unless it is whole.

    Repetition divides positive and multiplies negative logits (Keskar et al., arXiv 1909.05858); frequency and presence
    subtract, per occurrence and once (the OpenAI API's definition).
    """
    if row_ids is None:
        found = [(token, count) for token, count in counts.items() if token < len(row)]
    else:
        found = [(place, counts[token]) for place, token in enumerate(row_ids.tolist()) if token in counts]
    if not found:
        return
    places, times = np.array(found, np.int64).T
    seen = row[places]
    factor = np.float32(sampling.repetition_penalty)
    seen = np.where(seen > 0, seen / factor, seen * factor)
    seen -= times.astype(np.float32) * np.float32(sampling.frequency_penalty) + np.float32(sampling.presence_penalty)
    row[places] = seen


def top_candidates(logits: Floats, k: int) -> NDArray[np.int64]:
    """Ids of the exact k largest of each row of ``logits`` (R, vocabulary), largest first, equal ones by id; (R, k).

    Raises `InvalidLogitsError` for logits that aren't numbers.
    """
    return np.stack([_top_of_row(row, min(k, len(row))) for row in logits])


def _top_of_row(row: Floats, k: int) -> NDArray[np.int64]:
    """`top_candidates` of one row, in few steps, because caches are cold after a pass.

    The row is treated as a table. The k-th largest of its columns' maxima is a lower bound of the k-th largest value,
    and only the columns that reach it, about k, are examined.
    """
    width, starts = _table_of(len(row), k)
    table = row[: len(row) - len(row) % width].reshape(-1, width)
    maxima, rest = table.max(axis=0), row[table.size :]
    if len(rest):
        np.maximum(maxima[: len(rest)], rest, out=maxima[: len(rest)])
    ordered = maxima.copy()
    ordered.partition((width - k, width - 1))  # what isn't a number comes last
    check_finite(ordered[-1])
    bound = ordered[width - k]
    ids = (starts + (maxima >= bound).nonzero()[0]).ravel()
    if len(rest):
        ids = ids[: ids.searchsorted(len(row))]
    values = row[ids]
    left = (values >= bound).nonzero()[0]
    return np.asarray(ids[left[(-values[left]).argsort(kind="stable")[:k]]])


@functools.lru_cache(8)
def _table_of(size: int, k: int) -> tuple[int, NDArray[np.int64]]:
    """The width of `_top_of_row`'s table, and where its rows start, shape (height, 1)."""
    width = size // min(max(size // (_COLUMNS * k), 1), _MOST_HEIGHT)
    return width, np.arange(0, size, width)[:, None]


def largest(row: Logits, k: int) -> tuple[list[int], list[float]]:
    """Ids and values of the k largest logits of the only ``row``; order and errors as in `top_candidates`."""
    if isinstance(row, TopLogits):
        check_finite(row.values.max())  # sorted, what isn't a number comes last
        return row.ids[0, :k].tolist(), row.values[0, :k].tolist()
    ids = _top_of_row(row[0], min(k, row.shape[1]))
    return ids.tolist(), row[0, ids].tolist()


def kept_of_few(values: Sequence[float], sampling: Sampling) -> list[float]:
    """`candidates` of one position whose largest logits are ``values``: the scores of those that are kept. For a few
    dozen numbers, plain Python is faster."""
    scores = [(value - values[0]) / sampling.temperature for value in values]
    least = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
    room = sampling.top_p * sum(map(math.exp, scores)) if sampling.top_p < 1.0 else math.inf
    kept = 1
    while kept < len(scores) and scores[kept] >= least:
        room -= math.exp(scores[kept - 1])
        if room <= 0.0:
            break
        kept += 1
    return scores[:kept]


def masked(row: Floats, allowed: NDArray[np.bool_]) -> Logits:
    """The logits of one position, shape (1, V), where only the ``allowed`` tokens, shape (V,), are possible. A few of
    them are returned alone, which makes sampling a hundred times as fast."""
    ids = np.flatnonzero(allowed)
    if len(ids) <= _FEW_ALLOWED:
        return TopLogits.sorted(ids[None, :], row[:, ids])
    return np.where(allowed, row, np.float32(-np.inf))


def likeliest(logits: Logits) -> list[int]:
    """The most likely token of each row."""
    found: list[int] = (logits.ids[:, 0] if isinstance(logits, TopLogits) else logits.argmax(axis=1)).tolist()
    return found


def keeps_all(sampling: Sampling) -> bool:
    """Whether tokens are drawn and none is cut."""
    return sampling.temperature > 0 and not sampling.top_k and sampling.top_p >= 1.0 and sampling.min_p <= 0.0


def check_finite(*largest: float) -> None:
    """Raises `InvalidLogitsError` unless the ``largest`` logits of all rows are numbers."""
    if not all(map(math.isfinite, largest)):
        raise InvalidLogitsError(
            "The model produces invalid numbers, so its file is probably damaged. Load another file."
        )


def candidates(logits: Logits, sampling: Sampling) -> Distributions:
    """The candidates that sampling keeps in rows of penalized logits, of which at least `logits_needed` are there.

    ``log_probs`` may be off by a constant in each row, which doesn't affect a draw. At temperature 0 each row has one
    candidate. Raises `InvalidLogitsError` for logits that aren't numbers, as from a damaged file.
    """
    if isinstance(logits, TopLogits):
        check_finite(*logits.values.max(axis=1))
        if sampling.temperature == 0:
            return Distributions(logits.ids[:, :1], np.zeros((len(logits), 1)))
        k = sampling.top_k or None
        return _survivors_of(_scores(logits.ids[:, :k], logits.values[:, :k], sampling), sampling)
    if sampling.temperature == 0:
        best = np.argmax(logits, axis=1)[:, None]  # NaN if there is one
        check_finite(*np.take_along_axis(logits, best, axis=1)[:, 0])
        return Distributions(best.astype(np.int64), np.zeros(best.shape))
    if keeps_all(sampling):
        check_finite(*logits.max(axis=1))
        ids = np.broadcast_to(np.arange(logits.shape[1]), logits.shape)
        return Distributions(ids, logits / np.float32(sampling.temperature), whole=True)
    if not sampling.top_k:
        return _survivors_of(stack([_without_top_k(row, sampling) for row in logits]), sampling)
    ids = top_candidates(logits, sampling.top_k)
    return _survivors_of(_scores(ids, logits[np.arange(len(ids))[:, None], ids], sampling), sampling)


def _survivors_of(cut: Distributions, sampling: Sampling) -> Distributions:
    """``cut`` by top-p and min-p."""
    left = survivors(cut.log_probs, sampling)
    if len(left) == 1:  # usually there is a single row, and few candidates are left
        return Distributions(cut.ids[:, left[0]], cut.log_probs[:, left[0]])
    return Distributions(cut.ids, np.where(left, cut.log_probs, -np.inf))


def distributions(logits: Logits, sampling: Sampling) -> Distributions:
    """`candidates` with the logarithms of their probabilities."""
    p = candidates(logits, sampling)
    shifted = p.log_probs - p.log_probs.max(axis=1, keepdims=True)
    return Distributions(p.ids, shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), p.whole)


def survivors(log_probs: NDArray[np.floating[Any]], sampling: Sampling) -> NDArray[np.bool_]:
    """What top-p (the fewest that add up to it) and min-p (relative to the most likely) keep of candidates with
    ``log_probs``, shape (…, K), most likely first."""
    result = np.ones(log_probs.shape, bool)
    if sampling.top_p < 1.0:
        probabilities = np.exp(log_probs)
        result = np.cumsum(probabilities, axis=-1) - probabilities < sampling.top_p
    if sampling.min_p > 0.0:
        result &= log_probs >= log_probs[..., :1] + math.log(sampling.min_p)
    result[..., 0] = True
    return result


def _scores(ids: NDArray[np.int64], values: Floats, sampling: Sampling) -> Distributions:
    """The ``ids`` that top-k leaves of each row, and their logits, shape (R, top-k), after temperature."""
    scores = values.astype(np.float64) / sampling.temperature
    scores -= scores[:, :1]
    if sampling.top_p < 1.0:
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return Distributions(ids, scores)


def _without_top_k(row: Floats, sampling: Sampling) -> Distributions:
    """As many of the most likely candidates of one row as top-p and min-p can keep: those above some weight.

    That is min-p's, or one so small that those above it weigh more than top-p requires. The most likely weighs 1.
    """
    best, temperature = row.max(), sampling.temperature
    check_finite(best)
    total, enough = 1.0, math.inf
    if sampling.top_p < 1.0:
        weights = row - best
        weights *= np.float32(1.0 / temperature)
        total = float(np.exp(weights, out=weights).sum())
        enough = total * sampling.top_p * (1.0 + _ROUNDING)
    least, lowest = 1.0, max(sampling.min_p, _LEAST_WEIGHT)
    while True:
        least = max(least * _STEP, lowest)
        ids = np.flatnonzero(row >= best + np.float32(temperature * math.log(least) - _ROUNDING))
        scores = (row[ids].astype(np.float64) - float(best)) / temperature
        if least == lowest or float(np.exp(scores).sum()) > enough:
            break
    order = np.lexsort((ids, -scores))
    return Distributions(ids[None, order], (scores[order] - np.log(total))[None, :])


def stack(rows: Sequence[Distributions]) -> Distributions:
    """Distributions of one position each, stacked; shorter ones are padded with impossible candidates."""
    width = max(row.ids.shape[1] for row in rows)
    if all(row.whole for row in rows):
        ids = np.broadcast_to(np.arange(width), (len(rows), width))
        return Distributions(ids, np.concatenate([row.log_probs for row in rows]), whole=True)
    ids = np.zeros((len(rows), width), np.int64)
    log_probs = np.full((len(rows), width), -np.inf)
    for place, row in enumerate(rows):
        ids[place, : row.ids.shape[1]] = row.ids[0]
        log_probs[place, : row.log_probs.shape[1]] = row.log_probs[0]
    return Distributions(ids, log_probs)


def logprobs(
    logits: Floats, tokens: Sequence[int], count: int, piece: Callable[[int], bytes]
) -> list[tuple[TokenLogprob, ...]]:
    """How likely ``tokens`` were, each chosen from a row of ``logits``, shape (at least as many, vocabulary), and the
    ``count`` most likely ones beside each, before anything changed the logits. ``piece`` gives the bytes of a token."""
    found = []
    for row, token in zip(logits, tokens, strict=False):
        exact = row.astype(np.float64)
        exact -= exact.max()
        exact -= np.log(np.exp(exact).sum())
        likely = top_candidates(row[None, :], count)[0].tolist() if count else []
        found.append(
            tuple(TokenLogprob(id=one, text=piece(one), logprob=float(exact[one])) for one in (token, *likely))
        )
    return found


def biased(logits: Floats, bias: Mapping[int, float]) -> Floats:
    """``logits`` plus the ``bias`` of some tokens in each row; ``logits`` itself if there is none."""
    if not bias:
        return logits
    changed = logits.copy()
    changed[:, list(bias)] += np.fromiter(bias.values(), np.float32, len(bias))
    return changed
