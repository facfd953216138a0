"""The first token waits for no drafter, and a draft model that has missed much costs no more than it brings."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence

import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host import pair_costs as measuring
from app.engine.host.engine import Engine
from app.engine.host.worker import Worker
from app.engine.policy.acceptance import AcceptancePrior, RatePrior
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Decision, Situation
from app.protocol.commands import Generate, Load
from app.protocol.events import Round, RoundsReceived
from app.protocol.options import LoadSettings
from tests.support.generation import GREEDY, ask, assert_same, run
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader, Pair
from tests.support.simulator import (
    DEAR,
    DEAR_CATCH_UP,
    LIMIT,
    Surroundings,
    curves,
    draft_changed,
    pair_costs,
    run_fixed,
    run_policy,
    trace,
)

CURVES = curves()
LONG = "word " * 150
CHEAP = pair_costs({1: 1.0, 17: 1.1}, 0.001, 0.0001)
"""Drafting pays, and so does catching up with a long prompt."""
LATE = pair_costs({1: 1.0, 17: 1.1}, 0.001, 1.0)
"""Drafting would pay if the draft model knew the prompt, which would take as long as writing all of it."""


DEAR_LATE = draft_changed(DEAR, catch_up=DEAR_CATCH_UP * DEAR.drafts["model"].token)


class Counting:
    """Counts what the real draft model decodes."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        assert engine._draft
        self.widths: list[int] = []
        self.outputs: list[int] = []
        self._decode = engine._draft.context.decode
        monkeypatch.setattr(engine._draft.context, "decode", self.decode)

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        self.widths.append(len(tokens))
        self.outputs.append(outputs)
        return self._decode(tokens, outputs)


@pytest.fixture
def counting(
    engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Costs], Counting]:
    """A loaded pair whose costs are known, whatever they are on a busy machine."""

    def start(costs: Costs) -> Counting:
        load(*random_pair, context_length=2048)
        assert engine._costs
        engine._costs.costs = costs
        return Counting(engine, monkeypatch)

    return start


@pytest.mark.parametrize(("length", "drafter"), [("auto", "chain"), (5, "model")])
def test_no_drafter_decodes_anything_before_the_first_token(
    engine: Engine, counting: Callable[[Costs], Counting], length: str | int, drafter: str
) -> None:
    counted = counting(CHEAP)
    before = None
    for event in engine.generate(ask(LONG, draft_length=length, drafter=drafter, max_tokens=60)):
        if isinstance(event, Round) and before is None:
            before = list(counted.widths)
            assert event.tokens == 1
    assert before == []
    assert sum(counted.widths) > 150  # later it did
    assert set(counted.outputs) == {1}  # llama.cpp returns before a GPU is done where no logits are asked for


@pytest.mark.parametrize("one_by_one", [False, True])
def test_after_full_acceptance_two_tokens_are_processed_in_the_order_that_was_measured(
    engine: Engine, load: Loader, random_pair: Pair, monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:
    """The target drafts for itself, so nearly everything is accepted."""
    costs = draft_changed(CHEAP, one_by_one=one_by_one)
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: costs)
    load(random_pair[0], random_pair[0])
    counted = Counting(engine, monkeypatch)
    plain = run(engine, ask("x", sampling=GREEDY, draft_length=0, max_tokens=60))
    command = ask("x", sampling=GREEDY, draft_length=3, max_tokens=60)
    drafted = run(engine, command)
    assert_same(engine, command, drafted, plain)
    full = sum(round_.accepted == round_.drafted == 3 for round_ in drafted.rounds)
    assert full > 5 and set(counted.widths[1:]) == ({1} if one_by_one else {1, 2})  # first comes the prompt
    assert set(counted.outputs) == {1}


@pytest.mark.parametrize("length", ["auto", 5])
def test_the_costs_are_those_of_the_contexts_length(
    engine: Engine, counting: Callable[[Costs], Counting], monkeypatch: pytest.MonkeyPatch, length: str | int
) -> None:
    counting(CHEAP)
    lengths = []
    decide = AutoPolicy.decide

    def noting(policy: AutoPolicy, situation: Situation) -> Decision:
        decision = decide(policy, situation)
        lengths.append(policy.costs.length)
        return decision

    monkeypatch.setattr(AutoPolicy, "decide", noting)
    answer = run(engine, ask(LONG, draft_length=length, max_tokens=60))
    figures = answer.finished.figures
    assert lengths[0] == figures.prompt_tokens + 1
    assert all(before < after for before, after in itertools.pairwise(lengths))
    assert figures.prompt_tokens < lengths[-1] < figures.prompt_tokens + figures.completion_tokens


@pytest.mark.parametrize(
    ("costs", "options"),
    [
        (CHEAP, {"draft_length": 0}),
        (CHEAP, {"draft_length": "auto", "max_tokens": 1}),
        (CHEAP, {"draft_length": 5, "max_tokens": 1}),
        (CHEAP, {"draft_length": "auto", "drafter": "ngram"}),
        (LATE, {"draft_length": "auto"}),
        (LATE, {"draft_length": "auto", "max_tokens": 8}),
    ],
    ids=["plain", "one token", "one token, fixed length", "n-grams only", "too late", "short and too late"],
)
def test_a_draft_model_that_is_not_asked_decodes_nothing(
    engine: Engine, counting: Callable[[Costs], Counting], costs: Costs, options: dict[str, object]
) -> None:
    counted = counting(costs)
    run(engine, ask(LONG, **{"max_tokens": 40, **options}))
    assert counted.widths == []


@pytest.mark.parametrize("length", ["auto", 5])
def test_a_long_prompt_is_caught_up_with_in_portions_and_once(
    engine: Engine, counting: Callable[[Costs], Counting], length: str | int
) -> None:
    costs = pair_costs({1: 1.0, 17: 1.1}, 0.001, 0.02)  # 75 tokens in 1.5 plain passes
    counted = counting(costs)
    plain = run(engine, ask(LONG, sampling=WARM, draft_length=0, max_tokens=120))
    drafted = run(engine, ask(LONG, sampling=WARM, draft_length=length, max_tokens=120))
    assert drafted.token_ids == plain.token_ids
    assert drafted.finished.figures.draft.accepted > 0
    first = next(i for i, round_ in enumerate(drafted.rounds) if round_.drafter)
    assert first >= 2 and all(round_.tokens == 1 for round_ in drafted.rounds[:first])
    figures = drafted.finished.figures
    proposed = sum(round_.drafted for round_ in drafted.rounds)
    assert sum(counted.widths) <= figures.prompt_tokens + figures.completion_tokens + proposed


def test_the_first_token_is_sent_before_any_drafter_decodes(random_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quickly it comes: rounds are sent together sixty times a second."""
    settings = LoadSettings(context_length=2048)
    load = Load(request=1, target=str(random_pair[0]), draft=str(random_pair[1]), settings=settings)
    command = Generate(request=2, messages=ask("hi").messages, draft_length=5, seed=1, max_tokens=20)
    again = Generate(request=3, messages=ask("hi").messages, draft_length=5, seed=1, max_tokens=20)
    worker = Worker(io.BytesIO(), io.BytesIO())
    events: list[object] = []
    monkeypatch.setattr(worker, "_send", events.append)
    worker._carry_out(1, load)
    assert worker._engine._draft
    drafter = worker._engine._draft.context
    decode = drafter.decode

    def decode_and_note(tokens: Sequence[int], outputs: int) -> Floats:
        events.append("draft")
        return decode(tokens, outputs)

    monkeypatch.setattr(drafter, "decode", decode_and_note)
    worker._carry_out(2, command)
    worker._carry_out(3, again)
    worker._engine.unload()
    for request in (2, 3):
        first = next(i for i, e in enumerate(events) if isinstance(e, RoundsReceived) and e.request == request)
        begun = next(i for i, e in enumerate(events) if getattr(e, "request", 0) == request)
        assert "draft" not in events[begun:first]
        assert "draft" in events[first:]


# ------------------------------------------------------------ what the policy decides, simulated


def a_policy(costs: Costs, **options: object) -> AutoPolicy:
    return AutoPolicy(costs, propose="coupled", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("curve", "behind"), [("600 M F16", 10_000), *in_proof([("600 M Q4_K_M", 5000), ("flat", 500)])]
)
def test_a_small_draft_catches_up_with_a_long_prompt_without_a_pause_in_the_text(curve: str, behind: int) -> None:
    costs = CURVES[curve]
    costs = draft_changed(costs, catch_up=0.2 * costs.drafts["model"].token)
    text = trace((0.9,), length=400)
    outcome = run_policy(a_policy(costs), costs, text, around=Surroundings(0.2, behind))
    assert outcome.caught_up > behind / 2
    assert outcome.longest_gap <= 3 * costs.verify[1]
    assert outcome.speed > 1.1 * run_fixed(costs, text, 0)


@pytest.mark.parametrize("kind", [0.95, *in_proof([0.0, 0.7])])
def test_a_large_draft_leaves_a_long_prompt_alone(kind: float) -> None:
    """To catch up with 3,000 tokens would take as long as 225 plain passes."""
    text = trace((kind,), length=300)
    outcome = run_policy(a_policy(DEAR_LATE), DEAR, text, around=Surroundings(DEAR_CATCH_UP, 3000))
    assert outcome.caught_up == 0 == outcome.drafted
    assert outcome.speed >= 0.999 * run_fixed(DEAR, text, 0)


def test_a_catch_up_that_turns_out_dear_is_given_up() -> None:
    text = trace((0.7,), length=300)
    outcome = run_policy(a_policy(DEAR), DEAR, text, around=Surroundings(DEAR_CATCH_UP, 3000))
    assert 0 < outcome.caught_up < 600
    assert outcome.speed >= 0.85 * run_fixed(DEAR, text, 0)


def test_the_less_there_is_left_to_write_the_less_it_pays_to_catch_up() -> None:
    costs = pair_costs({1: 0.02, 17: 0.0232}, 0.001, 0.0001)

    def catches_up(missing: int, left: int) -> bool:
        decision = a_policy(costs).decide(behind_prompt(missing, left))
        return decision.catch_up > 0 or decision.drafter == "model"

    assert catches_up(3000, 1000) and catches_up(3000, 100)
    assert not catches_up(3000, 10)
    assert catches_up(30, 10)
    assert not catches_up(200_000, 1000)


def behind_prompt(missing: int, left: int) -> Situation:
    return Situation(length=missing + 1, most=left, missing={"model": missing})


def test_what_is_needed_says_why_a_long_prompt_is_left_alone() -> None:
    paused = a_policy(DEAR).decide(behind_prompt(20_000, LIMIT)).paused
    assert paused is not None and paused.break_even_rate == 1.0 > paused.acceptance_rate > 0.5


def test_a_fixed_length_catches_up_in_portions_too_except_where_the_text_depends_on_it() -> None:
    situation = behind_prompt(10_000, 100)
    decision = a_policy(CURVES["flat"], fixed=4).decide(situation)
    assert decision.drafter is None and 0 < decision.catch_up < 10_000
    assert a_policy(CURVES["flat"], fixed=4, samples=True).decide(situation).drafter == "model"


def test_the_next_answer_goes_on_from_what_was_caught_up_with(
    engine: Engine, counting: Callable[[Costs], Counting]
) -> None:
    counted = counting(CHEAP)
    run(engine, ask(LONG, draft_length=5, max_tokens=60), cancel_after=3)
    held = sum(counted.widths)
    counted.widths.clear()
    answer = run(engine, ask(LONG, draft_length=5, max_tokens=60))
    figures = answer.finished.figures
    proposed = sum(round_.drafted for round_ in answer.rounds)
    assert sum(counted.widths) <= figures.prompt_tokens + figures.completion_tokens + proposed - held + 20


def test_while_drafting_is_paused_the_draft_model_sees_nothing_of_a_long_prompt(
    engine: Engine, counting: Callable[[Costs], Counting]
) -> None:
    counted = counting(pair_costs({1: 1.0, 17: 17.0}, 0.5, 0.1))
    assert engine._costs
    known = AcceptancePrior({"coupled": RatePrior(0.02, 300.0)})
    engine._costs.history.add([], "coupled", {"model": {"prose": known}})
    answer = run(engine, ask(LONG, draft_length="auto", max_tokens=40))
    assert counted.widths == []
    pauses = [round_.paused for round_ in answer.rounds[1:]]
    assert all(pause is not None and pause.acceptance_rate < 0.1 and pause.break_even_rate > 0.9 for pause in pauses)


def test_under_rejection_a_fixed_length_is_drafted_in_every_round(
    engine: Engine, counting: Callable[[Costs], Counting]
) -> None:
    """The text depends on who drafted what: the same seed has to give the same text however much is cached."""
    counting(LATE)
    command = ask(LONG, sampling=WARM, accept="rejection", draft_length=4, max_tokens=40)
    first, again = run(engine, command), run(engine, command)
    assert first.token_ids == again.token_ids
    assert all(round_.drafted for round_ in first.rounds[1:-1])


def test_the_text_is_streamed_greedily_as_without_a_draft(
    engine: Engine, counting: Callable[[Costs], Counting]
) -> None:
    counting(CHEAP)
    plain = run(engine, ask(LONG, sampling=GREEDY, draft_length=0, max_tokens=80))
    drafted = run(engine, ask(LONG, sampling=GREEDY, draft_length="auto", drafter="chain", max_tokens=80))
    assert drafted.token_ids == plain.token_ids
