"""Simulated worlds that a policy is compared in: each is there because some mechanism of a policy is meant for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from app.engine.policy.acceptance import Priors
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Policy
from app.protocol.options import DrafterName, Propose
from tests.support.simulator import (
    DEAR,
    DEAR_CATCH_UP,
    TRACES,
    USUAL,
    Surroundings,
    Trace,
    curves,
    draft_changed,
    measured_at,
    run_policy,
    trace,
    with_copies,
    with_kinds,
)

CURVES = curves()
_SOME = ("27 M Q8_0", "600 M F16", "600 M Q8_0", "600 M Q4_K_M", "flat", "cliff at 9")
"""Curves of the worlds in which something else than the curve matters."""


@dataclass(frozen=True)
class World:
    """An answer of a text on a machine. Worlds of one ``group`` are there for the same reason."""

    group: str
    name: str
    true: Costs
    text: Trace
    seed: int
    told: Costs | None = None
    """What was measured, where that is not true."""
    around: Surroundings = USUAL
    propose: Propose = "coupled"
    drafters: tuple[DrafterName, ...] = ("model", "ngram")
    before: Trace | None = None
    """The text of an earlier answer."""

    def speed(self, make: Callable[..., Policy] = AutoPolicy) -> float:
        """Tokens per second of a policy that ``make`` makes."""
        costs, start = self.told or self.true, None
        if self.before:
            earlier = self._policy(make, costs)
            run_policy(earlier, self.true, self.before, self.seed + 50, self.around, self.drafters)
            learned = earlier.learned()
            costs, start = learned.costs, learned.priors
        policy = self._policy(make, costs, start)
        return run_policy(policy, self.true, self.text, self.seed, self.around, self.drafters).speed

    def _policy(self, make: Callable[..., Policy], costs: Costs, start: Priors | None = None) -> Policy:
        return make(costs, propose=self.propose, start=start, samples=self.around.samples)


@cache
def _text(kind: str | tuple[float, ...], length: int, seed: int, segment: int = 50, lead: float = 0.0) -> Trace:
    means = TRACES[kind] if isinstance(kind, str) else kind
    return trace(means, length=length, segment=segment, seed=seed, greedy_lead=lead)


def worlds(seeds: int) -> Iterator[World]:
    """Every world with ``seeds`` texts."""
    for seed in range(seeds):
        yield from _steady(seed)
        for curve in _SOME:
            for make in (_of_an_answer, _of_two_answers, _measured_wrongly, _changing, _with_kinds):
                yield from make(curve, CURVES[curve], seed)
        for make_of_seed in (_long_contexts, _with_ngrams, _with_methods, _large_drafts, _long_prompts):
            yield from make_of_seed(seed)


def _steady(seed: int) -> Iterator[World]:
    for curve, costs in CURVES.items():
        for kind in TRACES:
            yield World("steady text", f"{curve}, {kind}", costs, _text(kind, 1500, seed), seed)
            useless = trace(TRACES[kind], length=1500, informative=False, seed=seed)
            yield World("confidence is useless", f"{curve}, {kind}", costs, useless, seed)


def _of_an_answer(curve: str, costs: Costs, seed: int) -> Iterator[World]:
    for kind in TRACES:
        name, text = f"{curve}, {kind}", _text(kind, 1000, seed)
        yield World("first 200 tokens of a new pair", name, costs, _text(kind, 200, seed + 10), seed)
        yield World("four widths measured", name, costs, text, seed, told=measured_at(costs, 1, 2, 6, 17))
        yield World("sampled drafts", name, costs, text, seed, around=Surroundings(samples=True))
        yield World("each row takes time", name, costs, text, seed, around=Surroundings(rows=0.1))


def _of_two_answers(curve: str, costs: Costs, seed: int) -> Iterator[World]:
    pairs = [("0.95", "worthless"), ("worthless", "0.95")]
    for first, then in [*pairs, *((kind, kind) for kind in ("0.5", "0.7", "0.95", "code/prose"))]:
        before, text = _text(first, 600, seed + 20), _text(then, 200, seed + 10)
        yield World("second answer", f"{curve}, {first} then {then}", costs, text, seed, before=before)


def _measured_wrongly(curve: str, costs: Costs, seed: int) -> Iterator[World]:
    dear = draft_changed(costs, token=0.15 * costs.verify[1])
    for kind in ("0.3", "0.7", "0.9", "0.95", "worthless"):
        text, name = _text(kind, 1000, seed), f"{curve}, {kind}"
        for times in (0.7, 1.5):
            told = replace(costs, verify={**costs.verify, 1: times * costs.verify[1]})
            yield World("plain pass measured wrongly", f"{name}, {times}", costs, text, seed, told=told)
        told = replace(costs, verify={**costs.verify, 6: 5 * costs.verify[6]})
        yield World("width 6 measured wrongly", name, costs, text, seed, told=told)
        for true, times in ((costs, 5.0), (costs, 0.2), (dear, 0.25)):
            told = draft_changed(true, token=times * true.drafts["model"].token)
            yield World("draft measured wrongly", f"{name}, {times}", true, text, seed, told=told)


def _changing(curve: str, costs: Costs, seed: int) -> Iterator[World]:
    for first, then in ((0.95, 0.02), (0.02, 0.9), (0.9, 0.3), (0.3, 0.9)):
        text = _text((first, then), 1000, seed, segment=500)
        yield World("text changes in mid-answer", f"{curve}, {first} to {then}", costs, text, seed)
    dear = draft_changed(costs, token=0.15 * costs.verify[1])
    for kind in ("0.3", "0.7", "0.9", "0.95", "worthless"):
        for target, draft in ((2.0, 2.0), (2.0, 1.0), (1.0, 3.0)):
            name, around = f"{curve}, {kind}, {target} and {draft}", Surroundings(change=(300, target, draft))
            yield World("machine changes in mid-answer", name, dear, _text(kind, 1000, seed), seed, around=around)


def _with_kinds(curve: str, costs: Costs, seed: int) -> Iterator[World]:
    for informative in (True, False):
        text, earlier = (
            with_kinds(trace(TRACES["code/prose"], length=1000, informative=informative, seed=own), "code", "prose")
            for own in (seed, seed + 20)
        )
        name = f"{curve}, {'informative' if informative else 'useless'}"
        yield World("kind of text is told", f"{name}, new pair", costs, text, seed)
        yield World("kind of text is told", f"{name}, second answer", costs, text, seed, before=earlier)


def _long_contexts(seed: int) -> Iterator[World]:
    flat = CURVES["flat"]
    true = replace(flat, growth={1: 0.020 / 8000, 17: 17 * 0.020 / 8000})
    for kind in ("0.5", "0.7", "0.9", "0.95", "worthless"):
        text = _text(kind, 1000, seed)
        for length in (0, 2000, 8000):
            name, around = f"{kind}, {length}", Surroundings(length=length)
            yield World("context grows", f"{name}, measured", true, text, seed, around=around)
            yield World("context grows", f"{name}, not measured", true, text, seed, told=flat, around=around)
            yield World(
                "context grows, second answer",
                f"{name}, not measured",
                true,
                _text(kind, 400, seed),
                seed,
                told=flat,
                around=around,
                before=_text(kind, 600, seed + 20),
            )


def _with_ngrams(seed: int) -> Iterator[World]:
    text = _text((0.6,), 1000, seed)
    for curve, costs in CURVES.items():
        alone = Costs(costs.verify)
        copies = with_copies(text, seed=seed)
        yield World("n-grams alone", f"{curve}, copies", alone, copies, seed, drafters=("ngram",))
        yield World("n-grams alone", f"{curve}, no copies", alone, text, seed, drafters=("ngram",))
        for mean in (0.3, 0.6, 0.9):
            copies = with_copies(_text((mean,), 1000, seed), seed=seed)
            yield World("n-grams and a draft model", f"{curve}, {mean}", costs, copies, seed)
    for curve in ("600 M F16", "600 M Q8_0", "flat"):
        large = draft_changed(CURVES[curve], token=0.2 * CURVES[curve].verify[1])
        copies = with_copies(_text((0.8,), 1000, seed), seed=seed)
        for catch_up in (0.05, 0.25, 1.0):
            around = Surroundings(catch_up=catch_up)
            yield World("n-grams and a large draft model", f"{curve}, {catch_up}", large, copies, seed, around=around)


def _with_methods(seed: int) -> Iterator[World]:
    for curve in ("flat", "600 M Q8_0"):
        for lead in (-0.12, 0.0, 0.12):
            text = _text((0.75,), 1500, seed, lead=lead)
            yield World("greedy or coupled", f"{curve}, {lead}", CURVES[curve], text, seed, propose="auto")


def _large_drafts(seed: int) -> Iterator[World]:
    for kind in TRACES:
        for catch_up in (0.05, DEAR_CATCH_UP, 1.0):
            around = Surroundings(catch_up=catch_up)
            yield World("large draft model", f"{kind}, {catch_up}", DEAR, _text(kind, 1500, seed), seed, around=around)


def _long_prompts(seed: int) -> Iterator[World]:
    dear = draft_changed(DEAR, catch_up=DEAR_CATCH_UP * DEAR.drafts["model"].token)
    for kind in ("0.3", "0.7", "0.9", "0.95", "worthless", "code/prose"):
        for curve in ("600 M F16", "600 M Q4_K_M", "flat"):
            costs = draft_changed(CURVES[curve], catch_up=0.2 * CURVES[curve].drafts["model"].token)
            for missing, length in ((500, 60), (500, 600), (4000, 60), (4000, 600)):
                around = Surroundings(catch_up=0.2, missing=missing)
                name = f"{curve}, {kind}, {missing} before {length}"
                yield World("long prompt", name, costs, _text(kind, length, seed), seed, around=around)
        for missing in (200, 1000, 4000):
            around, text = Surroundings(catch_up=DEAR_CATCH_UP, missing=missing), _text(kind, 400, seed)
            name = f"{kind}, {missing}"
            yield World("long prompt, large draft model", name, DEAR, text, seed, told=dear, around=around)
            yield World("long prompt, large draft model", f"{name}, not measured", DEAR, text, seed, around=around)
