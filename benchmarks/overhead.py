"""The engine's own time a round, outside llama.cpp, on a vocabulary of 152,000 tokens.

    python -m benchmarks.overhead [--vocabulary N] [--rounds N] [--draft-length N] [--threads N] [--json]

A round is what lies between two rounds the engine yields: drafting, the verify pass, judging, text, statistics. The
time inside llama.cpp's own functions is taken away. The pair has random weights (`benchmarks.inflate`) and a
fixed draft length, so every round has the same work. Figures are medians over the rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.engine.decoding import loop
from app.engine.host.engine import Engine
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import Round
from app.protocol.options import AcceptRule, LoadSettings, Sampling
from benchmarks.inflate import VOCABULARY, vocabulary_pair
from tests.support.generation import GREEDY

_NATIVE = (
    "llama_decode",
    "llama_get_logits",
    "llama_get_sampled_candidates_count_ith",
    "llama_get_sampled_candidates_ith",
    "llama_get_sampled_logits_ith",
    "llama_memory_seq_rm",
)
"""llama.cpp's functions that a round calls; a GPU still computes when `llama_decode` returns."""
_JUDGING = ("penalize_rows", "distributions", "sample", "coupled", "rejection", "block")
_WARM_UP = 5
PARTS = ("own", "drafting", "judging", "rest", "llama.cpp", "own CPU")
"""``own`` is the sum of the three after it; ``own CPU`` is its time on the processor, in which no other work is."""


@dataclass(frozen=True)
class Case:
    """A way of sampling, and the rule that judges drafts."""

    name: str
    sampling: Sampling
    accept: AcceptRule = "coupled"


WARM = Sampling(temperature=0.8)
CASES = [
    Case("default sampler", WARM),
    Case("default sampler, rejection", WARM, "rejection"),
    Case("default sampler, block", WARM, "block"),
    Case("greedy", GREEDY),
    Case("repetition penalty 1.1", Sampling(temperature=0.8, repetition_penalty=1.1)),
    Case("no top-k", Sampling(temperature=0.8, top_k=0)),
    Case("top-p alone", Sampling(temperature=0.8, top_k=0, min_p=0.0)),
    Case("top-p alone, rejection", Sampling(temperature=0.8, top_k=0, min_p=0.0), "rejection"),
    Case("all filters off", Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)),
    Case("all filters off, rejection", Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0), "rejection"),
]


class Meter:
    """Seconds spent since `take`: in llama.cpp, of those on the processor in this thread, and in judging."""

    def __init__(self) -> None:
        import llama_cpp  # late: not every use of this module needs it

        self._spent = [0.0, 0.0, 0.0]
        self._patches = [
            *(patch.object(llama_cpp, name, self._native(getattr(llama_cpp, name))) for name in _NATIVE),
            *(patch.object(loop, name, self._judging(getattr(loop, name))) for name in _JUDGING),
        ]

    def _native(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begun, used = time.perf_counter(), time.thread_time()
            result = function(*arguments)
            self._spent[0] += time.perf_counter() - begun
            self._spent[1] += time.thread_time() - used
            return result

        return call

    def _judging(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begun = time.perf_counter()
            result = function(*arguments)
            self._spent[2] += time.perf_counter() - begun
            return result

        return call

    def take(self) -> list[float]:
        """What was spent since the last call."""
        spent, self._spent = self._spent, [0.0, 0.0, 0.0]
        return spent

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Counts inside the block."""
        with contextlib.ExitStack() as stack:
            for patched in self._patches:
                stack.enter_context(patched)
            yield


def parts(command: Generate, engine: Engine) -> list[dict[str, float]]:
    """Milliseconds of each part of each round of an answer but the first few."""
    meter = Meter()
    result = []
    engine.ready()
    with meter.running():
        begun, used = time.perf_counter(), time.thread_time()
        for event in engine.generate(command):
            if not isinstance(event, Round):
                continue
            whole, whole_used = time.perf_counter() - begun, time.thread_time() - used
            native, native_used, judging = meter.take()
            # Drafting and the pass hold llama.cpp's time and next to nothing else besides the draft's sampling.
            drafting = event.draft_seconds + event.verify_seconds - native
            own = whole - native
            values = own, drafting, judging, own - drafting - judging, native, whole_used - native_used
            if event.tested == command.draft_length:
                result.append({part: 1e3 * value for part, value in zip(PARTS, values, strict=True)})
            begun, used = time.perf_counter(), time.thread_time()
    return result[_WARM_UP:]


def measure(
    pair: tuple[Path, Path], draft_length: int, rounds: int, threads: int, cases: Sequence[Case] = CASES
) -> dict[str, Any]:
    """Medians of each part, by case."""
    engine = Engine()
    settings = LoadSettings(threads=threads, context_length=2048)
    engine.load(Load(request=1, target=str(pair[0]), draft=str(pair[1]), settings=settings), lambda _: None)
    try:
        return {case.name: _measure_case(engine, case, draft_length, rounds) for case in cases}
    finally:
        engine.unload()


def _measure_case(engine: Engine, case: Case, draft_length: int, rounds: int) -> dict[str, float]:
    measured: list[dict[str, float]] = []
    seed = 0
    while len(measured) < rounds:
        seed += 1
        command = Generate(
            request=2,
            messages=[Message(role="user", content=f"Random question {seed}")],
            sampling=case.sampling,
            accept=case.accept,
            seed=seed,
            max_tokens=4 * rounds + 10 * draft_length,
            draft_length=draft_length,
            drafter="model",
        )
        measured += parts(command, engine)
        if seed > 50 and not measured:
            raise SystemExit("No round tested a whole draft.")
    return {part: statistics.median(row[part] for row in measured) for part in PARTS}


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [
        f"{result['vocabulary']:,} tokens, draft length {result['draft_length']}, {result['threads']} threads;"
        " milliseconds a round",
        f"{'':30}" + "".join(f"{part:>11}" for part in PARTS),
    ]
    lines += [
        f"{name:30}" + "".join(f"{figures[part]:11.3f}" for part in PARTS) for name, figures in result["cases"].items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print; returns the figures."""
    parser = argparse.ArgumentParser(description="The engine's own time a round")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--draft-length", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    pair = vocabulary_pair(size=options.vocabulary)
    cases = measure(pair, options.draft_length, options.rounds, options.threads)
    settings = {name: getattr(options, name) for name in ("vocabulary", "draft_length", "rounds", "threads")}
    result = {**settings, "cases": cases}
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
