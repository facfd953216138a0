"""Has prompts answered plain and with draft by the engine that the chat uses too, one run after the other. No widgets.

A comparison is never interrupted by the chat: a message sent meanwhile is answered before the next prompt, and the
comparison goes on after that answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.compare.prompts import Prompt
from app.compare.results import Collector, Comparison, Run, Skipped, first_difference, score_command, with_scores
from app.protocol.messages import (
    GenerationFailed,
    GenerationFinished,
    Piece,
    PromptProgressed,
    Round,
    TokensScored,
)
from app.ui.chat.conversation import AnswerSettings
from app.ui.engine.interface import Engine, EngineState

WARM_UP_TOKENS = 32
ENGINE_LOST = "The engine ended, so the comparison ended too. The main window says why, and restarts it."
PAIR_GIVEN_UP = "Another pair is loaded, so the comparison ended."
NO_PAIR = "No model is loaded."
DIED = "The engine is not running."

_CANNOT_START = {EngineState.EMPTY: NO_PAIR, EngineState.STOPPED: DIED, EngineState.DIED: DIED}


@dataclass(frozen=True)
class Task:
    """One prompt and how it is answered."""

    prompt: Prompt
    seed: int
    settings: AnswerSettings
    """Its draft length is that of the run with draft."""


@dataclass(frozen=True)
class Compared:
    """What came of a task; the pieces say where each token came from."""

    task: Task
    comparison: Comparison
    plain: list[Piece]
    drafted: list[Piece]


@dataclass(frozen=True)
class End:
    """How a comparison ended. ``message``: why it failed, in words for the user."""

    kind: Literal["done", "stopped", "failed"]
    message: str = ""


@dataclass(frozen=True)
class _Step:
    """One answer to be written. ``limit``: so many tokens at most, and the run does not count."""

    task: int
    drafted: bool
    limit: int | None = None


@dataclass
class _Writing:
    """The answer being written."""

    step: _Step
    collector: Collector = field(default_factory=Collector)
    pieces: list[Piece] = field(default_factory=list)

    def add(self, round_: Round) -> None:
        self.collector.add(round_)
        self.pieces += round_.pieces


class Runner(QObject):
    """Works through one list of tasks at a time.

    Signals:
        waiting_changed: Whether it waits for the engine.
        run_begun: Number of the task, and whether the run has a draft.
        prompt_progressed: Tokens of the prompt done, and all of them; also before the first run.
        rounds_received: Rounds of the run.
        run_ended: Whether the run had a draft, and the `Run`.
        draft_failed: Why the draft ended before the answer, in words for the user.
        compared: The `Compared` of a task.
        left_out: A prompt the engine refused, as `Skipped`.
        ended: The `End`.
    """

    waiting_changed = Signal(bool)
    run_begun = Signal(int, bool)
    prompt_progressed = Signal(int, int)
    rounds_received = Signal(list)
    run_ended = Signal(bool, object)
    draft_failed = Signal(str)
    compared = Signal(object)
    left_out = Signal(object)
    ended = Signal(object)

    def __init__(self, engine: Engine, is_wanted: Callable[[], bool], parent: QObject | None = None) -> None:
        """``is_wanted``: whether the chat needs the engine; `go_on` tells that it no longer does."""
        super().__init__(parent)
        self._engine = engine
        self._is_wanted = is_wanted
        self._tasks: list[Task] = []
        self._steps: deque[_Step] = deque()
        self._runs: dict[bool, tuple[Run, list[Piece]]] = {}
        self._writing: _Writing | None = None
        self._scoring: Compared | None = None
        """What only the scores of its two tokens are missing from."""
        self._request = 0
        self._is_running = False
        self._is_waiting = False
        self._has_result = False
        engine.state_changed.connect(self._on_state_changed)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)
        engine.tokens_scored.connect(self._on_tokens_scored)

    # ------------------------------------------------------------ what one asks of it

    def is_running(self) -> bool:
        return self._is_running

    def is_waiting(self) -> bool:
        """Whether it is not at work because the engine is not free."""
        return self._is_waiting

    def start_one(self, task: Task) -> None:
        """Compare one answer: plain, then with draft. The prompt is read before, so that both runs begin alike."""
        self._start([task], [_Step(0, drafted=True, limit=1), _Step(0, drafted=False), _Step(0, drafted=True)])

    def start_set(self, tasks: Sequence[Task]) -> None:
        """Compare prompts, all with the first seed, then all with the next; which run comes first alternates.

        Two short runs before do not count.
        """
        steps = [_Step(0, drafted=drafted, limit=WARM_UP_TOKENS) for drafted in (False, True)]
        first_seed = tasks[0].seed
        prompts = sum(task.seed == first_seed for task in tasks)
        for number, task in enumerate(tasks):
            # Of a prompt that is repeated with the next seed the other run is first.
            first = bool((number % prompts + task.seed - first_seed) % 2)
            steps += [_Step(number, drafted=first), _Step(number, drafted=not first)]
        self._start(tasks, steps)

    @Slot()
    def stop(self) -> None:
        """End at once; the engine follows within one verify pass."""
        if self._is_running:
            if self._request:
                self._engine.cancel()
            self._end(End("stopped"))

    def give_up(self, message: str) -> None:
        """The engine is gone or gets another pair; ``message`` says it to the user."""
        if self._is_running:
            self._end(End("failed", message))

    @Slot()
    def go_on(self) -> None:
        """The engine may be free; begins the next prompt if it is."""
        if self._is_waiting:
            QTimer.singleShot(0, self, self._next_task)

    # ------------------------------------------------------------ steps

    def _start(self, tasks: Sequence[Task], steps: list[_Step]) -> None:
        if self._is_running:
            raise RuntimeError("a comparison is running")
        self._tasks, self._steps = list(tasks), deque(steps)
        self._runs.clear()
        self._is_running, self._has_result = True, False
        if (reason := _CANNOT_START.get(self._engine.state())) is not None:
            self._end(End("failed", reason))
        else:
            self._next_task()

    @Slot()
    def _next_task(self) -> None:
        """Begin the next prompt, if the engine is free and the chat does not want it."""
        if not self._is_running or self._request:
            return
        waits = self._engine.state() is not EngineState.READY or self._is_wanted()
        self._set_waiting(waits)
        if not waits:
            self._next_run()

    def _next_run(self) -> None:
        step = self._steps.popleft()
        task = self._tasks[step.task]
        settings = task.settings
        self._writing = _Writing(step)
        if step.limit is None:
            self.run_begun.emit(step.task, step.drafted)
            if not self._is_running:
                return  # given up by whoever heard of it
        self._request = self._engine.generate(
            task.prompt.messages,
            sampling=settings.sampling,
            seed=task.seed,
            max_tokens=settings.max_tokens if step.limit is None else step.limit,
            stop=settings.stop,
            draft_length=settings.draft_length if step.drafted else 0,
            accept=settings.accept,
            drafter=settings.drafter,
            propose=settings.propose,
            compared=True,
        )

    def _run_over(self, step: _Step, run: Run, pieces: list[Piece]) -> None:
        self._runs[step.drafted] = run, pieces
        self.run_ended.emit(step.drafted, run)
        if len(self._runs) < 2:
            self._next_run()
            return
        (plain, plain_pieces), (drafted, drafted_pieces) = self._runs[False], self._runs[True]
        self._runs.clear()
        task = self._tasks[step.task]
        comparison = Comparison(
            prompt=task.prompt,
            seed=task.seed,
            plain=plain,
            drafted=drafted,
            difference=first_difference(plain, drafted),
        )
        compared = Compared(task, comparison, plain_pieces, drafted_pieces)
        if not self._ask_for_scores(compared):
            self._task_over(compared)

    def _ask_for_scores(self, compared: Compared) -> bool:
        """Have the target look again at the two tokens in which the answers part; whether that can be done."""
        command = score_command(0, compared.comparison, compared.task.settings.sampling)
        if command is None:
            return False
        self._request = self._engine.score_tokens(
            command.messages, command.answer, command.candidates, sampling=command.sampling, seed=command.seed
        )
        self._scoring = compared if self._request else None
        return self._request != 0

    def _task_over(self, compared: Compared) -> None:
        self._has_result = True
        self.compared.emit(compared)
        self._go_to_next_task(End("done"))

    def _go_to_next_task(self, otherwise: End) -> None:
        if not self._is_running:
            return  # stopped by whoever heard of the last one
        if self._steps:
            self._next_task()
        else:
            self._end(otherwise)

    def _end(self, end: End) -> None:
        self._request = 0
        self._writing = self._scoring = None
        self._steps.clear()
        self._runs.clear()
        self._is_running = False
        self._set_waiting(False)
        self.ended.emit(end)

    def _set_waiting(self, waits: bool) -> None:
        if waits != self._is_waiting:
            self._is_waiting = waits
            self.waiting_changed.emit(waits)

    # ------------------------------------------------------------ what the engine says

    @Slot(EngineState)
    def _on_state_changed(self, state: EngineState) -> None:
        if not self._is_running:
            return
        if state in _CANNOT_START:
            self.give_up(ENGINE_LOST if self._request else _CANNOT_START[state])
        elif self._request and state is EngineState.LOADING:
            self.give_up(PAIR_GIVEN_UP)
        elif state is EngineState.READY:
            self.go_on()

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        if self._is_mine(progress.request):
            self.prompt_progressed.emit(progress.done, progress.total)

    @Slot(list)
    def _on_rounds_received(self, rounds: list[Round]) -> None:
        # They name no request, but while there is one of ours there is no other.
        if not self._request or self._writing is None:
            return
        for one in rounds:
            self._writing.add(one)
        if self._writing.step.limit is None:
            self.rounds_received.emit(rounds)

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        writing = self._writing
        if writing is None or not self._is_mine(finished.request):
            return
        self._request, self._writing = 0, None
        if finished.finish_reason == "cancelled":
            self._end(End("stopped"))
            return
        if finished.draft_failure:
            self.draft_failed.emit(finished.draft_failure)
        if writing.step.limit is not None:
            self._next_run()
            return
        self._run_over(writing.step, writing.collector.finish(finished), writing.pieces)

    @Slot(object)
    def _on_generation_failed(self, failed: GenerationFailed) -> None:
        if not self._is_mine(failed.request):
            return
        self._request = 0
        if self._scoring is not None:
            compared, self._scoring = self._scoring, None
            self._task_over(compared)  # where they part is known, only not by how little
        elif self._writing is not None:
            number = self._writing.step.task
            self._writing = None
            self._runs.clear()
            prompt = self._tasks[number].prompt
            # With another seed it would be refused again.
            self._steps = deque(step for step in self._steps if self._tasks[step.task].prompt is not prompt)
            self.left_out.emit(Skipped(prompt=prompt, reason=failed.message))
            self._go_to_next_task(End("done") if self._has_result else End("failed", failed.message))

    @Slot(object)
    def _on_tokens_scored(self, scored: TokensScored) -> None:
        if self._scoring is None or not self._is_mine(scored.request):
            return
        self._request = 0
        compared, self._scoring = self._scoring, None
        assert compared.comparison.difference is not None
        difference = with_scores(compared.comparison.difference, scored)
        comparison = msgspec.structs.replace(compared.comparison, difference=difference)
        self._task_over(replace(compared, comparison=comparison))

    def _is_mine(self, request: int) -> bool:
        return self._request != 0 and request == self._request
