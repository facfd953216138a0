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

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
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


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def _keys(seed: int, positions: Sequence[int], purpose: Purpose) -> NDArray[np.uint64]:
    counters = [(seed * 8 + purpose + (position + 1) * int(_GOLDEN)) & _MASK for position in positions]
    return _mix(_mix(np.array(counters, np.uint64)) + _GOLDEN)


def _to_unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform in the open interval (0, 1)."""
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform number in (0, 1), the same for the same arguments."""
    return float(_to_unit(_keys(seed, [position], purpose))[0])


def gumbel(
    seed: int, positions: Sequence[int], ids: NDArray[np.int64], purpose: Purpose = Purpose.TARGET
) -> NDArray[np.float64]:
    """Standard Gumbel noise for the candidates ``ids`` (shape (R, K)) at R ``positions``."""
    keys = _keys(seed, positions, purpose)[:, None]
    bits = _mix(_mix(keys ^ (ids.astype(np.uint64) * _GOLDEN)) + keys)
    return np.asarray(-np.log(-np.log(_to_unit(bits))))


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
    q_row = np.array([q.probability(row, int(token)) for token in candidates[0]])
    rest = np.maximum(p_row - q_row, 0.0)
    if rest.sum() <= 0.0:  # p = q up to rounding: a rejection here has probability zero, p itself is right
        rest = p_row
    with np.errstate(divide="ignore"):
        weights = Distributions(candidates, np.log(rest / rest.sum())[None, :])
    return draw(weights, seed, [position], Purpose.RESIDUAL)[0]
