"""The policy with several drafters, simulated (`benchmarks.controller --drafters`): needs no model.

- Heads of which each token is wrong with a fixed probability, and whose confidence says nothing, in answers of 200
  tokens: `auto` ÷ the best fixed length over all of these texts (0, which is no draft, is one of them).
- Worthless drafters beside others, in answers of 300 tokens: the speed with them ÷ without them.
- All drafters on kinds of text in which different ones are right: `auto` ÷ the best single drafter at its best fixed
  length, chosen in hindsight for each kind, and once for all kinds together.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from app.engine.policy.acceptance import Priors
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs, DraftCosts
from app.protocol.options import DrafterName, TextKind
from tests.support.simulator import (
    LIMIT,
    Machine,
    Surroundings,
    Trace,
    curves,
    run_fixed,
    run_policy,
    trace,
    with_copies,
)

CURVES = ("600 M F16", "600 M Q8_0", "600 M Q4_K_M", "flat", "MTP model, 16 layers", "MTP model, 32 layers")
WRONG = (0.1, 0.3, 0.6)
ANSWERS = 5
_TOKEN, _CATCH_UP = 0.1, 0.03
"""What a drafted token and one that was missed cost, in plain passes."""
_HEADS: Mapping[str, tuple[Mapping[int, float], float]] = {
    "MTP model, 16 layers": ({1: 1.0, 2: 1.78, 3: 1.9, 4: 1.99, 6: 2.34, 17: 5.2}, 0.18),
    "MTP model, 32 layers": ({1: 1.0, 2: 1.36, 3: 1.53, 4: 1.7, 6: 2.02, 17: 4.2}, 0.1),
}
"""The constructed models of `benchmarks.mtp`: passes by width and a drafted token, in plain passes."""


def costs_of(curve: str, *drafters: DrafterName) -> Costs:
    """A machine on which each of ``drafters`` costs the same."""
    if curve in _HEADS:
        passes, token = _HEADS[curve]
        verify = {width: 0.020 * times for width, times in passes.items()}
    else:
        verify, token = dict(curves()[curve].verify), _TOKEN
    each = DraftCosts(token * verify[1], _CATCH_UP * verify[1])
    return Costs(verify, dict.fromkeys(drafters, each))


@dataclass(frozen=True)
class Text:
    """A text, and where drafters are right that aren't the draft model."""

    main: Trace
    others: Mapping[DrafterName, Trace]
    seed: int


def answers(costs: Costs, drafters: Sequence[DrafterName], texts: Sequence[Text]) -> list[float]:
    """Seconds of answers one after the other, of a pair that is new: what one taught is known to the next."""
    start: Priors | None = None
    known, seconds, around = costs, [], Surroundings(catch_up=_CATCH_UP / _TOKEN)
    for text in texts:
        policy = AutoPolicy(known, propose="coupled", start=start)
        run = run_policy(policy, costs, text.main, text.seed, around, drafters, text.others, continues=True)
        learned = policy.learned()
        start, known = learned.priors, learned.costs
        seconds.append(run.seconds * text.main.length / run.tokens)
    return seconds


# ------------------------------------------------------------ heads


def head(curve: str, wrong: float, seeds: range) -> tuple[int, float, float]:
    """The best fixed length, and `auto` ÷ it in first answers and in later ones."""
    costs = costs_of(curve, "model")
    fixed, first, later = [0.0] * (LIMIT + 1), 0.0, 0.0
    for seed in seeds:
        numbers = range(100 * seed, 100 * seed + ANSWERS)
        texts = [trace((1.0 - wrong,), length=200, informative=False, seed=one) for one in numbers]
        each = answers(costs, ["model"], [Text(text, {}, one) for text, one in zip(texts, numbers, strict=True)])
        first, later = first + each[0], later + sum(each[1:])
        for length in range(LIMIT + 1):
            fixed[length] += sum(200 / run_fixed(costs, text, length) for text in texts) / ANSWERS
    best = min(range(LIMIT + 1), key=fixed.__getitem__)
    return best, fixed[best] / first, fixed[best] * (ANSWERS - 1) / later


# ------------------------------------------------------------ worthless ones

_WORTHLESS: tuple[DrafterName, ...] = ("mtp", "eagle3", "medusa")


def beside_worthless(curve: str, good: float, count: int, seeds: range) -> tuple[float, float]:
    """Speed with ``count`` worthless drafters ÷ without them, in first answers and in later ones. ``good``: how often
    the draft model beside them is right; 0: there is none, only n-grams."""
    bad, useful = _WORTHLESS[:count], list[DrafterName](["model"] if good else [])
    found = {}
    none: tuple[DrafterName, ...] = ()
    for drafters in (none, bad):
        first = later = 0.0
        for seed in seeds:
            each = answers(costs_of(curve, *useful, *drafters), [*useful, *drafters, "ngram"], [*_misled(seed, good)])
            first, later = first + each[0], later + sum(each[1:])
        found[drafters] = first, later
    return found[none][0] / found[bad][0], found[none][1] / found[bad][1]


def _misled(seed: int, good: float) -> Iterator[Text]:
    for number in range(1000 * seed, 1000 * seed + ANSWERS):
        main = with_copies(trace((good or 0.5,), length=300, seed=number), seed=number)
        others = {name: trace((0.03,), length=300, seed=number + 17 * i) for i, name in enumerate(_WORTHLESS, 1)}
        yield Text(main, others, number)


# ------------------------------------------------------------ all of them

KINDS: Mapping[str, tuple[Sequence[float], Sequence[float], bool]] = {
    "prose": ((0.6,), (0.5,), False),
    "code with copies": ((0.85,), (0.6,), True),
    "quotes": ((0.5,), (0.5,), True),
    "list, head worthless": ((0.05,), (0.7,), False),
    "head and model in turn": ((0.9, 0.3), (0.3, 0.9), False),
    "nothing helps": ((0.1,), (0.1,), False),
}
"""How often head and draft model are right, and whether n-grams match in bursts. Those of two figures change every 100
tokens."""


def of_kind(kind: str, seed: int, length: int = 400) -> Text:
    """A text of one of `KINDS`."""
    by_head, by_model, copies = KINDS[kind]
    main = trace(by_model, length=length, segment=100, seed=seed)
    told: TextKind = "code" if "code" in kind else "list" if "list" in kind else "prose"
    main = with_copies(main, seed=seed) if copies else main
    main = replace(main, kinds=[told] * len(main.confidences), _rounds={})
    return Text(main, {"mtp": trace(by_head, length=length, segment=100, seed=seed + 500)}, seed)


def alone(costs: Costs, drafter: DrafterName, length: int, text: Text) -> float:
    """Seconds of a text with one drafter and at most ``length`` tokens a draft."""
    machine, hits = Machine(costs, Surroundings()), text.others.get(drafter, text.main).hits["coupled"]
    seconds, at, main = 0.0, 0, text.main
    while at < main.length:
        drafted = length if drafter != "ngram" or (main.matches and main.matches[at]) else 0
        right = main.copied if drafter == "ngram" else hits
        accepted = next((i for i in range(drafted) if not right[at + i]), drafted)
        seconds += machine.verify[drafted + 1] + machine.other(drafted + 1) + drafted * machine.drafts.get(drafter, 0.0)
        at += accepted + 1
    return seconds * main.length / at


def everything(curve: str, seeds: range) -> dict[str, tuple[str, float]]:
    """By kind, and for all of them together: which single drafter is best at which length, and `auto` ÷ it. `auto`
    answers the kinds in turn, twice; the second time counts."""
    costs = costs_of(curve, "model", "mtp")
    drafters: tuple[DrafterName, ...] = ("model", "mtp", "ngram")
    ways: list[tuple[DrafterName, int]] = [(name, n) for name in drafters for n in range(LIMIT + 1)]
    auto = dict.fromkeys(KINDS, 0.0)
    single = {kind: dict.fromkeys(ways, 0.0) for kind in KINDS}
    for seed in seeds:
        texts = {kind: of_kind(kind, 100 * seed + i) for i, kind in enumerate(KINDS)}
        before = [of_kind(kind, 100 * seed + 50 + i) for i, kind in enumerate(KINDS)]
        each = answers(costs, drafters, [*before, *texts.values()])[len(KINDS) :]
        for (kind, text), seconds in zip(texts.items(), each, strict=True):
            auto[kind] += seconds
            for way in ways:
                single[kind][way] += alone(costs, *way, text)
    single["together"] = {way: sum(one[way] for one in single.values()) for way in ways}
    auto["together"] = sum(auto.values())
    return {kind: _compared(auto[kind], by_way) for kind, by_way in single.items()}


def _compared(auto: float, by_way: Mapping[tuple[DrafterName, int], float]) -> tuple[str, float]:
    name, length = best = min(by_way, key=by_way.__getitem__)
    return f"{name} {length}" if length else "no draft", by_way[best] / auto


# ------------------------------------------------------------ tables


def print_all(seeds: range) -> None:
    """All three tables."""
    print(
        "each token of a head is wrong with this probability: best fixed length, auto ÷ it in first and later answers"
    )
    print(" " * 24 + "".join(f"{wrong:>20}" for wrong in WRONG))
    for curve in CURVES:
        heads = [head(curve, wrong, seeds) for wrong in WRONG]
        print(f"{curve:24}" + "".join(f"{f'n={n:<2} {a:.3f} {b:.3f}':>20}" for n, a, b in heads), flush=True)
    print("\nwith 1, 2 and 3 worthless drafters ÷ without them, in first and later answers")
    for good in (0.0, 0.8):
        rows = [[beside_worthless(curve, good, count, seeds) for curve in CURVES] for count in (1, 2, 3)]
        cells = [f"{_mean(row, 0):.3f} {_mean(row, 1):.3f} (least {min(b for _, b in row):.3f})" for row in rows]
        print(f"{'draft model 0.8 beside' if good else 'n-grams beside':24}" + "   ".join(cells), flush=True)
    print("\nall drafters: the best single one at its best fixed length, auto ÷ it")
    print(" " * 24 + "".join(f"{kind:>24}" for kind in (*KINDS, "together")))
    for curve in CURVES:
        found = everything(curve, seeds)
        print(f"{curve:24}" + "".join(f"{f'{way} {ratio:.3f}':>24}" for way, ratio in found.values()), flush=True)


def _mean(row: Sequence[tuple[float, float]], place: int) -> float:
    return statistics.fmean(one[place] for one in row)
