"""The engine's own time a round, with whole rows of logits and with the largest picked by llama.cpp (`TopK`).

    python -m benchmarks.own_time [--vocabulary N …] [--rounds N] [--draft-length N] [--threads N] [--json]

Own time is a whole round without what the same calls of llama.cpp take when they pick nothing: what picking costs is
the engine's own time. Two engines take turns, answer by answer, with the same pair (random weights), text and seeds.
Both are on a GPU if this copy of llama.cpp has one; then a call's time includes waiting for the GPU and copying the
rows. Figures are medians over the rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.engine.host.engine import Engine
from app.engine.llama import backend, context
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import LoadSettings, Sampling
from benchmarks.inflate import vocabulary_pair
from benchmarks.overhead import WARM, Case, parts
from tests.support.generation import GREEDY

CASES = [
    Case("default sampler", WARM),
    Case("default sampler, rejection", WARM, "rejection"),
    Case("presence penalty 1.5, top-k 20", Sampling(temperature=0.7, top_k=20, top_p=0.8, presence_penalty=1.5)),
    Case("greedy", GREEDY),
]
FIGURES = ("whole rows", "picked", "picking", "llama.cpp", "CPU, whole rows", "CPU, picked")
"""Own time without and with picking; what picking adds to llama.cpp's calls, and what these take without it. At last,
how long the engine's thread was on the processor outside these calls: that doesn't depend on what else runs there, as
with a GPU made of software, which computes on the same processor.
"""


def measure(
    pair: tuple[Path, Path], draft_length: int, rounds: int, threads: int, cases: Sequence[Case] = CASES
) -> dict[str, dict[str, float]]:
    """The figures of each case, by name."""
    settings = LoadSettings(threads=threads, context_length=2048)
    engines = []
    try:
        for picks in (False, True):
            engines.append(Engine())
            with patch.object(context, "pays", lambda _, picks=picks: picks):
                command = Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=settings)
                engines[-1].load(command, lambda _: None)
        return {case.name: _measure_case(engines, case, draft_length, rounds) for case in cases}
    finally:
        for engine in engines:
            engine.unload()


def _measure_case(engines: Sequence[Engine], case: Case, draft_length: int, rounds: int) -> dict[str, float]:
    measured: list[list[dict[str, float]]] = [[], []]
    seed = 0
    while len(measured[0]) < rounds:
        seed += 1
        command = Generate(
            request=2,
            messages=[Message(role="user", content=f"Random question {seed}")],
            sampling=case.sampling,
            accept=case.accept,
            seed=seed,
            max_tokens=rounds + 10 * draft_length,
            draft_length=draft_length,
            drafter="model",
        )
        for engine, rows in zip(engines, measured, strict=True):
            rows.extend(parts(command, engine))
        if seed > 50 and not measured[0]:
            raise SystemExit("No round tested a whole draft.")
    whole_own, picked_own = (statistics.median(row["own"] for row in rows) for rows in measured)
    plain, picking = (statistics.median(row["llama.cpp"] for row in rows) for rows in measured)
    on_processor = (statistics.median(row["own CPU"] for row in rows) for rows in measured)
    figures = whole_own, picked_own + picking - plain, picking - plain, plain, *on_processor
    return dict(zip(FIGURES, figures, strict=True))


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [
        f"{result['vocabulary']:,} tokens, draft length {result['draft_length']}, {result['threads']} threads, "
        f"{', '.join(result['devices']) or 'no GPU'}; milliseconds a round",
        f"{'':32}" + "".join(f"{figure:>16}" for figure in FIGURES),
    ]
    lines += [
        f"{name:32}" + "".join(f"{figures[figure]:16.3f}" for figure in FIGURES)
        for name, figures in result["cases"].items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Measure and print; returns the figures of each vocabulary."""
    parser = argparse.ArgumentParser(description="The engine's own time a round, with and without picking logits")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[152_000, 248_000])
    parser.add_argument("--draft-length", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    backend.start()
    results = []
    for size in options.vocabulary:
        cases = measure(vocabulary_pair(size=size), options.draft_length, options.rounds, options.threads)
        settings = {name: getattr(options, name) for name in ("draft_length", "rounds", "threads")}
        results.append({"vocabulary": size, "devices": backend.gpu_devices(), **settings, "cases": cases})
        if not options.json:
            print(table(results[-1]))
    print(json.dumps(results))
    return results


if __name__ == "__main__":
    main()
