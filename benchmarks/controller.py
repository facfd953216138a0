"""Draft length `auto` against the best fixed length in hindsight, simulated: needs no model and no quiet machine.

    python -m benchmarks.controller [--tokens N] [--texts N] [--seed N] [--measured WIDTH …]
                                          [--policy auto|baseline] [--kinds] [--drafters] [--ablate] [--json]

Each cell is `auto` ÷ best fixed length, then `auto` ÷ plain, the mean over several texts; `n` is the best length.
With ``--measured`` the policy is told the cost of these widths only, as a short measurement would, and finds out
the rest itself. With ``--kinds`` it is what knowing the kind of text brings: `auto` told the kind ÷ not told, first in
an answer of a pair that is new, then after an earlier answer was told (or not told) as well. With ``--drafters`` it is
what several drafters bring and worthless ones cost (`benchmarks.all_drafters`). ``--ablate`` takes each mechanism out
alone, in these and other worlds; ``--policy baseline`` is the plainest policy that measures.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs
from app.engine.policy.policy import Policy
from app.protocol.options import TextKind
from benchmarks.ablation import ablate
from benchmarks.all_drafters import print_all
from benchmarks.baseline_policy import BaselinePolicy
from tests.support.simulator import TRACES, best_fixed, curves, measured_at, run_fixed, run_policy, trace, with_kinds

POLICIES: dict[str, Callable[..., Policy]] = {"auto": AutoPolicy, "baseline": BaselinePolicy}
KINDS: tuple[TextKind, ...] = ("code", "prose")


@dataclass(frozen=True)
class Cell:
    """One curve and kind of text. ``worst``: the text where `auto` fell furthest behind the best fixed length."""

    curve: str
    text: str
    informative: bool
    best_length: int
    to_best: float
    worst: float
    to_plain: float

    @property
    def below_target(self) -> bool:
        """Whether it misses what a draft length of `auto` promises."""
        switching = self.text == "code/prose" and self.curve in ("flat", "cliff at 9") and self.informative
        least = 1.08 if switching else 0.96
        return self.to_best < least or self.to_plain < 0.98


def cell(
    curve: str,
    costs: Costs,
    kind: str,
    informative: bool,
    tokens: int,
    seeds: range,
    measured: Sequence[int] = (),
    make: Callable[..., Policy] = AutoPolicy,
) -> Cell:
    """Run a text of ``tokens`` tokens for each seed."""
    told = measured_at(costs, *measured) if measured else costs
    lengths, to_best, to_plain = [], [], []
    for seed in seeds:
        text = trace(TRACES[kind], length=tokens, informative=informative, seed=seed)
        length, best = best_fixed(costs, text)
        speed = run_policy(make(told, propose="coupled"), costs, text, seed).speed
        lengths.append(length)
        to_best.append(speed / best)
        to_plain.append(speed / run_fixed(costs, text, 0))
    mean = statistics.fmean
    typical = statistics.median_low(lengths)
    return Cell(curve, kind, informative, typical, mean(to_best), min(to_best), mean(to_plain))


@dataclass(frozen=True)
class KindsCell:
    """What it brings to be told the kinds of ``text``, as ratios of speeds."""

    curve: str
    text: str
    informative: bool
    new: float
    learned: float


def kinds_cell(curve: str, costs: Costs, kind: str, informative: bool, tokens: int, seeds: range) -> KindsCell:
    """Run texts of ``tokens`` tokens that change every 50, told what they are and not."""
    new, learned = [], []
    for seed in seeds:
        speeds = []
        for told in (True, False):
            start = None
            for number, one in enumerate((seed, seed + 1000, seed)):
                text = trace(TRACES[kind], length=tokens, informative=informative, seed=one)
                policy = AutoPolicy(costs, propose="coupled", start=start)
                speeds.append(run_policy(policy, costs, with_kinds(text, *KINDS) if told else text, one).speed)
                start = policy.learned().priors if number else None
        new.append(speeds[0] / speeds[3])
        learned.append(speeds[2] / speeds[5])
    return KindsCell(curve, kind, informative, statistics.fmean(new), statistics.fmean(learned))


def print_kinds(tokens: int, seeds: range, as_json: bool) -> None:
    """The table of ``--kinds``."""
    cells = []
    texts = [(kind, informative) for kind in ("code/prose", "0.7", "0.9") for informative in (True, False)]
    if not as_json:
        heads = [f"{kind} {'informative' if informative else 'useless'}" for kind, informative in texts]
        print(" " * 24 + "".join(f"{head:>24}" for head in heads))
    for curve, costs in curves().items():
        row = [kinds_cell(curve, costs, kind, informative, tokens, seeds) for kind, informative in texts]
        cells += row
        if not as_json:
            print(f"{curve:24}" + "".join(f"{f'{c.new:.3f} {c.learned:.3f}':>24}" for c in row), flush=True)
    if as_json:
        print(json.dumps([asdict(c) for c in cells], indent=2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first text")
    parser.add_argument("--measured", type=int, nargs="+", default=[], metavar="WIDTH", help="all where none is given")
    parser.add_argument("--kinds", action="store_true", help="what it brings to know the kind of text")
    parser.add_argument("--drafters", action="store_true", help="several drafters, over --texts texts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--policy", choices=POLICIES, default="auto")
    parser.add_argument("--ablate", action="store_true", help="what each mechanism earns, over --texts texts")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.texts)
    if options.ablate:
        ablate(options.texts)
    elif options.drafters:
        print_all(seeds)
    elif options.kinds:
        print_kinds(options.tokens, seeds, options.json)
    else:
        print_cells(options, seeds)


def print_cells(options: argparse.Namespace, seeds: range) -> None:
    """The table without further options."""
    make = POLICIES[options.policy]
    cells = []
    for informative in (True, False):
        if not options.json:
            print(f"\n{'informative' if informative else 'useless':24}" + "".join(f"{kind:>20}" for kind in TRACES))
        for curve, costs in curves().items():
            row = [
                cell(curve, costs, kind, informative, options.tokens, seeds, options.measured, make) for kind in TRACES
            ]
            cells += row
            if not options.json:
                shown = [f"n={c.best_length:<2} {c.to_best:.3f} {c.to_plain:.2f}" for c in row]
                print(f"{curve:24}" + "".join(f"{text:>20}" for text in shown), flush=True)
    if options.json:
        print(json.dumps([asdict(c) for c in cells], indent=2))
        return
    print("\nbelow target:")
    for c in cells:
        if c.below_target:
            leads = "informative" if c.informative else "useless"
            print(f"{c.curve}, {c.text}, {leads}: {c.to_best:.3f} {c.to_plain:.3f}")


if __name__ == "__main__":
    main()
