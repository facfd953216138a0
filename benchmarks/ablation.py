"""What each mechanism of the policy earns: each is taken out alone, and every simulated world is decoded again.

It belongs to `benchmarks.controller` (``--ablate``), and fills the table of ``benchmarks/notes/policy.md``.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import patch

from app.engine.policy import acceptance, auto, candidate, costs
from app.engine.policy.acceptance import AcceptanceEstimate, Deviation, MethodChoice
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.candidate import Candidate, ProbeBudget
from app.engine.policy.costs import CostModel, DraftCostModel, OtherCosts
from app.engine.policy.policy import Stopping
from benchmarks.policy_worlds import worlds

Speeds = Mapping[tuple[str, str], float]
"""Tokens per second by group and name of a world, the mean over its texts."""


def _nothing(*_: object) -> None:
    """Takes the place of what learns."""


def _best_length(self: Stopping, chances: Sequence[float]) -> bool:
    rates = [tokens / (self.seconds[n] + n * self.draft) for n, tokens in enumerate(self.expected)]
    return len(chances) < max(range(1, len(rates)), key=rates.__getitem__)


def _test_while_it_pays(self: Stopping, confidences: Sequence[float]) -> int:
    values, survival, total = [1.0 - self.rate * self.seconds[0]], 1.0, 1.0
    for i, confidence in enumerate(confidences):
        survival *= self.chance(confidence, i)
        total += survival
        values.append(total - self.rate * self.seconds[i + 1])
    return max(range(len(values)), key=values.__getitem__)


def _chance_by_position(self: AcceptanceEstimate, _confidence: float, position: int) -> float:
    return self.chances(position + 1)[position]


def _judge_what_was_tested(self: Candidate, outcome: Any, truth: Sequence[int], *, learns_methods: bool) -> None:
    _judge(self, outcome, truth[: outcome.tested], learns_methods=learns_methods)


_judge = Candidate.judge


def _one_rate(self: AcceptanceEstimate) -> list[float]:
    return [self.long_rate] * len(self._counts)


MECHANISMS: dict[str, Sequence[tuple[object, dict[str, object]]]] = {
    "stopping early by confidence": [(Stopping, {"goes_on": _best_length})],
    "testing less than was drafted": [(Stopping, {"count_worth_testing": lambda _, confidences: len(confidences)})],
    "looking past the tested tokens": [(Stopping, {"count_worth_testing": _test_while_it_pays})],
    "judging untested tokens": [(Candidate, {"judge": _judge_what_was_tested})],
    "confidence": [(AcceptanceEstimate, {"chance": _chance_by_position})],
    "acceptance by confidence of other pairs": [(AcceptanceEstimate, {"_expected_rates": _one_rate})],
    "acceptance that rises with confidence": [(acceptance, {"_rising": lambda values, _: values})],
    "acceptance by position": [(acceptance, {"_POSITION_PRIOR": 1e12})],
    "recent past": [(Deviation, {"judge": _nothing})],
    "three horizons": [(acceptance, {"_HORIZONS": (20.0,), "_WEIGHTS": (1.0,)})],
    "steadiness at high rates": [(acceptance, {"_STEADIEST": 3.0})],
    "caution about earlier answers": [(acceptance, {"_START_WEIGHT": 1e9})],
    "kinds of text": [(AutoPolicy, {"_enter": _nothing})],
    "choice of greedy or coupled": [(MethodChoice, {"_settle": _nothing})],
    "catch-up in the price of drafting": [(Candidate, {"debt": lambda *_: 0.0})],
    "trying a new draft model in any case": [(candidate, {"_TRIAL_SHARE": 0.0})],
    "catch-up in portions": [(auto, {"_LEAST_PORTION": 10**9})],
    "reluctance to pause": [(auto, {"_PAUSE": 1.0})],
    "rest in a pause": [(auto, {"_REST": 0})],
    "probes": [(ProbeBudget, {"is_due": lambda *_: False})],
    "repeating a probe that hit": [(candidate, {"_MOST_DEBT": -1e9})],
    "patience with failing probes": [(candidate, {"_PATIENCE": 1.0})],
    "pacing of probes": [(candidate, {"_PACE": 1.0})],
    "limit to what a probe loses": [(candidate, {"_LOSS_LIMIT": 1e9})],
    "timing a plain pass now and then": [(CostModel, {"plain_due": lambda *_: False})],
    "three plain passes against an outlier": [(costs, {"_CHECKS": 1})],
    "costs that follow the rounds": [(CostModel, {"_follow": _nothing})],
    "corrections of single widths": [(CostModel, {"_correct": _nothing})],
    "corrections that fade": [(costs, {"_FORGOTTEN": 0.0})],
    "limit to corrections": [(costs, {"_CORRECTION_LIMIT": 1e9})],
    "first drafts": [(costs, {"_DRAFT_LIMIT": 1.0})],
    "limit to outliers": [(costs, {"SURPRISE_LIMIT": 1e9}), (costs, {"SURPRISE_LIMIT": 1e9})],
    "first passes of a width": [(costs, {"_FIRST_RUNS": 10**9})],
    "following the draft model's cost": [(DraftCostModel, {"observe": _nothing})],
    "learning what catching up costs": [(DraftCostModel, {"observe_catch_up": _nothing})],
    "learning growth with the context": [(costs, {"LONG": 1e12}), (costs, {"LONG": 1e12})],
    "other time": [(OtherCosts, {"observe": _nothing})],
}


@contextlib.contextmanager
def without(name: str) -> Any:
    """The policy has no such mechanism while the block lasts."""
    with contextlib.ExitStack() as stack:
        for target, changes in MECHANISMS[name]:
            for attribute, value in changes.items():
                stack.enter_context(patch.object(target, attribute, value))
        yield


def measure(seeds: int, make: Callable[..., Any] = AutoPolicy) -> Speeds:
    """Decode every world with ``seeds`` texts."""
    found: dict[tuple[str, str], list[float]] = {}
    for world in worlds(seeds):
        found.setdefault((world.group, world.name), []).append(world.speed(make))
    return {key: statistics.fmean(speeds) for key, speeds in found.items()}


def groups_of(speeds: Speeds, reference: Speeds) -> dict[str, tuple[float, float, float]]:
    """``speeds`` ÷ ``reference`` by group: geometric mean, least and most."""
    ratios: dict[str, list[float]] = {}
    for (group, name), speed in speeds.items():
        ratios.setdefault(group, []).append(speed / reference[group, name])
    return {group: (_mean(some), min(some), max(some)) for group, some in ratios.items()}


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def ablate(seeds: int, names: Sequence[str] = ()) -> None:
    """Print what each mechanism earns: speed without it ÷ with it; the groups of worlds where that changes most."""
    reference = measure(seeds)
    print(f"{'without':42}{'all':>7}   the two groups it is worst for and the one it is best for: mean (least to most)")
    for name in names or MECHANISMS:
        with without(name):
            speeds = measure(seeds)
        groups = sorted(groups_of(speeds, reference).items(), key=lambda item: item[1][0])
        mean = _mean([speed / reference[key] for key, speed in speeds.items()])
        shown = [*groups[:2], groups[-1]]
        parts = [f"{group} {average:.3f} ({low:.2f} to {high:.2f})" for group, (average, low, high) in shown]
        print(f"{name:42}{mean:7.3f}   " + "; ".join(parts), flush=True)
