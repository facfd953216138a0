"""How the policy chooses between a draft model and an MTP head. Simulated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.engine.drafters import Proposal
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs, DraftCosts
from app.engine.policy.policy import Outcome, Situation
from app.protocol.options import DrafterName
from tests.support.matrix import in_proof
from tests.support.simulator import (
    LIMIT,
    Run,
    Surroundings,
    Trace,
    curves,
    run_fixed,
    run_policy,
    trace,
    with_copies,
    with_kinds,
)

CURVES = curves()
USUAL = Surroundings(catch_up=0.1)


def costs_of(curve: str, model: float = 0.1, head: float = 0.1) -> Costs:
    """``model`` and ``head``: what a token of theirs costs, in plain passes."""
    verify = CURVES[curve].verify
    return Costs(verify, {"model": DraftCosts(model * verify[1]), "mtp": DraftCosts(head * verify[1])})


def run(costs: Costs, model: Trace, head: Trace, around: Surroundings = USUAL, fixed: int | None = None) -> Run:
    policy = AutoPolicy(costs, propose="coupled", fixed=fixed)
    return run_policy(policy, costs, model, 0, around, ("model", "mtp"), {"mtp": head})


def alone(costs: Costs, text: Trace, name: DrafterName, around: Surroundings = USUAL) -> float:
    """Tokens per second with only this drafter."""
    costs = replace(costs, drafts={name: costs.drafts[name]})
    return run_policy(AutoPolicy(costs, propose="coupled"), costs, text, 0, around, (name,)).speed


@pytest.mark.parametrize("curve", ["600 M F16", *in_proof(["flat"])])
@pytest.mark.parametrize(
    ("model", "head"), [(0.9, 0.5), (0.02, 0.8), *in_proof([(0.5, 0.9), (0.8, 0.02)])], ids=lambda mean: f"{mean:.2f}"
)
def test_the_better_one_drafts_and_trying_the_other_costs_little(curve: str, model: float, head: float) -> None:
    costs = costs_of(curve)
    texts = trace((model,), length=2000), trace((head,), length=2000, seed=7)
    outcome = run(costs, *texts)
    best = max(alone(costs, texts[0], "model"), alone(costs, texts[1], "mtp"))
    assert outcome.speed >= 0.97 * best
    assert (outcome.by_head > 0.9 * outcome.rounds) == (head > model)


def test_two_that_are_useless_cost_next_to_nothing() -> None:
    for curve in ("600 M F16", "flat"):
        text = trace((0.02,), length=2000)
        costs = costs_of(curve)
        assert run(costs, text, trace((0.02,), length=2000, seed=7)).speed >= 0.97 * run_fixed(costs, text, 0)


def test_each_drafts_where_it_is_right() -> None:
    """Neither kind of text is told; one of them is in charge of 500 tokens, then the other."""
    costs = costs_of("flat")
    texts = (
        trace((0.95, 0.1), length=3000, segment=500),
        trace((0.1, 0.95), length=3000, segment=500, seed=7),
    )
    outcome = run(costs, *texts)
    assert outcome.speed >= 1.2 * max(alone(costs, texts[0], "model"), alone(costs, texts[1], "mtp"))
    assert 0.2 < outcome.by_head / outcome.rounds < 0.8


def test_one_that_would_have_to_catch_up_for_long_is_left_alone() -> None:
    """A token it has missed costs as much as one it drafts."""
    costs = costs_of("600 M F16", 0.1, 0.3)
    model, head = trace((0.8,), length=1500), trace((0.8,), length=1500, seed=7)
    outcome = run(costs, model, head, Surroundings(catch_up=1.0))
    assert outcome.by_head <= 5
    assert outcome.speed >= 0.95 * alone(costs, model, "model", Surroundings(catch_up=1.0))


def test_the_other_catches_up_while_the_better_one_drafts() -> None:
    """Behind a long prompt, the text doesn't slow down to plain decoding for that."""
    costs = costs_of("flat", 0.05, 0.05)
    policy = AutoPolicy(costs, propose="coupled")
    for number in range(400):
        situation = Situation(3000 + 5 * number, 300, {"model": 0, "mtp": 1500})
        decision = policy.decide(situation)
        if decision.catches_up:
            break
        draft = Proposal([7] * decision.length, None, [1.0] * decision.length)
        seconds = (0.001 * decision.length, costs.verify[decision.length + 1], 0.0001)
        policy.learn(Outcome(situation, decision, draft, decision.length, 3 if decision.length > 3 else 0, 8, *seconds))
    assert (decision.drafter, decision.catches_up) == ("model", "mtp") and 0 < decision.catch_up < 1500


@pytest.mark.parametrize("fixed", [None, 6])
def test_neither_drafts_more_than_it_can(fixed: int | None) -> None:
    costs = costs_of("flat", 0.5, 0.01)
    policy = AutoPolicy(costs, propose="coupled", longest={"mtp": 2}, fixed=fixed)
    both = policy.decide(Situation(10, LIMIT, {"model": 0, "mtp": 0}))
    assert (both.drafter, both.length) == ("mtp", 2)
    model = policy.decide(Situation(10, LIMIT, {"model": 0}))
    assert (model.drafter, model.length) == ("model", fixed or LIMIT)
    assert len(policy.learned().curve) in (0, 3)


@pytest.mark.parametrize("head", [0.3, 0.9])
def test_with_a_fixed_length_the_better_one_is_found_too(head: float) -> None:
    costs = costs_of("flat", 0.05, 0.05)
    outcome = run(costs, trace((0.6,), length=2000), trace((head,), length=2000, seed=7), fixed=4)
    assert (outcome.by_head > 0.8 * outcome.rounds) == (head > 0.6)
    assert outcome.longest == 4


def test_what_is_known_of_a_kind_of_text_chooses_at_once() -> None:
    costs = costs_of("600 M F16")
    model, head = trace((0.95, 0.1), length=2000, segment=100), trace((0.1, 0.95), length=2000, segment=100, seed=7)
    outcome = run(costs, with_kinds(model, "code", "prose", segment=100), head)
    assert outcome.speed >= 1.15 * max(alone(costs, model, "model"), alone(costs, head, "mtp"))


@pytest.mark.parametrize("count", [3, *in_proof([1, 2])])
def test_worthless_ones_beside_a_good_one_are_hardly_tried(count: int) -> None:
    """In a second answer, by which they are known: each costs less than 1 % of the time."""
    costs = costs_of("600 M F16")
    names: list[DrafterName] = ["mtp", "eagle3", "medusa"]
    worthless = {name: trace((0.03,), length=1000, seed=7 + i) for i, name in enumerate(names[:count])}
    costs = Costs(costs.verify, dict.fromkeys(("model", *worthless), replace(costs.drafts["model"], catch_up=0.001)))
    first = AutoPolicy(costs, propose="coupled")
    text = trace((0.8,), length=1000)
    run_policy(first, costs, text, 0, USUAL, list(costs.drafts), worthless)
    second = AutoPolicy(costs, propose="coupled", start=first.learned().priors)
    outcome = run_policy(second, costs, text, 1, USUAL, list(costs.drafts), worthless)
    assert outcome.tried <= 0.1 * outcome.rounds
    assert outcome.speed >= (1.0 - 0.01 * count) * alone(costs, text, "model")


def test_one_that_gets_better_is_found_by_single_tokens_beside_the_others_drafts() -> None:
    costs = costs_of("600 M F16")
    head = trace((0.02, 0.95), length=2000, segment=1000, seed=7)
    outcome = run(costs, trace((0.5,), length=2000), head, Surroundings(catch_up=0.02))
    assert outcome.tried and outcome.by_head > 0.05 * outcome.rounds


def test_ngrams_that_continue_a_draft_add_to_it() -> None:
    costs = replace(costs_of("flat"), drafts={"mtp": DraftCosts(0.3 * CURVES["flat"].verify[1], 0.0001)})
    text = with_copies(trace((0.8,), length=2000))
    runs = []
    both: list[DrafterName] = ["mtp", "ngram"]
    for drafters, continues in ((both[:1], False), (both, False), (both, True)):
        policy = AutoPolicy(costs, propose="coupled", longest={"mtp": 2})
        runs.append(run_policy(policy, costs, text, 0, USUAL, drafters, continues=continues))
    assert runs[2].continued > 0
    assert runs[2].speed > runs[1].speed > runs[0].speed
