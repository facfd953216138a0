"""The accept rules of the draft–verify loop and their seeded noise: pure functions of logits, draft, seed and position.

``coupled`` (drafter-invariant speculative decoding, arXiv 2408.07978): the target's token at every position is
argmax(log p + g) with Gumbel noise g(seed, position, token); a draft token is accepted iff it equals that token. The
text depends on the seed and the target alone.

``rejection`` (arXiv 2211.17192, 2302.01318): a draft token x, sampled from q, is accepted with probability
min(1, p(x) / q(x)); the first rejected one is replaced by a draw from max(0, p − q), renormalised.

``block`` (block verification, arXiv 2403.10444, algorithm 2): where ``rejection`` stops at the first token it rejects,
this looks at the whole draft and keeps the longest prefix that its own coin accepts. It is exact, and for one draft no
exact rule accepts more tokens. What it accepts depends on draft tokens *behind* those it accepts: noise that is a
function of seed and position alone would be used in a draft it rejected for it, and once more for the same position in
the next draft, where it would be biased. So the noise of each draft has a seed of its own, `block_seed`.

The random numbers are counter-based: a hash of (seed, position, purpose, token), so that no state has to be rolled
back and the draws for different purposes are independent.

Gumbel noise is −log of exponential noise, and a race of exponential clocks can be told from its end: the first of m
rings after an exponential time of rate m, each is the first with the same chance, and from then on the others run as if
started anew (they have no memory). So the noise of a token is made of its block's first ring and, unless the token is
the one that rang, of a clock of its own. It is as independent as if drawn one by one, and `best_of_all` finds the
winner of a whole vocabulary while it looks at a few blocks only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Distributions, Floats, check_finite, distributions, keeps_all, strided_maxima
from app.protocol.messages import Sampling

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1
_BLOCK_BITS, _MEMBER_BITS = np.uint64(12), np.uint64(6)
_PAGE_BITS = _BLOCK_BITS + _MEMBER_BITS
_BLOCKS, _MEMBERS, _PAGE = 1 << int(_BLOCK_BITS), 1 << int(_MEMBER_BITS), 1 << int(_PAGE_BITS)
_IN_BLOCKS, _IN_MEMBERS = np.uint64(_BLOCKS - 1), np.uint64(_MEMBERS - 1)
"""The bits of a token are page, member and block, whatever the vocabulary; blocks of later pages are others."""
_TOKEN_COUNTERS, _BLOCK_COUNTERS = np.uint64(1), np.uint64(1 << 40)
"""Where the counters of tokens and of blocks begin."""
_FEW = 16
"""Tokens up to which plain numbers are quicker than arrays."""
_LOOK_FIRST = 1.0
"""Tokens that promise as much as the best one less this are looked at first."""


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

    In plain integers, as `_mixed`: for single values that is quicker than NumPy.
    """
    x = seed * 8 + purpose + (position + 1) * _GOLDEN
    return _mixed(_mixed(x + _GOLDEN) + _GOLDEN)


def _mixed(x: int) -> int:
    """The finaliser for one value; `_bits` has it for arrays."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * _MIX_1) & _MASK
    x = ((x ^ (x >> 27)) * _MIX_2) & _MASK
    return x ^ (x >> 31)


def _bits(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Number ``counters`` of the SplitMix64 streams that start at ``keys``."""
    x = keys + counters * np.uint64(_GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX_2)
    x ^= x >> np.uint64(31)
    return np.asarray(x)


def _uniforms(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform in the open interval (0, 1), from the upper 53 bits."""
    return np.asarray(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform number in (0, 1), the same for the same arguments."""
    key = np.array([_key(seed, position, purpose)], np.uint64)
    return float(_uniforms(_bits(key, np.ones(1, np.uint64)))[0])


def gumbel(
    seed: int, positions: Sequence[int], ids: NDArray[np.int64], purpose: Purpose = Purpose.TARGET
) -> NDArray[np.float64]:
    """Standard Gumbel noise for the candidates ``ids`` (shape (R, K)) at R ``positions``."""
    if ids.size <= _FEW:
        rows = zip((_key(seed, position, purpose) for position in positions), ids.tolist(), strict=True)
        return np.array([[_noise_of(key, token) for token in row] for key, row in rows])
    keys = np.array([_key(seed, position, purpose) for position in positions], np.uint64)[:, None]
    tokens = ids.astype(np.uint64)
    blocks = (tokens >> _PAGE_BITS << _BLOCK_BITS) + (tokens & _IN_BLOCKS)
    bits, logs = _random(keys, np.concatenate([blocks + _BLOCK_COUNTERS, tokens + _TOKEN_COUNTERS], axis=1))
    count = ids.shape[1]
    return _noise(tokens, bits[:, :count], logs[:, :count], logs[:, count:])


def _noise_of(key: int, token: int) -> float:
    """The noise of one token, the same as `_noise` computes: for a few tokens that is quicker than arrays."""
    block = (token // _PAGE) * _BLOCKS + token % _BLOCKS
    bits = _mixed(key + (block + int(_BLOCK_COUNTERS)) * _GOLDEN)
    first = _log_uniform(bits) / _MEMBERS
    if token // _BLOCKS % _MEMBERS == bits % _MEMBERS:
        return float(-np.log(0.0 - first))
    return float(-np.log(-_log_uniform(_mixed(key + (token + int(_TOKEN_COUNTERS)) * _GOLDEN)) - first))


def _log_uniform(bits: int) -> float:
    return float(np.log(((bits >> 11) + 0.5) * 2.0**-53))  # not math.log, which differs in the last bit


def _random(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """Random bits, and the logarithms of the uniform numbers they make."""
    bits = _bits(keys, counters)
    return bits, np.log(_uniforms(bits))


def _noise(
    tokens: NDArray[np.uint64],
    block_bits: NDArray[np.uint64],
    block_logs: NDArray[np.float64],
    logs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The noise of ``tokens`` from the random numbers of their blocks and their own."""
    is_first = (tokens >> _BLOCK_BITS) & _IN_MEMBERS == block_bits & _IN_MEMBERS
    return np.asarray(-np.log(np.where(is_first, 0.0, -logs) - block_logs / _MEMBERS))


def best_of_all(
    scores: Floats, seed: int, position: int, purpose: Purpose = Purpose.TARGET, margin: float = 0.0
) -> tuple[int, float]:
    """argmax(``scores`` + g) over a whole vocabulary, and its lead over the second-best.

    No token's noise is above that of its block's first ring; only what can still win then is looked at. ``margin``: so
    large a lead is exact, a larger one may be overestimated. Raises `InvalidLogitsError` for ``scores`` that are none.
    """
    if len(scores) <= _BLOCKS:
        noisy = scores + gumbel(seed, [position], np.arange(len(scores))[None, :], purpose)[0]
        best = int(np.argmax(noisy))
        check_finite(noisy[best])
        return best, lead_of(noisy, best)
    keys = np.array([_key(seed, position, purpose)], np.uint64)
    pages = [strided_maxima(scores[at : at + _PAGE], _BLOCKS) for at in range(0, len(scores), _PAGE)]
    members = np.arange(0, min(_PAGE, len(scores)), _BLOCKS)
    block_bits, block_logs = _random(keys, np.arange(_BLOCKS * len(pages), dtype=np.uint64) + _BLOCK_COUNTERS)
    most = -np.log(-block_logs / _MEMBERS)
    promised = np.concatenate(pages) + most
    likeliest = promised.max()
    check_finite(likeliest)

    def look(least: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The tokens that promise ``least``, and their scores with noise."""
        blocks = np.flatnonzero(promised >= least)
        ids = (blocks // _BLOCKS * _PAGE + blocks % _BLOCKS)[:, None] + members
        promises = scores.take(ids, mode="clip") + most[blocks, None]
        row, column = np.nonzero((promises >= least) & (ids < len(scores)))
        tokens, places = ids[row, column], blocks[row]
        counters = tokens.astype(np.uint64)
        _, logs = _random(keys, counters + _TOKEN_COUNTERS)
        return tokens, scores[tokens] + _noise(counters, block_bits[places], block_logs[places], logs)

    _, noisy = look(float(likeliest) - _LOOK_FIRST)
    ids, noisy = look(float(noisy.max()) - margin)
    best = int(np.argmax(noisy))
    return int(ids[best]), lead_of(noisy, best)


def lead_of(scores: NDArray[np.floating[Any]], best: int) -> float:
    """By how much the best score is above the second-best; infinite where there is no other."""
    if len(scores) == 1:
        return math.inf
    return float(scores[best] - max(scores[:best].max(initial=-np.inf), scores[best + 1 :].max(initial=-np.inf)))


def draw(p: Distributions, seed: int, positions: Sequence[int], purpose: Purpose = Purpose.TARGET) -> list[int]:
    """One token a row of ``p``, by argmax(log p + g): an exact sample (Gumbel-max)."""
    if p.ids.shape[1] == 1:
        return [int(token) for token in p.ids[:, 0]]
    if p.whole and p.ids.shape[1] > _BLOCKS:
        return _draw_all(p.log_probs, seed, positions, purpose)
    best = np.argmax(p.log_probs + gumbel(seed, positions, p.ids, purpose), axis=1)
    return [int(p.ids[row, column]) for row, column in enumerate(best)]


def _draw_all(scores: Floats, seed: int, positions: Sequence[int], purpose: Purpose = Purpose.TARGET) -> list[int]:
    return [best_of_all(row, seed, position, purpose)[0] for row, position in zip(scores, positions, strict=True)]


def sample(logits: Floats, sampling: Sampling, seed: int, position: int) -> list[int]:
    """The target's own token for each row of ``logits``; row i is at ``position`` + i. Raises as `distributions`.

    The same as drawing from `distributions`. Where nothing is cut, their sums are not needed and not computed.
    """
    positions = range(position, position + len(logits))
    if not keeps_all(sampling):
        return draw(distributions(logits, sampling), seed, positions)
    return _draw_all(logits / np.float32(sampling.temperature), seed, positions)


def coupled(tokens: Sequence[int], draft: Sequence[int]) -> Verdict:
    """Accept the draft as far as it equals the target's own ``tokens``, of which there is one more."""
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
    return Verdict(len(draft), draw(p.after(len(draft)), seed, [position + len(draft)])[0])


def block_seed(seed: int, position: int) -> int:
    """The seed of the draft whose first token stands at ``position`` of an answer with ``seed``."""
    return int(uniform(seed, position, Purpose.DRAFT) * 2**53)


def block(p: Distributions, q: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Keep the longest accepted prefix of ``draft``, then a token of the residual distribution behind it.

    ``q`` holds the len(draft) distributions the draft tokens were really drawn from, with `block_seed` of ``position``.
    How far was drafted may depend on the draft tokens, but not on what would have come behind them.
    """
    seed = block_seed(seed, position)
    kept, kept_share, share = 0, 1.0, 1.0
    for i, token in enumerate(draft):
        share = min(share * p.probability(i, token) / q.probability(i, token), 1.0)
        chance = share
        if i + 1 < len(draft):
            left = float(_residual(p, q, i + 1, share).sum())
            chance = left / (left + (1.0 - share)) if left > 0.0 else 0.0
        if uniform(seed, position + i, Purpose.ACCEPT) <= chance:
            kept, kept_share = i + 1, share
    if kept == len(draft):
        return Verdict(kept, draw(p.after(kept), seed, [position + kept])[0])
    return Verdict(kept, _draw_residual(p, q, kept, seed, position + kept, kept_share))


def _draw_residual(p: Distributions, q: Distributions, row: int, seed: int, position: int, share: float = 1.0) -> int:
    rest = _residual(p, q, row, share)
    if rest.sum() <= 0.0:  # p = q up to rounding: a rejection here has probability zero, p itself is right
        rest = np.exp(p.log_probs[row])
    with np.errstate(divide="ignore"):
        weights = Distributions(p.ids[row : row + 1], np.log(rest / rest.sum())[None, :], p.whole)
    return draw(weights, seed, [position], Purpose.RESIDUAL)[0]


def _residual(p: Distributions, q: Distributions, row: int, share: float = 1.0) -> NDArray[np.floating[Any]]:
    """max(``share`` · p − q, 0) for the candidates of ``p`` in ``row``."""
    size = max(int(p.ids[row].max()), int(q.ids[row].max())) + 1
    return np.asarray(np.maximum(share * np.exp(p.log_probs[row]) - q.dense(row, size)[p.ids[row]], 0.0))
