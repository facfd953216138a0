"""The accept rules of the draft–verify loop and their seeded noise: pure functions of logits, draft, seed and position.

``coupled`` (drafter-invariant speculative decoding, arXiv 2408.07978): the target's token at every position is
argmax(log p + g) with Gumbel noise g(seed, position, token); a draft token is accepted iff it equals that token. The
text depends on the seed and the target alone.

``rejection`` (arXiv 2211.17192, 2302.01318): a draft token x, sampled from q, is accepted with probability
min(1, p(x) / q(x)); the first rejected one is replaced by a draw from max(0, p − q), renormalised.

The random numbers are counter-based: a hash of (seed, position, purpose, token), so that no state has to be rolled
back and the draws for different purposes are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from app.engine.sampling import Distributions

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number is for; different purposes are independent of each other."""

    TARGET = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4


@dataclass(frozen=True)
class Verdict:
    """What a verify pass decided: the first ``accepted`` draft tokens stand, then comes ``token``, the target's own."""

    accepted: int
    token: int


def _key(seed: int, position: int, purpose: Purpose) -> int:
    """A 64-bit start for the numbers of one position: the finaliser of SplitMix64 (Steele, Lea, Flood 2014), twice.

    In plain integers: for single values that is quicker than NumPy.
    """
    x = seed * 8 + purpose + (position + 1) * _GOLDEN
    for _ in range(2):
        x = (x + _GOLDEN) & _MASK
        x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
        x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
        x ^= x >> 31
    return x


def _uniforms(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Number ``counters`` of the SplitMix64 streams that start at ``keys``, uniform in the open interval (0, 1)."""
    x = keys + counters * np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    return np.asarray(((x >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform number in (0, 1), the same for the same arguments."""
    key = np.array([_key(seed, position, purpose)], np.uint64)
    return float(_uniforms(key, np.ones(1, np.uint64))[0])


def gumbel(
    seed: int, positions: Sequence[int], ids: NDArray[np.int64], purpose: Purpose = Purpose.TARGET
) -> NDArray[np.float64]:
    """Standard Gumbel noise for the candidates ``ids`` (shape (R, K)) at R ``positions``."""
    keys = np.array([_key(seed, position, purpose) for position in positions], np.uint64)
    return np.asarray(-np.log(-np.log(_uniforms(keys[:, None], ids.astype(np.uint64) + np.uint64(1)))))


def draw(p: Distributions, seed: int, positions: Sequence[int], purpose: Purpose = Purpose.TARGET) -> list[int]:
    """One token a row of ``p``, by argmax(log p + g): an exact sample (Gumbel-max)."""
    if p.ids.shape[1] == 1:
        return [int(token) for token in p.ids[:, 0]]
    best = np.argmax(p.log_probs + gumbel(seed, positions, p.ids, purpose), axis=1)
    return [int(p.ids[row, column]) for row, column in enumerate(best)]


def coupled(p: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Accept the draft as far as it equals the target's own tokens.

    ``p`` has len(draft) + 1 rows; row i is the target's distribution at ``position`` + i.
    """
    tokens = draw(p, seed, range(position, position + len(draft) + 1))
    accepted = 0
    while accepted < len(draft) and draft[accepted] == tokens[accepted]:
        accepted += 1
    return Verdict(accepted, tokens[accepted])


def rejection(p: Distributions, q: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Accept each draft token with probability min(1, p/q); replace the first rejected one from the residual.

    ``q`` holds the len(draft) distributions the draft tokens were really drawn from.
    """
    for i, token in enumerate(draft):
        p_token, q_token = p.probability(i, token), q.probability(i, token)
        if uniform(seed, position + i, Purpose.ACCEPT) * q_token >= p_token:
            return Verdict(i, _draw_residual(p, q, i, seed, position + i))
    last = Distributions(p.ids[len(draft) :], p.log_probs[len(draft) :])
    return Verdict(len(draft), draw(last, seed, [position + len(draft)])[0])


def _draw_residual(p: Distributions, q: Distributions, row: int, seed: int, position: int) -> int:
    candidates = p.ids[row : row + 1]
    p_row = np.exp(p.log_probs[row])
    size = max(int(p.ids[row].max()), int(q.ids[row].max())) + 1
    q_row = q.dense(row, size)[candidates[0]]
    rest = np.maximum(p_row - q_row, 0.0)
    if rest.sum() <= 0.0:  # p = q up to rounding: a rejection here has probability zero, p itself is right
        rest = p_row
    with np.errstate(divide="ignore"):
        weights = Distributions(candidates, np.log(rest / rest.sum())[None, :])
    return draw(weights, seed, [position], Purpose.RESIDUAL)[0]
