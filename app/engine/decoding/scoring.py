"""Looks again at a choice of the target: how candidates score, and which of them rounding could have made the choice.

Passes of different widths compute slightly different logits: sums are taken in another order, and quantized kernels
round what they multiply. A candidate *could win* if it becomes the choice when each logit moves by at most as much as
rounding moves it. Two answers that part between such candidates are a near-tie; otherwise there is another reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.accept_rules import gumbel, sample
from app.engine.decoding.sampling import Floats, Logits, distributions, masked, penalize_rows
from app.engine.decoding.sequence import Cache, piece_end, spans_of, text_of
from app.protocol.options import Sampling
from app.system import Canceled

LEAST_ROUNDING = 0.02
"""Rounding is always assumed to shift a logit by at least this much, as was seen with F16 weights and KV cache, …"""
_MARGIN = 1.5
"""… and by this many times what is observed, because the answers used other widths than those compared here."""
_WIDTH = 16
LOOKED_AT = 2 * _WIDTH
"""This many tokens are processed both ways. In quantized targets a logit moves either not at all or by some tenths, so
with fewer tokens this can be missed (with half as many at 7 of 66 places in a Q4_K_M file, with these at 1).
"""


def logits_behind(cache: Cache, tokens: Sequence[int], should_stop: Callable[[], bool]) -> tuple[Floats, float]:
    """The logits after ``tokens``, shape (vocabulary,), and how far rounding is assumed to shift a logit here.

    ``cache`` contains the beginning of ``tokens`` without at least the last, and all of them afterwards. The last
    `LOOKED_AT` are processed in passes of 16, then again one by one, as in decoding without a draft: the logits are
    those of the last pass. Raises `Canceled`.
    """
    split = max(len(tokens) - LOOKED_AT, *(span.end for span in spans_of(tokens)), 0)
    cache.roll_back(split)
    _feed(cache, tokens[:split], should_stop)
    cache.hold(len(tokens) - split)
    parts = [tokens[i : i + _WIDTH] for i in range(split, len(tokens), _WIDTH)]
    wide = np.concatenate([cache.decode(part, len(part)).copy() for part in parts])
    cache.roll_back(split)
    _feed(cache, tokens[:split], should_stop)
    largest, logits = 0.0, wide[-1]
    for token, row in zip(tokens[split:], wide, strict=True):
        if should_stop():
            raise Canceled
        logits = cache.decode([token], 1)[0].copy()
        largest = max(largest, float(np.abs(np.nan_to_num(logits) - np.nan_to_num(row)).max()))
    return logits, max(LEAST_ROUNDING, _MARGIN * largest)


def _feed(cache: Cache, tokens: Sequence[int], should_stop: Callable[[], bool]) -> None:
    with cache.aborting(should_stop):
        while (done := len(cache.tokens)) < len(tokens):
            if should_stop():
                raise Canceled
            cache.decode(tokens[done : piece_end(tokens, done, cache.chunk)], 0)


@dataclass(frozen=True)
class Choice:
    """One choice of the target under ``coupled``: the distribution it is drawn from, and the noise.

    ``logits`` has shape (vocabulary,), before penalties; ``history`` is prompt and answer up to here, so that its
    length is the position of the noise.
    """

    logits: Floats
    history: Sequence[int]
    sampling: Sampling
    seed: int
    allowed: NDArray[np.bool_] | None = None
    """The tokens that the answer's grammar allows here, shape (vocabulary,); ``None``: all."""

    def logit(self, candidate: int) -> float:
        """Finite even if the model masks the token: messages have no infinity."""
        return float(np.nan_to_num(self.logits[candidate]))

    def score(self, candidate: int) -> float | None:
        """log p + noise, of which the largest wins; ``None`` for a token that the sampler excludes."""
        p = distributions(self._row(self.logits), self.sampling)
        found = np.flatnonzero((p.ids[0] == candidate) & np.isfinite(p.log_probs[0]))
        if not len(found):
            return None
        noise = gumbel(self.seed, [len(self.history)], np.array([[candidate]]))
        return float(p.log_probs[0, found[0]] + noise[0, 0])

    def could_win(self, candidate: int, rounding: float) -> bool:
        """Whether moving each logit by at most ``rounding`` makes ``candidate`` the choice.

        Two extreme moves are tried: the candidate up and all others down; and all up but those that beat it, which may
        push these over the edge of top-k, top-p or min-p.
        """
        keys = self._keys()
        others_down = np.full_like(self.logits, -rounding)
        better_down = np.where(keys > keys[candidate], -rounding, rounding).astype(np.float32)
        for move in (others_down, better_down):
            move[candidate] = rounding
            if next(sample(self._row(self.logits + move), self.sampling, self.seed, len(self.history))) == candidate:
                return True
        return False

    def _keys(self) -> Floats:
        """Of the tokens that the sampler keeps, the one with the largest key wins. Shape (vocabulary,)."""
        penalized: Floats = self._penalized(self.logits)[0]
        if self.allowed is not None:
            penalized = np.where(self.allowed, penalized, np.float32(-np.inf))
        if self.sampling.temperature == 0:
            return penalized
        noise = gumbel(self.seed, [len(self.history)], np.arange(len(penalized))[None])[0]
        return np.asarray(penalized / self.sampling.temperature + noise, np.float32)

    def _row(self, logits: Floats) -> Logits:
        penalized = self._penalized(logits)
        return penalized if self.allowed is None else masked(penalized, self.allowed)

    def _penalized(self, logits: Floats) -> Floats:
        return penalize_rows(logits[None], text_of(self.history), [], self.sampling)
