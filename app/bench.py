"""Plain against drafted decoding, in turn on the same prompts and seeds, so that a drifting machine hits both alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from app.engine.protocol import Figures, Generate, GenerationFinished, Round
from app.engine.statistics import acceptance_rate, mean_acceptance_length
from app.errors import Cancelled

if TYPE_CHECKING:
    from app.engine.engine import Engine


@dataclass(frozen=True)
class Run:
    """One answer and its figures."""

    text: str
    token_ids: list[int]
    figures: Figures


@dataclass(frozen=True)
class Comparison:
    """The same prompt and seed, plain and with the draft."""

    plain: Run
    drafted: Run


def compare(engine: Engine, commands: Sequence[Generate], repeat: int) -> Iterator[Comparison]:
    """Run each command plain and drafted, ``repeat`` times with the seeds s, s + 1, …; which goes first alternates.

    One run of each is made before, uncounted. Raises `Cancelled` when the engine is told to stop.
    """
    for drafted in (False, True):
        _run(engine, commands[0], drafted, 0)
    for index in range(repeat):
        for number, command in enumerate(commands):
            seed = (command.seed or 0) + index
            order = (True, False) if (index + number) % 2 else (False, True)
            runs = {drafted: _run(engine, command, drafted, seed) for drafted in order}
            yield Comparison(runs[False], runs[True])


def _run(engine: Engine, command: Generate, drafted: bool, seed: int) -> Run:
    text: list[str] = []
    length = command.draft_length if drafted else 0
    for event in engine.generate(msgspec.structs.replace(command, draft_length=length, seed=seed)):
        if isinstance(event, Round):
            text += [piece.text for piece in event.pieces]
        elif isinstance(event, GenerationFinished):
            if event.finish_reason == "cancelled":
                raise Cancelled
            return Run("".join(text), engine.token_ids, event.figures)
    raise AssertionError("a generation always finishes")


def summarise(runs: Sequence[Comparison]) -> dict[str, Any]:
    """Medians over runs long enough to have a speed, and the sums of the counters. Speeds are tokens per second."""
    timed = [(run.plain.figures.decode_tokens_per_second, run.drafted.figures.decode_tokens_per_second) for run in runs]
    speeds = [(plain, drafted) for plain, drafted in timed if plain and drafted]
    draft = [run.drafted.figures.draft for run in runs]
    tested, accepted = sum(d.tested for d in draft), sum(d.accepted for d in draft)
    passes = sum(d.verify_passes for d in draft)
    return {
        "runs": len(runs),
        "plain_tokens_per_second": _median([plain for plain, _ in speeds]),
        "drafted_tokens_per_second": _median([drafted for _, drafted in speeds]),
        "speed_up": _median([drafted / plain for plain, drafted in speeds]),
        "tokens": sum(run.drafted.figures.completion_tokens for run in runs),
        "drafted": sum(d.drafted for d in draft),
        "tested": tested,
        "accepted": accepted,
        "rejected": tested - accepted,
        "acceptance_rate": acceptance_rate(accepted, tested),
        "mean_acceptance_length": mean_acceptance_length(accepted, passes),
        "same_text": sum(run.plain.text == run.drafted.text for run in runs),
        "total_s": sum(run.plain.figures.total_s + run.drafted.figures.total_s for run in runs),
    }


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
