"""Runs sets of prompts on an engine in this process, plain and drafted in turn.

Runs of a prompt follow each other and which goes first alternates, so that a drifting machine hits both alike. For the
command line and benchmarks; the window does the same through its engine process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from app.compare.prompts import Prompt
from app.compare.results import (
    Collector,
    Comparison,
    Curve,
    Run,
    Skipped,
    first_difference,
    score_command,
    with_scores,
)
from app.errors import Cancelled, KnownError
from app.protocol.messages import DraftLength, Generate, GenerationFinished, Round

if TYPE_CHECKING:
    from app.engine.host.engine import Engine

log = logging.getLogger("slipstream.compare")

CURVE_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


def compare(
    engine: Engine, prompts: Sequence[Prompt], command: Generate, repeat: int = 1
) -> Iterator[Comparison | Skipped]:
    """Run each prompt plain and as ``command`` says, ``repeat`` times with the seeds s, s + 1, … of ``command``.

    One run of each is made before, uncounted. A prompt that cannot be answered comes once, with the reason. Raises
    `Cancelled` when the engine is told to stop.
    """
    skipped: set[int] = set()
    _warm_up(engine, prompts, command)
    for index in range(repeat):
        for number, prompt in enumerate(prompts):
            if number in skipped:
                continue
            seed = (command.seed or 0) + index
            try:
                yield compare_one(engine, prompt, command, seed, plain_first=(index + number) % 2 == 0)
            except KnownError as error:
                skipped.add(number)
                yield Skipped(prompt=prompt, reason=str(error))


def _warm_up(engine: Engine, prompts: Sequence[Prompt], command: Generate) -> None:
    """Pages everything in, and lets ``auto`` learn what acceptance is like."""
    for prompt in prompts:
        try:
            for length in (0, command.draft_length):
                _run(engine, prompt, command, 0, length)
            return
        except KnownError:
            continue  # this prompt does not fit; its turn to be reported comes


def compare_one(
    engine: Engine, prompt: Prompt, command: Generate, seed: int, *, plain_first: bool = True
) -> Comparison:
    """One prompt plain and as ``command`` says. Raises `KnownError` when it does not fit, and `Cancelled`."""
    lengths: tuple[DraftLength, DraftLength] = (0, command.draft_length)
    runs = {length: _run(engine, prompt, command, seed, length) for length in lengths[:: 1 if plain_first else -1]}
    plain, drafted = runs[0], runs[command.draft_length]
    difference = first_difference(plain, drafted)
    comparison = Comparison(prompt=prompt, seed=seed, plain=plain, drafted=drafted, difference=difference)
    scoring = score_command(command.request, comparison, command.sampling)
    if difference is None or scoring is None:
        return comparison
    try:
        scored = engine.score_tokens(scoring)
    except KnownError as error:
        log.info("a difference could not be looked at: %s", error)
        return comparison
    return msgspec.structs.replace(comparison, difference=with_scores(difference, scored))


def _run(engine: Engine, prompt: Prompt, command: Generate, seed: int, draft_length: DraftLength) -> Run:
    collector = Collector()
    request = msgspec.structs.replace(command, messages=prompt.messages, draft_length=draft_length, seed=seed)
    for event in engine.generate(request):
        if isinstance(event, Round):
            collector.add(event)
        elif isinstance(event, GenerationFinished):
            if event.finish_reason == "cancelled":
                raise Cancelled
            return collector.finish(event)
    raise AssertionError("a generation always finishes")


# ---------------------------------------------------------------- the curve


@dataclass
class _Speed:
    """Tokens after the first of several answers, and the seconds they took."""

    tokens: int = 0
    seconds: float = 0.0
    tested: int = 0
    passes: int = 0

    def add(self, run: Run) -> None:
        figures = run.figures
        self.tested += figures.draft.tested
        self.passes += figures.draft.verify_passes
        if figures.decode_tokens_per_second:
            tokens = figures.completion_tokens - 1
            self.tokens += tokens
            self.seconds += tokens / figures.decode_tokens_per_second

    def value(self) -> float | None:
        return self.tokens / self.seconds if self.seconds else None


def curve(
    engine: Engine, prompts: Sequence[Prompt], command: Generate, on_progress: Callable[[int, int], None]
) -> Curve:
    """Decode speeds with each of `CURVE_LENGTHS` and with ``auto``, over the same prompts and seed.

    All lengths take turns at each prompt, from short to long and from long to short, so that a drifting machine hits
    them alike. All of ``prompts`` must fit into the context. ``on_progress`` gets the runs done and how many there are.
    Raises `Cancelled` when the engine is told to stop.
    """
    lengths: list[DraftLength] = [*CURVE_LENGTHS, "auto"]
    speeds: dict[DraftLength, _Speed] = {length: _Speed() for length in lengths}
    total = len(prompts) * len(lengths)
    done = 0
    for number, prompt in enumerate(prompts):
        for length in lengths[:: -1 if number % 2 else 1]:
            speeds[length].add(_run(engine, prompt, command, command.seed or 0, length))
            done += 1
            on_progress(done, total)
    auto = speeds["auto"]
    return Curve(
        lengths=list(CURVE_LENGTHS),
        speeds=[speeds[length].value() for length in CURVE_LENGTHS],
        auto=auto.value(),
        auto_length=auto.tested / auto.passes if auto.passes else None,
    )
