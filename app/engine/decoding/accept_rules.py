"""The accept rules of the draft–verify loop and their seeded noise: pure functions of logits, draft, seed and position.

``coupled`` (drafter-invariant speculative decoding, arXiv 2408.07978): the target's token at every position is
argmax(log p + g) with Gumbel noise g(seed, position, token); a draft token is accepted iff it equals that token. The
text depends on the seed and the target alone.

``rejection`` (arXiv 2211.17192, 2302.01318): a draft token x, sampled from q, is accepted with probability
min(1, p(x) / q(x)); the first rejected one is replaced by a draw from max(0, p − q), renormalized.

``block`` (block verification, arXiv 2403.10444, algorithm 2): where ``rejection`` stops at the first token it rejects,
this looks at the whole draft and keeps the longest prefix that its own coin accepts. It is exact, and for one draft no
exact rule accepts more tokens. What it accepts depends on draft tokens *behind* those it accepts: noise that is a
function of seed and position alone would be used in a draft it rejected for it, and once more for the same position in
the next draft, where it would be biased. So the noise of each draft has a seed of its own, `block_seed`.

The random numbers are counter-based: a hash of (seed, position, purpose, token), so that no state has to be rolled
back and the draws for different purposes are independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Distributions, Logits, candidates, kept_of_few, largest, top_candidates
from app.protocol.options import Sampling

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1
_FEW = 16
"""Up to this many tokens, plain Python numbers are faster than arrays."""
_FEW_CANDIDATES = 64
"""The same for candidates before top-p and min-p, which usually leave a few of them."""
_MANY = 32_000
"""From this many tokens on, it is faster not to compute the logarithms of all of them."""
_LIKELIEST = 64
"""How many of the most likely tokens always get their noise."""


class Purpose(IntEnum):
    """What a random number is used for; numbers for different purposes are independent."""

    TARGET = 1
    DRAFT = 2
    ACCEPT = 3
    RESIDUAL = 4


@dataclass(frozen=True)
class Verdict:
    """The result of a verify pass: the first ``accepted`` draft tokens, followed by ``token``, the target's own."""

    accepted: int
    token: int
    path: tuple[int, ...] | None = None
    """In a draft tree: the places of the accepted tokens."""


def _key(seed: int, position: int, purpose: Purpose) -> int:
    """A 64-bit start for the numbers of one position: the finalizer of SplitMix64 (Steele, Lea, Flood 2014), twice.

    Uses plain integers, as `_mixed` does: for single values they are faster than NumPy.
    """
    x = seed * 8 + purpose + (position + 1) * _GOLDEN
    return _mixed(_mixed(x + _GOLDEN) + _GOLDEN)


def _mixed(x: int) -> int:
    """The finalizer for one value; `gumbel` does the same for arrays."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def _uniform(bits: int) -> float:
    """Uniform in the open interval (0, 1), from the upper 53 bits."""
    return ((bits >> 11) + 0.5) * 2.0**-53


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform number in (0, 1), the same for the same arguments."""
    return _uniform(_mixed(_key(seed, position, purpose) + _GOLDEN))


def gumbel(
    seed: int, positions: Sequence[int], ids: NDArray[np.int64], purpose: Purpose = Purpose.TARGET
) -> NDArray[np.float64]:
    """Standard Gumbel noise for the candidates ``ids`` (shape (R, K)) at R ``positions``.

    Token i gets number i + 1 of the SplitMix64 stream of its position.
    """
    keys = [(_key(seed, position, purpose) + _GOLDEN) & _MASK for position in positions]
    if ids.size <= _FEW:
        return np.array([[_gumbel(key, token) for token in row] for key, row in zip(keys, ids.tolist(), strict=True)])
    return _noise(_bits(keys, ids))


def _gumbel(key: int, token: int) -> float:
    return -math.log(-math.log(_uniform(_mixed(key + token * _GOLDEN))))


def _bits(keys: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """53 random bits for each of ``ids``, shape (R, K); more bits mean more noise."""
    x = ids.astype(np.int64, copy=False).view(np.uint64) * np.uint64(_GOLDEN)
    x += np.array(keys, np.uint64)[:, None]
    x ^= x >> np.uint64(30)  # in place, so that a vocabulary of 152,000 tokens stays in the processor's cache
    x *= np.uint64(_MIX_1)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    x >>= np.uint64(11)
    return x


def _noise(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    noise = bits.astype(np.float64)
    noise += 0.5
    noise *= 2.0**-53
    for _ in range(2):
        np.log(noise, out=noise)
        np.negative(noise, out=noise)
    return noise


def with_noise(
    p: Distributions, seed: int, position: int, purpose: Purpose = Purpose.TARGET
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and log p + g of all candidates that can be best or second-best in the only row of ``p``.

    In a whole vocabulary these are few: a token after the `_LIKELIEST` most likely ones needs so much noise to come
    second that its random bits alone can rule it out, so the two logarithms are only computed for the others.
    """
    ids, scores = p.ids[0], p.log_probs[0]
    if not p.whole or len(ids) < _MANY:
        return ids, scores + gumbel(seed, [position], p.ids, purpose)[0]
    bits = _bits([(_key(seed, position, purpose) + _GOLDEN) & _MASK], p.ids)[0]
    likeliest = top_candidates(p.log_probs, _LIKELIEST)[0]
    second = np.partition(scores[likeliest] + _noise(bits[likeliest]), -2)[-2]
    needed = math.exp(-math.exp(float(scores[likeliest[-1]] - second))) * 2.0**53
    can_win = bits >= np.uint64(needed * (1.0 - 1e-9))  # rounding must not rule anything out
    can_win[likeliest] = True
    left = np.flatnonzero(can_win)
    return left, scores[left] + _noise(bits[left])


def are_few(sampling: Sampling) -> bool:
    """Whether `noisy_candidates` is quicker than `with_noise`: top-k leaves a few dozen tokens."""
    return sampling.temperature > 0 and 0 < sampling.top_k <= _FEW_CANDIDATES


def noisy_candidates(
    row: Logits, sampling: Sampling, seed: int, position: int
) -> tuple[list[int], list[float], list[float]]:
    """Ids, scores and scores with noise of what sampling keeps of one ``row``, most likely first; if `are_few`.

    Raises as `candidates`.
    """
    ids, values = largest(row, sampling.top_k)
    scores = kept_of_few(values, sampling)
    key = (_key(seed, position, Purpose.TARGET) + _GOLDEN) & _MASK
    return ids, scores, [score + _gumbel(key, token) for token, score in zip(ids, scores, strict=False)]


def lead_of(scores: NDArray[np.floating[Any]] | list[float], best: int) -> float:
    """How far the best score is above the second-best; infinite if there is no other."""
    if isinstance(scores, list):
        return scores[best] - max(scores[:best] + scores[best + 1 :], default=-math.inf)
    if len(scores) == 1:
        return math.inf
    return float(scores[best] - max(scores[:best].max(initial=-np.inf), scores[best + 1 :].max(initial=-np.inf)))


def draw(p: Distributions, seed: int, positions: Sequence[int], purpose: Purpose = Purpose.TARGET) -> list[int]:
    """One token per row of ``p``, by argmax(log p + g): an exact sample (Gumbel-max)."""
    if p.ids.shape[1] == 1:
        return [int(token) for token in p.ids[:, 0]]
    if p.whole:
        rows = (with_noise(p.rows(i, i + 1), seed, position, purpose) for i, position in enumerate(positions))
        return [int(ids[scores.argmax()]) for ids, scores in rows]
    best = np.argmax(p.log_probs + gumbel(seed, positions, p.ids, purpose), axis=1)
    return [int(p.ids[row, column]) for row, column in enumerate(best)]


def sample(logits: Logits, sampling: Sampling, seed: int, position: int) -> Iterator[int]:
    """The target's own token for each row of ``logits``, one after the other; row i is at ``position`` + i.

    Raises as `candidates`.
    """
    few = are_few(sampling)
    for place in range(len(logits)):
        row, here = logits[place : place + 1], position + place
        if few:
            ids, _, noisy = noisy_candidates(row, sampling, seed, here)
            yield ids[noisy.index(max(noisy))]
        else:
            yield draw(candidates(row, sampling), seed, [here])[0]


def coupled(tokens: Iterable[int], draft: Sequence[int]) -> Verdict:
    """Accept the draft as far as it equals the target's own ``tokens``, of which no more are asked for."""
    accepted = 0
    for token in tokens:
        if accepted == len(draft) or draft[accepted] != token:
            break
        accepted += 1
    return Verdict(accepted, token)


def rejection(p: Distributions, q: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Accept each draft token with probability min(1, p/q); replace the first rejected one with one from the residual.

    ``q`` holds the len(draft) distributions the draft tokens were actually drawn from.
    """
    for i, token in enumerate(draft):
        p_token, q_token = p.probability(i, token), q.probability(i, token)
        if uniform(seed, position + i, Purpose.ACCEPT) * q_token >= p_token:
            return Verdict(i, _draw_residual(p, q, i, seed, position + i))
    return Verdict(len(draft), draw(p.rows(len(draft)), seed, [position + len(draft)])[0])


def block_seed(seed: int, position: int) -> int:
    """The seed for the draft whose first token is at ``position`` of an answer with ``seed``."""
    return int(uniform(seed, position, Purpose.DRAFT) * 2**53)


def block(p: Distributions, q: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Keep the longest accepted prefix of ``draft``, followed by a token from the residual distribution.

    ``q`` holds the len(draft) distributions the draft tokens were actually drawn from. The length of the draft may
    depend on its tokens, but not on what would have followed them.
    """
    seed = block_seed(seed, position)
    accepted, accepted_share, share = 0, 1.0, 1.0
    for i, token in enumerate(draft):
        share = min(share * p.probability(i, token) / q.probability(i, token), 1.0)
        chance = share
        if i + 1 < len(draft):
            left = float(_residual(p, q, i + 1, share).sum())
            chance = left / (left + (1.0 - share)) if left > 0.0 else 0.0
        if uniform(seed, position + i, Purpose.ACCEPT) <= chance:
            accepted, accepted_share = i + 1, share
    if accepted == len(draft):
        return Verdict(accepted, draw(p.rows(accepted), seed, [position + accepted])[0])
    return Verdict(accepted, _draw_residual(p, q, accepted, seed, position + accepted, accepted_share))


def _draw_residual(p: Distributions, q: Distributions, row: int, seed: int, position: int, share: float = 1.0) -> int:
    rest = _residual(p, q, row, share)
    if rest.sum() <= 0.0:  # p = q up to rounding: a rejection here has probability zero, so p itself is right
        rest = np.exp(p.log_probs[row])
    with np.errstate(divide="ignore"):
        weights = Distributions(p.ids[row : row + 1], np.log(rest / rest.sum())[None, :], p.whole)
    return draw(weights, seed, [position], Purpose.RESIDUAL)[0]


def _residual(p: Distributions, q: Distributions, row: int, share: float = 1.0) -> NDArray[np.floating[Any]]:
    """max(``share`` · p − q, 0) for the candidates of ``p`` in ``row``."""
    size = max(int(p.ids[row].max()), int(q.ids[row].max())) + 1
    return np.asarray(np.maximum(share * np.exp(p.log_probs[row]) - q.dense(row, size)[p.ids[row]], 0.0))
