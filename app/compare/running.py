"""Runs comparisons on an engine, waiting for each answer; the window does the same with events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from app.client.state import EngineEndedError
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, Skipped
from app.compare.steps import Compared, Steps, task_of
from app.errors import Canceled, KnownError
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import Figures, GenerationFinished, GenerationStarted, PromptProgressed, Round, TokensScored
from app.protocol.options import DraftLength

CURVE_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


class Engine(Protocol):
    """What comparisons need from an engine: `app.client.process.EngineProcess` implements it."""

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]: ...

    def score_tokens(self, command: ScoreTokens) -> TokensScored: ...


def compare(
    engine: Engine, prompts: Sequence[Prompt], command: Generate, repeat: int = 1
) -> Iterator[Comparison | Skipped]:
    """Run each prompt without a draft and as ``command`` specifies, ``repeat`` times with the seeds s, s + 1, … of
    ``command``.

    One uncounted run of each comes first. A prompt that can't be answered is reported once, with the reason. Raises
    `Canceled` if the engine is told to stop, and `EngineEndedError`.
    """
    first = command.seed or 0
    tasks = [task_of(prompt, command, first + turn) for turn in range(repeat) for prompt in prompts]
    return carry_out(engine, Steps.of_set(tasks))


def carry_out(engine: Engine, steps: Steps) -> Iterator[Comparison | Skipped]:
    """The results, one by one. Raises as `compare` does."""
    while (found := steps.next()) is not None:
        try:
            match found:
                case Generate():
                    steps.finish(_generate(engine, found, steps.add))
                case ScoreTokens():
                    steps.score(engine.score_tokens(found))
                case Compared():
                    yield found.comparison
                case Skipped():
                    yield found
        except EngineEndedError:
            raise
        except KnownError as error:
            steps.fail(str(error))


def _generate(
    engine: Engine, command: Generate, on_round: Callable[[Round], None] = lambda _: None
) -> GenerationFinished:
    for event in engine.generate(command):
        if isinstance(event, Round):
            on_round(event)
        elif isinstance(event, GenerationFinished):
            if event.finish_reason == "cancelled":
                raise Canceled
            return event
    raise AssertionError("a generation always finishes")


# ---------------------------------------------------------------- the curve


@dataclass
class _Speed:
    """Tokens after the first of several answers, and the seconds they took."""

    tokens: int = 0
    seconds: float = 0.0
    tested: int = 0
    passes: int = 0

    def add(self, figures: Figures) -> None:
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

    All lengths take turns with each prompt, from short to long and from long to short, so that a changing machine
    affects them equally. All ``prompts`` must fit in the context. ``on_progress`` gets the number of runs done and in
    total. Raises `Canceled` if the engine is told to stop.
    """
    lengths: list[DraftLength] = [*CURVE_LENGTHS, "auto"]
    speeds: dict[DraftLength, _Speed] = {length: _Speed() for length in lengths}
    command = msgspec.structs.replace(command, seed=command.seed or 0)
    total = len(prompts) * len(lengths)
    done = 0
    for number, prompt in enumerate(prompts):
        for length in lengths[:: -1 if number % 2 else 1]:
            asked = msgspec.structs.replace(command, messages=prompt.messages, draft_length=length)
            speeds[length].add(_generate(engine, asked).figures)
            done += 1
            on_progress(done, total)
    auto = speeds["auto"]
    return Curve(
        lengths=list(CURVE_LENGTHS),
        speeds=[speeds[length].value() for length in CURVE_LENGTHS],
        auto=auto.value(),
        auto_length=auto.tested / auto.passes if auto.passes else None,
    )
