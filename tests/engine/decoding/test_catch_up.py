"""The first token waits for no drafter, and a draft model that has missed much costs no more than it brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from app.engine.decoding.sampling import Floats
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.protocol.events import Round
from tests.support.generation import ask, run
from tests.support.matrix import in_proof
from tests.support.pairs import WARM, Loader, Pair
from tests.support.simulator import (
    DEAR,
    DEAR_CATCH_UP,
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


def test_under_rejection_a_fixed_length_is_drafted_in_every_round(
    engine: Engine, counting: Callable[[Costs], Counting]
) -> None:
    """The text depends on who drafted what: the same seed has to give the same text however much is cached."""
    counting(LATE)
    command = ask(LONG, sampling=WARM, accept="rejection", draft_length=4, max_tokens=40)
    first, again = run(engine, command), run(engine, command)
    assert first.token_ids == again.token_ids
    assert all(round_.drafted for round_ in first.rounds[1:-1])
