"""The steps in their order; each runs in a process of its own.

    python -m benchmarks.gpu_report.steps NAME --folder MODELS --figures FILE [--small]

A step yields parts of its figures; each is added to ``FILE`` at once, as a line of JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_report.sizes import QUANTIZATIONS, SMALL, USUAL, Bench
from benchmarks.gpu_report.timetable import TOP_K

Step = Callable[[Bench], Iterator[dict[str, Any]]]
_FUNCTIONS: dict[str, tuple[str, str]] = {
    "models": ("steps", "models"),
    "devices": ("smoke", "devices"),
    "selftest": ("smoke", "selftest"),
    "greedy texts": ("smoke", "greedy_texts"),
    "a context too large": ("smoke", "too_large"),
    "widths": ("passes", "widths"),
    "draft steps": ("passes", "draft_steps"),
    "own time": ("answers", "own_time"),
    TOP_K: ("answers", "top_k"),
    "draft lengths": ("answers", "draft_lengths"),
    "bare loop": ("answers", "bare_loop"),
    "hybrids": ("passes", "hybrids"),
    "batch sizes": ("passes", "batch_sizes"),
    "images": ("images", "images"),
    "stop": ("usage", "stop"),
    "memory": ("usage", "memory"),
    "architectures": ("usage", "architectures"),
}
"""Module and function by name, without a quantization; imported when needed, so that a step fails alone."""


def step(name: str) -> Step:
    """The function of a step. Its name may end with a quantization, and with what its environment changes."""
    base, _, _variant = name.partition(", no ")
    quantization = next((each for each in QUANTIZATIONS if base.endswith(f" {each}")), None)
    module, function = _FUNCTIONS[base.removesuffix(f" {quantization}")]
    found = getattr(importlib.import_module(f"{__package__}.{module}"), function)
    made: Step = found(quantization) if quantization else found
    return made


def models(bench: Bench) -> Iterator[dict[str, Any]]:
    """Make all models, so that no other step has to; runs on the processor."""
    made = {quantization: bench.target(quantization) for quantization in QUANTIZATIONS}
    yield {f"target {name}": path.stat().st_size for name, path in made.items()}
    for full in bench.folder.glob("inflated-*-f16.gguf"):
        full.unlink()  # the disk may be small, and its pages are of no more use
    yield {f"draft, {name}": path.stat().st_size for name, path in bench.drafts().items()}
    yield {"hybrid": bench.hybrid().stat().st_size}
    for size in bench.sizes.vocabularies:
        bench.vocabulary_pair(size)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--figures", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    faulthandler.enable()  # a crash of the driver says at least which call it was
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(SMALL if options.small else USUAL, options.folder)
    for figures in step(options.name)(bench):
        with options.figures.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
