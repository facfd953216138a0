"""How long OpenMP's threads wait before they sleep: does another number make an idle computer quicker?

    python -m benchmarks.spin_count [--target FILE …] [--counts N …] [--answers N]

One engine for each ``GOMP_SPINCOUNT``, all loaded at once, answer in turn without a draft; the figure is tokens per
second ÷ those with the number that the app sets (`app.system`). Rounds in which other programs used a quarter of a
core or more are left out, and said.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from app.client.process import EngineProcess
from app.protocol.commands import Load
from app.protocol.options import LoadSettings, Sampling
from app.system import _ENGINE_VARIABLES
from benchmarks.real_bench import real_models
from benchmarks.real_contestants import PAUSE_S, Ours, Request, cores, prompts_of
from benchmarks.real_figures import QUESTIONS, Ratio, ratio_of_medians

USUAL = int(_ENGINE_VARIABLES["GOMP_SPINCOUNT"])
_QUIET = 0.25
_PROMPTS = 4


def spin_counts(target: Path, options: argparse.Namespace) -> tuple[dict[int, Ratio | None], int]:
    """By spin count, of the quiet rounds; and how many were not quiet."""
    prompts = prompts_of(target, 100, range(_PROMPTS), options.questions)
    counts = list(dict.fromkeys([USUAL, *options.counts]))
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    with contextlib.ExitStack() as stack:
        sides = {count: _engine(stack, target, count) for count in counts}
        for number in range(options.answers + 1):
            first = number % len(counts)
            wanted = replace(prompts[number % _PROMPTS], max_tokens=options.tokens, seed=number)
            found = {count: _timed(sides[count], wanted) for count in counts[first:] + counts[:first]}
            if number and all(others < _QUIET for _, others in found.values()):
                for count, (speed, _) in found.items():
                    speeds[count].append(speed)
    left_out = options.answers - len(speeds[USUAL])
    return {count: ratio_of_medians(own, speeds[USUAL]) for count, own in speeds.items()}, left_out


def _engine(stack: contextlib.ExitStack, target: Path, count: int) -> Ours:
    home = stack.enter_context(tempfile.TemporaryDirectory())
    process = stack.enter_context(EngineProcess("--unwatched", SLIPSTREAM_HOME=home, GOMP_SPINCOUNT=str(count)))
    process.hello()
    process.load(Load(request=0, target=str(target), settings=LoadSettings(context_length=2048, threads=cores())))
    return Ours(process)


def _timed(ours: Ours, request: Request) -> tuple[float, float]:
    """Its speed, and how many cores other programs used meanwhile."""
    process = psutil.Process(ours.engine.process_id)
    begun, idle, own = time.monotonic(), psutil.cpu_times().idle, sum(process.cpu_times()[:2])
    said = ours.ask(replace(request, sampling=Sampling(temperature=0.8)))
    seconds = time.monotonic() - begun
    used = (psutil.cpu_count() or 1) * seconds - (psutil.cpu_times().idle - idle) - (sum(process.cpu_times()[:2]) - own)
    time.sleep(PAUSE_S)
    return said.speed or 0.0, used / seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, nargs="+", metavar="FILE", help="default: what scripts/real-models has")
    parser.add_argument("--counts", type=int, nargs="+", default=[300, 30_000, 300_000], metavar="N")
    parser.add_argument("--answers", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--questions", type=Path, default=QUESTIONS, metavar="FILE", help="Spec-Bench's question.jsonl")
    options = parser.parse_args(arguments)
    for target in options.target or real_models():
        ratios, left_out = spin_counts(target, options)
        print(f"{target.name}: tokens per second ÷ those with {USUAL:,} spins; {left_out} rounds were not quiet")
        for count, ratio in ratios.items():
            print(f"  {count:>9,}  {ratio or 'none was quiet'}", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that engines end, too
    main()
