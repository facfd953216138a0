"""What it brings the policy to know the kind of text, and the curve it hands out. Simulated."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from app.engine.policy.acceptance import AcceptancePrior, Priors, RatePrior
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Decision, Situation
from app.protocol.options import TextKind
from tests.support.matrix import in_proof
from tests.support.simulator import LIMIT, TRACES, Trace, curves, run_fixed, run_policy, trace, with_kinds

CURVES = curves()


def a_policy(costs: Costs, start: Priors | None = None) -> AutoPolicy:
    return AutoPolicy(costs, propose="coupled", start=start)


def speed(costs: Costs, text: Trace, start: Priors | None = None) -> float:
    return run_policy(a_policy(costs, start), costs, text).speed


def learned(costs: Costs, text: Trace) -> Priors:
    teacher = a_policy(costs)
    run_policy(teacher, costs, text, seed=3)
    return teacher.learned().priors


def decide(policy: AutoPolicy, kind: TextKind = "prose") -> Decision:
    return policy.decide(Situation(length=10, most=LIMIT, missing={"model": 0}, kind=kind))


# ------------------------------------------------------------ kinds


@pytest.mark.parametrize(("curve", "least"), [("flat", 1.03), *in_proof([("27 M Q8_0", 1.05), ("600 M Q8_0", 1.0)])])
def test_knowing_where_code_begins_helps(curve: str, least: float) -> None:
    """Confidence tells nothing here, so that all there is to go by is the past, and the kind."""
    text = trace(TRACES["code/prose"], informative=False)
    known = with_kinds(text, "code", "prose")
    costs = CURVES[curve]
    assert speed(costs, known) >= least * speed(costs, text)


@pytest.mark.parametrize("kind", ["0.9", *in_proof(["0.5"])])
@pytest.mark.parametrize("curve", ["600 M F16", *in_proof(["27 M F16", "flat"])])
def test_kinds_that_say_nothing_hardly_hurt(curve: str, kind: str) -> None:
    costs, ratio = CURVES[curve], 1.0
    for seed in range(3):
        text = trace(TRACES[kind], length=2000, seed=seed)
        ratio *= speed(costs, with_kinds(text, "code", "prose", "list")) / speed(costs, text)
    assert ratio ** (1 / 3) > 0.97


def test_the_expectation_changes_at_once_with_the_kind() -> None:
    policy = a_policy(CURVES["flat"], learned_of({"prose": 0.02, "code": 0.95}))
    assert decide(policy).paused is not None
    assert decide(policy, "code").paused is None
    assert decide(policy).paused is not None


def learned_of(rates: Mapping[TextKind, float]) -> Priors:
    return {"model": {kind: AcceptancePrior({"coupled": RatePrior(rate, 300.0)}) for kind, rate in rates.items()}}


# ------------------------------------------------------------ the curve


@pytest.mark.parametrize("kind", TRACES)
@pytest.mark.parametrize("curve", ["flat", *in_proof(["27 M F16", "600 M Q8_0"])])
def test_the_curve_is_what_fixed_lengths_really_bring(curve: str, kind: str) -> None:
    costs = CURVES[curve]
    text = trace(TRACES[kind])
    policy = a_policy(costs)
    run_policy(policy, costs, with_kinds(text, "code", "prose"))
    speeds = policy.learned().curve
    assert len(speeds) == LIMIT + 1
    for length, expected in enumerate(speeds):
        assert expected == pytest.approx(run_fixed(costs, text, length), rel=0.12), length


@pytest.mark.parametrize("curve", ["27 M F16", "600 M Q4_K_M", "flat"])
def test_what_earlier_answers_taught_of_the_kinds_helps_short_ones(curve: str) -> None:
    costs = CURVES[curve]
    earlier = trace(TRACES["code/prose"], informative=False, seed=50)
    kinds = learned(costs, with_kinds(earlier, "code", "prose"))
    mixed = learned(costs, earlier)
    gain = 1.0
    for seed in range(6):
        text = trace(TRACES["code/prose"], length=200, informative=False, seed=seed)
        gain *= speed(costs, with_kinds(text, "code", "prose"), kinds) / speed(costs, text, mixed)
    assert gain ** (1 / 6) > 1.01
