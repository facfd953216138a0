"""Comparisons step by step: what to ask an engine, in which order.

`carry_out` runs the steps on an engine and waits for each; the window runs them by events (`app.ui.compare.runner`).
The runs of a prompt, one without a draft and one with each drafter, follow each other, and each goes first in turn, so
that a changing machine affects all equally.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from app.client.connection import EngineEndedError
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Curve, Run, Skipped, first_difference, score_command, with_scores
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import (
    Figures,
    GenerationFinished,
    GenerationStarted,
    Piece,
    PromptProgressed,
    Round,
    TokensScored,
)
from app.protocol.options import DrafterChoice, DraftLength
from app.system import Canceled, KnownError

_log = logging.getLogger("slipstream.compare")


@dataclass(frozen=True)
class Task:
    """A prompt, and the command to answer it with a draft."""

    prompt: Prompt
    command: Generate

    @property
    def seed(self) -> int:
        return self.command.seed or 0


def task_of(prompt: Prompt, command: Generate, seed: int) -> Task:
    """``prompt``, answered as ``command`` specifies. Fixes the date, so that both runs see the same one around
    midnight.
    """
    first, *others = prompt.messages
    dated = msgspec.structs.replace(first, sent_at=first.sent_at or time.time())
    return Task(prompt, msgspec.structs.replace(command, messages=[dated, *others], seed=seed))


@dataclass(frozen=True)
class Step:
    """One answer to be written."""

    number: int
    """The number of the task."""
    drafter: DrafterChoice | None
    """``None``: without a draft."""
    counts: bool = True
    limit: int | None = None
    """In tokens, if lower than the task's own limit."""


class Steps:
    """A list of tasks being worked through.

    `next` returns the next step: a command for the engine, whose response goes to `add`, `finish`, `score` or `fail`,
    or a finished result.

    Attributes:
        step: The answer being written.
    """

    def __init__(self, tasks: Sequence[Task], steps: Sequence[Step]) -> None:
        self._tasks = list(tasks)
        self._steps = deque(steps)
        self.step: Step | None = None
        self._pieces: list[Piece] = []
        self._drafting_seconds = 0.0
        self._runs: dict[DrafterChoice | None, Run] = {}
        """The finished runs of the current task; ``None`` is the one without a draft."""
        self._results: deque[Comparison | Skipped] = deque()
        self._scoring: deque[Comparison] = deque()
        """Comparisons that still need scores for their two tokens."""

    @classmethod
    def of_one(cls, task: Task) -> Steps:
        """One prompt without a draft, then with one. It is processed first, so that both runs start the same."""
        drafter = task.command.drafter
        return cls([task], [Step(0, drafter, counts=False, limit=1), Step(0, None), Step(0, drafter)])

    @classmethod
    def of_set(
        cls, tasks: Sequence[Task], warm_up_tokens: int | None = None, drafters: Sequence[DrafterChoice] = ()
    ) -> Steps:
        """Prompts, all with the first seed, then all with the next, with each of ``drafters`` (by default the tasks'
        own); which run comes first changes each time. Before that, an uncounted run of each, limited to
        ``warm_up_tokens``, loads everything into memory, and lets ``auto`` learn the acceptance rate.
        """
        ways = [None, *(drafters or [tasks[0].command.drafter])]
        steps = [Step(0, way, counts=False, limit=warm_up_tokens) for way in ways]
        prompts = sum(task.seed == tasks[0].seed for task in tasks)
        for number in range(len(tasks)):
            turn, place = divmod(number, prompts)
            first = (turn + place) % len(ways)  # with the next seed, another run comes first
            steps += [Step(number, way) for way in ways[first:] + ways[:first]]
        return cls(tasks, steps)

    # ------------------------------------------------------------ what is to be done

    def is_done(self) -> bool:
        return not (self._steps or self._results or self._scoring or self.step)

    def next(self) -> Generate | ScoreTokens | Comparison | Skipped | None:
        """The next step; ``None`` when everything is done. Not to be called while an answer is being written."""
        if self._results:
            return self._results.popleft()
        if self._scoring:
            return score_command(self._scoring[0])
        if not self._steps:
            return None
        self.step = step = self._steps.popleft()
        self._pieces, self._drafting_seconds = [], 0.0
        command = self._tasks[step.number].command
        return msgspec.structs.replace(
            command,
            drafter=step.drafter or command.drafter,
            draft_length=command.draft_length if step.drafter else 0,
            max_tokens=command.max_tokens if step.limit is None else step.limit,
        )

    # ------------------------------------------------------------ what the engine reports

    def add(self, round_: Round) -> None:
        """Add a round of the answer."""
        self._pieces += round_.pieces
        self._drafting_seconds += round_.draft_seconds if round_.drafted else 0.0

    def finish(self, finished: GenerationFinished) -> Run:
        """The answer has ended with this result."""
        step, self.step = self.step, None
        assert step is not None
        run = Run(
            pieces=self._pieces,
            figures=finished.figures,
            finish_reason=finished.finish_reason,
            drafting_seconds=self._drafting_seconds,
            draft_failure=finished.draft_failure,
        )
        if step.counts:
            self._runs[step.drafter] = run
        if self._runs and not any(one.number == step.number for one in self._steps):
            self._compare(self._tasks[step.number])
        return run

    def score(self, scored: TokensScored) -> None:
        """Add how the target scores the two tokens at which the answers start to differ."""
        comparison = self._scoring.popleft()
        assert comparison.difference is not None
        difference = with_scores(comparison.difference, scored)
        self._results.append(msgspec.structs.replace(comparison, difference=difference))

    def fail(self, message: str) -> None:
        """The engine couldn't answer; ``message`` says why."""
        if self._scoring:
            _log.info("a difference could not be scored: %s", message)
            self._results.append(self._scoring.popleft())  # report the difference without scores
        elif self.step is not None:
            step, self.step = self.step, None
            self._leave_out(step, message)

    def _leave_out(self, step: Step, message: str) -> None:
        """Skip the prompt with all seeds, because it would be refused every time."""
        self._runs.clear()
        prompt = self._tasks[step.number].prompt
        self._results.append(Skipped(prompt=prompt, reason=message))
        warm_up = [one for one in (step, *self._steps) if not one.counts]
        self._steps = deque(one for one in self._steps if one.counts and self._tasks[one.number].prompt is not prompt)
        if self._steps:
            self._steps.extendleft(replace(one, number=self._steps[0].number) for one in reversed(warm_up))

    def _compare(self, task: Task) -> None:
        """All runs of a task have ended."""
        plain = self._runs.pop(None)
        for drafter, drafted in self._runs.items():
            assert drafter is not None
            comparison = Comparison(
                prompt=task.prompt,
                seed=task.seed,
                command=msgspec.structs.replace(task.command, drafter=drafter),
                drafter=drafter,
                plain=plain,
                drafted=drafted,
                difference=first_difference(plain, drafted),
            )
            (self._results if score_command(comparison) is None else self._scoring).append(comparison)
        self._runs.clear()


# Runs comparisons on an engine and waits for each answer.

CURVE_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


class Engine(Protocol):
    """What comparisons need of an engine: `app.client.process.EngineProcess` implements it."""

    def generate(
        self, command: Generate
    ) -> Iterator[GenerationStarted | PromptProgressed | Round | GenerationFinished]: ...

    def score_tokens(self, command: ScoreTokens) -> TokensScored: ...


def compare(
    engine: Engine,
    prompts: Sequence[Prompt],
    command: Generate,
    repeat: int = 1,
    drafters: Sequence[DrafterChoice] = (),
) -> Iterator[Comparison | Skipped]:
    """Run each prompt without a draft and as ``command`` specifies, with each of ``drafters`` (by default its own) and
    ``repeat`` seeds, the first being its own.

    Starts with an uncounted run of each. A prompt that can't be answered is reported once, with the reason. Raises
    `Canceled` if the engine is told to stop, and `EngineEndedError`.
    """
    first = command.seed or 0
    tasks = [task_of(prompt, command, first + turn) for turn in range(repeat) for prompt in prompts]
    return carry_out(engine, Steps.of_set(tasks, drafters=drafters))


def carry_out(engine: Engine, steps: Steps) -> Iterator[Comparison | Skipped]:
    """The results, one by one. Raises as `compare` does."""
    while (found := steps.next()) is not None:
        try:
            match found:
                case Generate():
                    steps.finish(_generate(engine, found, steps.add))
                case ScoreTokens():
                    steps.score(engine.score_tokens(found))
                case Comparison() | Skipped():
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
    """The tokens after the first of several answers, and the seconds they took."""

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


def curves(
    engine: Engine,
    prompts: Sequence[Prompt],
    command: Generate,
    drafters: Sequence[DrafterChoice],
    on_progress: Callable[[int, int], None],
) -> list[Curve]:
    """Decode speeds with each of `CURVE_LENGTHS` and ``auto``, over the same prompts and seed, for each of ``drafters``
    (by default that of ``command``).

    For each prompt all take turns, up and then down, so that a changing machine affects them equally. All ``prompts``
    must fit in the context. ``on_progress`` gets the runs done and the total. Raises `Canceled` if the engine is told
    to stop.
    """
    drafters = drafters or [command.drafter]
    plain: tuple[DrafterChoice, DraftLength] = "none", 0
    speeds = {plain: _Speed()}
    speeds |= {(drafter, length): _Speed() for drafter in drafters for length in (*CURVE_LENGTHS[1:], "auto")}
    command = msgspec.structs.replace(command, seed=command.seed or 0)
    total, done = len(prompts) * len(speeds), 0
    for number, prompt in enumerate(prompts):
        for drafter, length in list(speeds)[:: -1 if number % 2 else 1]:
            asked = msgspec.structs.replace(command, messages=prompt.messages, drafter=drafter, draft_length=length)
            speeds[drafter, length].add(_generate(engine, asked).figures)
            done += 1
            on_progress(done, total)
    return [
        _curve(drafter, [speeds[plain], *(speeds[drafter, n] for n in CURVE_LENGTHS[1:])], speeds[drafter, "auto"])
        for drafter in drafters
    ]


def _curve(drafter: DrafterChoice, fixed: Sequence[_Speed], auto: _Speed) -> Curve:
    return Curve(
        drafter=drafter,
        lengths=list(CURVE_LENGTHS),
        speeds=[speed.value() for speed in fixed],
        auto=auto.value(),
        auto_length=auto.tested / auto.passes if auto.passes else None,
    )
