"""The frozen app against the one from source, and llama.cpp's variants for processors against each other.

    python -m benchmarks.packaged [--repeat N] [--json]        after make package

Each figure is a ratio of medians over runs that took turns. A variant is measured in a copy of the frozen app that has
no other one, with the guide pair and the prompts in ``resources/bench/prompts.txt``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.startup import FROM_SOURCE, ROOT, start_once

FROZEN = ROOT / "dist" / "slipstream"
BASELINES = ("x64", "sse42", "haswell")
"""What the variant chosen here is held against: SSE2, SSE4.2 and AVX2."""
FIGURES = {"plain": "plain_speed", "drafted": "drafted_speed"}
ASKED = ROOT / "resources" / "bench" / "prompts.txt"
Programs = Mapping[str, Sequence[str]]
Values = dict[str, list[float]]


def decode_speeds(programs: Programs, repeat: int) -> dict[str, Values]:
    """Tokens per second of each program, plain and drafted, in ``repeat`` runs of ``slipstream compare``."""
    speeds: dict[str, Values] = {name: {figure: [] for figure in FIGURES} for name in programs}
    for _ in range(repeat):
        for name, program in programs.items():
            figures = _compared(program)
            for figure, key in FIGURES.items():
                speeds[name][figure].append(figures[key])
    return speeds


def _compared(program: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:  # so that none learns from another
        command = [*program, "compare", "--prompts", str(ASKED), "--max-tokens", "1024", "--seed", "1", "--json"]
        environment = {**os.environ, "SLIPSTREAM_HOME": home}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)["summary"]["total"]
    return figures


def start_times(programs: Programs, repeat: int) -> dict[str, Values]:
    """Seconds to the painted window and from there to the guide, of warm starts."""
    times: dict[str, Values] = {name: {"window_s": [], "guide_s": []} for name in programs}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeat + 1):
            for name, program in programs.items():
                for figure, seconds in start_once(Path(folder, name), program).items():
                    if turn:  # the first one warms the disk's cache
                        times[name][figure].append(seconds)
    return times


def with_one_variant(frozen: Path, variant: str, folder: Path) -> Path:
    """A copy of ``frozen`` in ``folder``, of hard links, with no variant for processors but ``variant``."""
    subprocess.run(["cp", "-al", str(frozen), str(folder)], check=True)
    for library in folder.glob("_internal/llama_cpp/lib/libggml-cpu-*"):
        if library.stem != f"libggml-cpu-{variant}":
            library.unlink()
    return folder / "slipstream"


def measure(repeat: int) -> dict[str, Any]:
    """All three comparisons."""
    both: Programs = {"packaged": [str(FROZEN / "slipstream")], "source": FROM_SOURCE}
    with tempfile.TemporaryDirectory(dir=FROZEN.parent) as folder:
        variants = {name: [str(with_one_variant(FROZEN, name, Path(folder, name)))] for name in BASELINES}
        return {
            "repeat": repeat,
            "start": start_times(both, repeat),
            "decode": decode_speeds(both, repeat),
            "variants": decode_speeds({"best": both["packaged"], **variants}, repeat),
        }


def table(result: Mapping[str, Any]) -> str:
    """The result for people: medians, and each against the last line's of its part."""
    lines = []
    for part, unit in (("start", "s"), ("decode", "tok/s"), ("variants", "tok/s")):
        for figure in next(iter(result[part].values())):
            medians = {name: statistics.median(values[figure]) for name, values in result[part].items()}
            first, *_ = medians.values()
            lines += [f"{part}, {figure}, in {unit} (first ÷ this one)"]
            lines += [f"  {name:10} {median:9.2f} {first / median:7.2f}" for name, median in medians.items()]
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The frozen app against the one from source")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    result = measure(max(options.repeat, 1))
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
