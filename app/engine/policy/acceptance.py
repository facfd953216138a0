"""How likely the target accepts a drafter's next token, learned from the recent past and the drafter's confidence."""

from __future__ import annotations

import copy
import math
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from app.protocol.events import KindFigures
from app.protocol.options import AcceptRule, DrafterName, ProposalMethod, TextKind
from app.protocol.statistics import sums_by_kind
from app.storage.json_file import KeyedFile

LEAD_EDGES = (0.25, 0.5, 1.0, 1.5, 2.25, 3.25, 4.5, 6.0)
"""Bins for a draft model's confidence: the lead of its token over the runner-up, in nats."""
MATCH_EDGES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
"""Bins for an n-gram's confidence: the length of its match, 12 and more together, less where matches differ."""
_POSITION_GROUPS = (0, 1, 2, 2, 3, 3, 3, 3, 4)
"""Positions in a draft that are counted together; the last group is open-ended."""
_HORIZONS = (5.0, 20.0, 400.0)
"""Numbers of judged tokens that count as the recent past; the one that has predicted best recently weighs most."""
_WEIGHTS = (0.1, 0.3, 1.0)
"""The weight of a horizon before it has proved anything, because most text is steady."""
_LONG = 1.0 - 1.0 / 800
_BIN = 1.0 - 1.0 / 80
_POSITION = 1.0 - 1.0 / 600
"""The factor by which a count decays with each further judged token (of its bin, of its position)."""
_ODDS_PRIOR, _STEADY, _STEADIEST = 3.0, (0.0, 1.0, 4.0), 50.0
"""How many judged tokens it is worth, over each horizon, that everything is as expected: at least so many, more the
closer a rate is to 1, because few tokens say little there about its odds, and at most so many."""
_TRUST = 0.99
"""The factor by which a horizon's record (log-likelihood) decays with each further judged token."""
_BIN_PRIOR = 4.0
_POSITION_PRIOR = 30.0
"""The number of judged tokens a prior is worth."""
_START_WEIGHT = 30.0
"""The maximum weight of what was learned from an earlier answer, because this one may be of another kind."""
_LEAST, _MOST = 0.005, 0.995
_MODEL_SHAPE = (0.43, 0.5, 0.61, 0.745, 0.86, 0.93, 0.973, 0.98, 0.98)
"""Acceptance by lead, before any was judged: the average of a good and a weak draft model of one target, nearly the
same at temperatures 0 and 0.8, moved toward the mean by a tenth of its log odds: confidence may say less elsewhere."""
_NGRAM_SHAPE = (0.1, 0.2, 0.3, 0.45, 0.55, 0.62, 0.7, 0.76, 0.8, 0.83, 0.86, 0.88, 0.93)
"""Acceptance by match length, before any was judged: between SmolLM2's answers and edits of code."""


Rate = Annotated[float, Meta(ge=0.0, le=1.0)]
Weight = Annotated[float, Meta(ge=0.0)]
"""The number of judged tokens something is worth."""


@dataclass(frozen=True)
class RatePrior:
    """What is known about a drafter before it is tried here."""

    rate: Rate
    """Acceptance rate."""
    weight: Annotated[float, Meta(gt=0.0)]
    """The number of judged tokens it is worth."""
    calibration: tuple[tuple[Rate, Weight], ...] = ()
    """Acceptance rate and weight for each bin of confidence; empty if unknown."""


_MODEL_PRIOR = RatePrior(rate=0.7, weight=4.0)
_NGRAM_PRIOR = RatePrior(rate=0.6, weight=4.0)
MATCH = "ngram"
"""The rate, in stored priors, of a drafter whose drafts cost nothing: its confidence is the length of a match."""
STARTING_POINTS = {
    "coupled": (LEAD_EDGES, _MODEL_PRIOR, _MODEL_SHAPE),
    "greedy": (LEAD_EDGES, _MODEL_PRIOR, _MODEL_SHAPE),
    MATCH: (MATCH_EDGES, _NGRAM_PRIOR, _NGRAM_SHAPE),
}
"""Bins, prior and shape of each estimate: for both proposal methods of a draft model, and for free drafts."""


@dataclass(frozen=True)
class AcceptancePrior:
    """What is known about a drafter in one kind of text, as the next answer's starting point."""

    rates: Mapping[str, RatePrior] = field(default_factory=dict)
    """Of a drafter whose drafts are free (`MATCH`), or of both methods of another (``coupled``, ``greedy``)."""
    greedy_advantage: Annotated[float, Meta(ge=-1.0, le=1.0)] = 0.0
    """How many more ``greedy`` proposals are accepted than ``coupled`` ones, as a share of the judged tokens."""
    greedy_advantage_weight: Weight = 0.0
    """The number of judged tokens that is worth."""

    def weight(self) -> float:
        """The number of judged tokens all of it is worth."""
        return sum(known.weight for known in self.rates.values())


Priors = Mapping[DrafterName, Mapping[TextKind, AcceptancePrior]]


class Deviation:
    """How far the recent past is off from an expectation, as a factor on the odds of acceptance.

    Short horizons react fast, long ones are steady. They are weighted by how well each predicted the last tokens:
    steady text gets a steady estimate, and a change of text is noticed within a few tokens.
    """

    def __init__(self) -> None:
        self._keep = [1.0 - 1.0 / horizon for horizon in _HORIZONS]
        self._expected = [0.0] * len(_HORIZONS)
        self._hits = [0.0] * len(_HORIZONS)
        self._counts = [0.0] * len(_HORIZONS)
        self._factors = [1.0] * len(_HORIZONS)
        self._records = [0.0] * len(_HORIZONS)
        self.factor = 1.0
        """A factor on the odds; 1 while everything is as expected."""

    def judge(self, expected: float, value: float) -> None:
        """A token that was expected to be accepted with the chance ``expected`` was accepted (1) or not (0)."""
        odds, records = expected / (1.0 - expected), self._records
        for i, keep in enumerate(self._keep):
            mine = odds * self._factors[i]
            records[i] = (records[i] + math.log((mine if value else 1.0) / (1.0 + mine))) * _TRUST
            self._expected[i] = due = self._expected[i] * keep + expected
            self._hits[i] = hits = self._hits[i] * keep + value
            self._counts[i] = count = self._counts[i] * keep + 1.0
            usual, ratio = due / count, (count - due) / due
            high = max(usual, 0.5)
            k = min(max(_ODDS_PRIOR, _STEADY[i] / (high * (1.0 - high))), _STEADIEST)
            self._factors[i] = (hits + k * usual) / (count - hits + k * (1.0 - usual)) * ratio
        best = max(records)
        weights = total = 0.0
        for i, factor in enumerate(self._factors):
            weight = _WEIGHTS[i] * math.exp(records[i] - best)
            weights += weight
            total += weight * math.log(factor)
        self.factor = math.exp(total / weights)


class AcceptanceEstimate:
    """The acceptance of a drafter, with one of its proposal methods.

    A slow estimate remembers how good the drafter is, a fast one follows the text. Confidence is calibrated by hit
    counts in bins that forget slowly, which the recent past corrects by a ratio of odds: it decides alone if confidence
    says nothing. Positions are corrected in the same way.
    """

    def __init__(self, edges: Sequence[float], prior: RatePrior, shape: Sequence[float]) -> None:
        """``shape``: the acceptance rate of each bin before anything was judged."""
        self._edges = edges
        bins = len(edges) + 1
        self._begin(prior)
        calibration = prior.calibration if len(prior.calibration) == bins else ((0.0, 0.0),) * bins
        self._counts = [min(worth, _START_WEIGHT) for _, worth in calibration]
        self._hits = [rate * count for (rate, _), count in zip(calibration, self._counts, strict=True)]
        self._shape = shape
        self._positions = [[0.0, 0.0, 0.0] for _ in range(_POSITION_GROUPS[-1] + 1)]
        self._by_position = [1.0] * (_POSITION_GROUPS[-1] + 1)
        self._odds = [1.0] * bins
        self._stale = 0
        self.judged = 0
        self._calibrate()

    @property
    def weight(self) -> float:
        """The number of judged tokens the estimate is based on, including those of earlier answers."""
        return self._long[1]

    @property
    def long_rate(self) -> float:
        """The acceptance rate over the last few hundred judged tokens."""
        return _clipped(self._long[0] / self._long[1])

    @property
    def rate(self) -> float:
        """The expected acceptance rate of the next token, regardless of its confidence."""
        odds = _odds(self.long_rate) * self._recent.factor
        return odds / (1.0 + odds)

    def chances(self, length: int, *, long: bool = False) -> list[float]:
        """Expected acceptance of positions 0…``length`` − 1, each given that those before it are accepted.

        ``long``: from the last few hundred judged tokens instead of the last few.
        """
        odds = _odds(self.long_rate if long else self.rate)
        by_position = [odds * factor for factor in self._by_position]
        by_position = [value / (1.0 + value) for value in by_position]
        last = len(_POSITION_GROUPS) - 1
        return [by_position[_POSITION_GROUPS[min(i, last)]] for i in range(length)]

    def chance(self, confidence: float, position: int) -> float:
        """Expected acceptance of a token of this ``confidence``, given that those before it are accepted."""
        group = _POSITION_GROUPS[position] if position < len(_POSITION_GROUPS) else _POSITION_GROUPS[-1]
        odds = self._odds[bisect_right(self._edges, confidence)] * self._by_position[group]
        odds *= self._recent_calibrated.factor
        return odds / (1.0 + odds)

    def judge(self, hit: bool, position: int, confidence: float | None) -> None:
        """The target judged a token: accepted or not. ``confidence`` is ``None`` if there is none."""
        value = 1.0 if hit else 0.0
        if confidence is not None:
            self._judge_confidence(value, position, confidence)
        self._recent.judge(self.long_rate, value)
        self._long[0] = self._long[0] * _LONG + value
        self._long[1] = self._long[1] * _LONG + 1.0
        self.judged += 1

    def _judge_confidence(self, value: float, position: int, confidence: float) -> None:
        group = _POSITION_GROUPS[position] if position < len(_POSITION_GROUPS) else _POSITION_GROUPS[-1]
        place = bisect_right(self._edges, confidence)
        recent = self._recent_calibrated.factor
        odds = self._odds[place]
        by_position = self._positions[group]
        anywhere = odds * recent
        by_position[0] = by_position[0] * _POSITION + anywhere / (1.0 + anywhere)
        by_position[1] = by_position[1] * _POSITION + value
        by_position[2] = by_position[2] * _POSITION + 1.0
        calibrated = odds * self._by_position[group]
        self._recent_calibrated.judge(calibrated / (1.0 + calibrated), value)
        self._hits[place] = self._hits[place] * _BIN + value
        self._counts[place] = self._counts[place] * _BIN + 1.0
        self._stale += 1
        if self._stale * 4 >= min(self.judged, 64):  # often in the beginning
            self._calibrate()

    def _calibrate(self) -> None:
        self._stale = 0
        rates = self._expected_rates()
        raw = [
            (hits + _BIN_PRIOR * rate) / (count + _BIN_PRIOR)
            for hits, count, rate in zip(self._hits, self._counts, rates, strict=True)
        ]
        weights = [count + _BIN_PRIOR for count in self._counts]
        self._odds = [_odds(rate) for rate in _rising(raw, weights)]
        k = _POSITION_PRIOR
        self._by_position = [
            (hits + k) * (count - expected + k) / ((expected + k) * (count - hits + k))
            for expected, hits, count in self._positions
        ]

    def _expected_rates(self) -> Sequence[float]:
        """For each bin, before anything was judged in it. Those of a draft model follow the other bins: where it is
        right more often than usual, its doubtful tokens are, too.
        """
        if self._edges is MATCH_EDGES:
            return self._shape
        times = _odds(self.long_rate) / _odds(_MODEL_PRIOR.rate)
        odds = [times * _odds(rate) for rate in self._shape]
        return [one / (1.0 + one) for one in odds]

    def forked(self, prior: RatePrior | None) -> AcceptanceEstimate:
        """The same expectations, at the rate of ``prior`` if there is one, which develop separately from here. What
        confidence and position mean depends on the drafter, not on the text: both go on learning that together.
        """
        fork = copy.deepcopy(self)
        fork._hits, fork._counts, fork._positions = self._hits, self._counts, self._positions
        fork.judged = 0
        if prior:
            fork._begin(prior)
        return fork

    def _begin(self, prior: RatePrior) -> None:
        weight = min(prior.weight, _START_WEIGHT)
        self._long = [weight * prior.rate, weight]
        self._recent = Deviation()
        self._recent_calibrated = Deviation()

    def snapshot(self) -> RatePrior:
        """What was learned, for the next answer."""
        calibration = tuple(
            (hits / count if count else 0.0, count) for hits, count in zip(self._hits, self._counts, strict=True)
        )
        return RatePrior(self.long_rate, self._long[1], calibration)


class MethodChoice:
    """Chooses how a draft model proposes. Both methods are judged whenever one is, so nothing has to be tried."""

    _FORGET = 1.0 - 1.0 / 1000
    _LEAST_WEIGHT, _MOST_WEIGHT = 25.0, 200.0
    """How many judged tokens an initial lead is worth: another temperature may reverse it."""
    _MARGIN = 0.005
    """The lead, as a share of the judged tokens, from which the choice changes."""

    def __init__(self, greedy_advantage: float, weight: float = 0.0) -> None:
        """``greedy_advantage``: learned in earlier answers; ``weight``: the number of judged tokens in them."""
        self._start = greedy_advantage
        self._known = min(weight, self._MOST_WEIGHT)
        self._difference = self._count = 0.0
        self.best: ProposalMethod = "coupled"
        self._settle()

    @property
    def greedy_advantage(self) -> float:
        """How many more ``greedy`` proposals are accepted, as a share of the judged tokens."""
        return self._start + (self._difference - self._count * self._start) / (
            self._count + max(self._known, self._LEAST_WEIGHT)
        )

    @property
    def weight(self) -> float:
        """The number of judged tokens that lead is worth."""
        return self._known + self._count

    def judge(self, coupled: bool, greedy: bool) -> None:
        """The target judged what both methods would have proposed at one position."""
        self._difference = self._difference * self._FORGET + (greedy - coupled)
        self._count = self._count * self._FORGET + 1.0
        self._settle()

    def _settle(self) -> None:
        if self.greedy_advantage > self._MARGIN:
            self.best = "greedy"
        elif self.greedy_advantage < -self._MARGIN:
            self.best = "coupled"


def _clipped(rate: float) -> float:
    return min(max(rate, _LEAST), _MOST)


def _odds(rate: float) -> float:
    rate = _clipped(rate)
    return rate / (1.0 - rate)


def _rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The weighted least-squares fit that never falls (pool adjacent violators)."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, size = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            before, its_weight, its_size = blocks.pop()
            mean = (before * its_weight + mean * total) / (its_weight + total)
            total += its_weight
            size += its_size
        blocks.append((mean, total, size))
    return [mean for mean, _, size in blocks for _ in range(size)]


_HALVED_AT = 20_000
"""After this many tokens of a kind its counters are halved, so that recent answers weigh more."""
_SAVE_SECONDS = 30.0
"""At most this often: a crash may lose a little of what was learned, but the file isn't written all the time."""


class Remembered(msgspec.Struct, frozen=True):
    """What is stored. Raises `ValueError` for impossible counters."""

    kinds: list[KindFigures] = []
    priors: dict[AcceptRule, dict[DrafterName, dict[TextKind, AcceptancePrior]]] = {}

    def __post_init__(self) -> None:
        names = [one.kind for one in self.kinds]
        if len(set(names)) < len(names) or not all(map(_is_sound, self.kinds)):
            raise ValueError("the counters of a pair are inconsistent")


def history_file(path: Path | None) -> KeyedFile[Remembered]:
    """The pairs' histories at ``path``; nothing is stored without one."""
    return KeyedFile(path, Remembered, version=3)


class PairHistory:
    """Counters and acceptance of one pair."""

    def __init__(self, store: KeyedFile[Remembered], key: str) -> None:
        """Starts with what ``store`` has for ``key``."""
        self._store = store
        self._key = key
        self._known = store.get(key) or Remembered()
        self._private: dict[AcceptRule, Priors] = {}
        """What was learned in private answers since the pair was loaded. It is never stored."""
        self._is_saved = True
        self._saved_at = -math.inf

    def figures(self) -> list[KindFigures]:
        """The results of drafting, by kind of text."""
        return list(self._known.kinds)

    def priors(self, rule: AcceptRule, *, private: bool = False) -> Priors:
        """How often draft tokens are accepted under ``rule``; for a ``private`` answer as private ones had it."""
        known = self._known.priors.get(rule, {})
        return self._private.get(rule, known) if private else known

    def add(self, kinds: Iterable[KindFigures], rule: AcceptRule, priors: Priors, *, private: bool = False) -> None:
        """Add an answer with a draft, and what the policy knows after it. A ``private`` one is neither counted nor
        stored; what it taught is only for the next private ones."""
        if private:
            self._private[rule] = priors
            return
        sums = sums_by_kind(self._known.kinds, kinds)
        counters = [_halved(one) if one.tokens > _HALVED_AT else one for one in sums]
        by_drafter = {name: dict(by_kind) for name, by_kind in priors.items()}
        self._known = Remembered(counters, {**self._known.priors, rule: by_drafter})
        self._is_saved = False

    def save_now_and_then(self) -> None:
        """Store what is known, unless that was done a moment ago."""
        if time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Store what is known now."""
        if not self._is_saved:
            self._is_saved, self._saved_at = True, time.monotonic()
            self._store.put(self._key, self._known)


def _halved(figures: KindFigures) -> KindFigures:
    return msgspec.structs.replace(
        figures,
        tokens=figures.tokens // 2,
        seconds=figures.seconds / 2,
        tested=figures.tested // 2,
        accepted=figures.accepted // 2,
        verify_passes=figures.verify_passes // 2,
    )


def _is_sound(one: KindFigures) -> bool:
    counts = (one.tokens, one.tested, one.verify_passes)
    return 0 <= one.accepted <= one.tested and min(counts) >= 0 and one.seconds >= 0.0
