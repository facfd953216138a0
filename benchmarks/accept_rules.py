"""What each accept rule accepts, and what it brings, by proposal method, temperature and truncation.

    python -m benchmarks.accept_rules [--pair guide|models|synthetic]… [--models FOLDER] [--runs N] [--length N]
        [--costs here|CURVE]… [--json]

Contenders: `coupled` with the target's own noise, with greedy proposals and with the policy's choice of both;
sample-and-match with greedy proposals, which is what llama-server does; `rejection`; and `block`. Each
drafts with a fixed length and with `auto`.

In each cell: accepted ÷ tested, accepted ÷ judged (tested up to and including the first rejected one), tokens a pass,
× plain and × the best other than block (medians of the ratios of runs that took turns on the same prompt and seed).

``--pair models`` measures the pairs of a folder of files named ``*-target*.gguf`` and ``*-draft*.gguf``, with raw
openings of stories; without a folder it is left out. With a curve for ``--costs`` a pass takes what `CURVES` say,
whatever it takes here: such figures need no quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from app.engine.policy.costs import Costs
from app.protocol.options import DraftLength, Sampling
from benchmarks.contenders import BLOCK, CHOICE, CONTENDERS, GREEDY, SAME_NOISE, Contender, Counts
from benchmarks.engine import GUIDE, LONGEST, questions
from benchmarks.worlds import DIVERGENCES, MadeUpPair, RealPair, World, chats, stories
from tests.support.simulator import curves

TEMPERATURES = (0.5, 0.8, 1.0, 1.2)
SAMPLERS = {
    "top-k 40, top-p 0.95, min-p 0.05": Sampling(),
    "no truncation": Sampling(top_k=0, top_p=1.0, min_p=0.0),
}
CURVES = {name: costs for name, costs in curves().items() if name in ("600 M F16", "600 M Q8_0", "flat")}
OPENINGS = ("Once upon a time there was a little girl", "One day a dog found", "Tom and his mom went to the park")
STORY_TOKENS, MADE_UP_TOKENS = 150, 600


@dataclass
class Cell:
    """One contender at one temperature."""

    acceptance: float
    of_judged: float
    mean_acceptance_length: float
    tokens_per_second: float
    """Of all runs together."""
    to_plain: float
    to_best: float
    """The best contender but block verification, by ``to_plain``."""
    counts: Counts = field(repr=False)


@dataclass
class Table:
    """All contenders on one pair, with one truncation and draft length."""

    pair: str
    sampler: str
    length: DraftLength
    cells: dict[str, list[Cell]]
    """By contender; one a temperature."""

    def choice_to_better_method(self) -> list[float]:
        """Of the policy's choice of proposing ÷ of the better fixed method, for each temperature: the acceptance, or,
        where each drafts as far as it likes, the tokens per second.
        """
        figure = "tokens_per_second" if self.length == "auto" else "acceptance"
        values = [[getattr(cell, figure) for cell in self.cells[c.name]] for c in (CHOICE, SAME_NOISE, GREEDY)]
        return [choice / max(one, other) for choice, one, other in zip(*values, strict=True)]

    def block_to_best(self) -> list[float]:
        """Tokens per second of block verification ÷ those of the best other contender, for each temperature."""
        return [cell.to_best for cell in self.cells[BLOCK.name]]


def measure(world: World, sampler: str, length: DraftLength) -> Table:
    """Let all contenders answer everything at all temperatures, in turn."""
    table = Table(world.name, sampler, length, {contender.name: [] for contender in CONTENDERS})
    for temperature in TEMPERATURES:
        sampling = msgspec.structs.replace(SAMPLERS[sampler], temperature=temperature)
        plain: list[Counts] = []
        answers: dict[str, list[Counts]] = {contender.name: [] for contender in CONTENDERS}
        for number in range(world.runs):
            plain.append(world.answer(None, sampling, length, number))
            for contender in _turned(CONTENDERS, number):
                answers[contender.name].append(world.answer(contender, sampling, length, number))
        for name, cell in _cells(plain, answers).items():
            table.cells[name].append(cell)
    return table


def _turned(contenders: Sequence[Contender], by: int) -> list[Contender]:
    by %= len(contenders)
    return [*contenders[by:], *contenders[:by]]


def _cells(plain: list[Counts], answers: dict[str, list[Counts]]) -> dict[str, Cell]:
    to_plain = {name: _median_ratio(counts, plain) for name, counts in answers.items()}
    best = max((name for name in answers if name != BLOCK.name), key=to_plain.__getitem__)
    return {
        name: _cell(Counts.total(counts), to_plain[name], _median_ratio(counts, answers[best]))
        for name, counts in answers.items()
    }


def _cell(total: Counts, to_plain: float, to_best: float) -> Cell:
    return Cell(total.acceptance, total.of_judged, total.length, total.speed, to_plain, to_best, total)


def _median_ratio(ours: Sequence[Counts], theirs: Sequence[Counts]) -> float:
    """Of the speeds; answers too short to have one are left out."""
    speeds = [(a.speed, b.speed) for a, b in zip(ours, theirs, strict=True)]
    return statistics.median([a / b for a, b in speeds if a and b] or [0.0])


def shown(table: Table) -> str:
    """A table as lines of text."""
    lines = [f"\n{table.pair}; {table.sampler}; draft length {table.length}"]
    lines.append(f"{'':26}" + "".join(f"{f'T {temperature}':>32}" for temperature in TEMPERATURES))
    lines.append(f"{'':26}" + f"{'kept judged /pass ×plain ×best':>32}" * len(TEMPERATURES))
    for name, cells in table.cells.items():
        texts = [
            f"{c.acceptance:.3f} {c.of_judged:6.3f} {c.mean_acceptance_length:5.2f} {c.to_plain:6.2f} {c.to_best:5.2f}"
            for c in cells
        ]
        lines.append(f"{name:26}" + "".join(f"{text:>32}" for text in texts))
    ratios = ", ".join(f"{ratio:.3f}" for ratio in table.choice_to_better_method())
    figure = "tokens per second" if table.length == "auto" else "acceptance"
    lines.append(f"choice of proposing ÷ better fixed method, {figure}: {ratios}")
    return "\n".join(lines)


# ---------------------------------------------------------------- what to measure


def worlds(options: argparse.Namespace) -> Iterator[RealPair | MadeUpPair]:
    """The pairs asked for, on the machines asked for, one after the other."""
    machines: dict[str, Costs | None] = {name: CURVES.get(name) for name in options.costs}
    for pair in options.pair:
        for name, costs in machines.items():
            if pair == "synthetic":
                if costs:
                    yield from (MadeUpPair(d, name, costs, options.runs, MADE_UP_TOKENS) for d in DIVERGENCES)
                continue
            for label, files in _files(pair, options.models).items():
                commands = chats(questions(options.runs), LONGEST)
                if pair == "models":
                    commands = stories(OPENINGS, options.runs, STORY_TOKENS)
                yield RealPair(f"{label}, costs {name}", files, commands, options.threads, costs)


def _files(pair: str, folder: Path | None) -> dict[str, Sequence[Path]]:
    if pair == "guide":
        return {"guide pair": [Path(path) for path in GUIDE]}
    if folder is None or not folder.is_dir():
        print("models: left out, there is no folder (--models FOLDER)", file=sys.stderr)
        return {}
    targets, drafts = sorted(folder.glob("*-target*.gguf")), sorted(folder.glob("*-draft*.gguf"))
    return {f"{target.stem} + {draft.stem}": [target, draft] for target in targets for draft in drafts}


def main(arguments: Sequence[str] | None = None) -> list[Table]:
    """Measure and print; returns the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs = ("guide", "models", "synthetic")
    parser.add_argument("--pair", nargs="+", choices=pairs, default=pairs)
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="for --pair models")
    parser.add_argument("--runs", type=int, default=8, help="answers of each contender in each cell")
    parser.add_argument("--length", type=int, default=5, help="the fixed draft length")
    parser.add_argument("--costs", nargs="+", choices=("here", *CURVES), default=("here", "flat"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    tables = []
    for world in worlds(options):
        for sampler in SAMPLERS:
            for length in (options.length, "auto"):
                tables.append(measure(world, sampler, length))
                if not options.json:
                    print(shown(tables[-1]), flush=True)
        world.close()
    if options.json:
        print(json.dumps([asdict(table) for table in tables], indent=2))
    else:
        print(_decision(tables))
    return tables


def _decision(tables: Sequence[Table]) -> str:
    """The two questions the figures have to answer."""
    lines = []
    if tables:
        fixed = [table for table in tables if table.length != "auto"]
        worst = min(ratio for table in fixed for ratio in table.choice_to_better_method())
        block = max(((ratio, table) for table in tables for ratio in table.block_to_best()), key=lambda pair: pair[0])
        lines.append(f"\nchoice of proposing ÷ better fixed method, acceptance, worst: {worst:.3f}")
        where = f"{block[1].pair}; {block[1].sampler}; draft length {block[1].length}"
        lines.append(f"block ÷ best other, tokens per second, best: {block[0]:.3f} ({where})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
