"""Has prompts answered with and without a draft by the engine that the chat uses, one run after another. No widgets.

The chat never interrupts a run: a message sent in the meantime is answered before the next prompt, and the comparison
continues after that answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.compare.results import Skipped
from app.compare.steps import Compared, Steps, Task
from app.protocol.commands import Generate, ScoreTokens
from app.protocol.events import GenerationFailed, GenerationFinished, PromptProgressed, RoundsReceived, TokensScored
from app.ui.engine.client import EngineClient, EngineState

WARM_UP_TOKENS = 32
ENGINE_LOST = "The engine stopped, so the comparison was canceled. The main window says why and can restart it."
PAIR_GIVEN_UP = "Another pair was loaded, so the comparison was canceled."
NO_PAIR = "No model is loaded."
DIED = "The engine isn't running."

_GONE = ("unreachable", "key", "offline")
"""Failures that every other prompt would meet as well."""
_CANNOT_START = {EngineState.EMPTY: NO_PAIR, EngineState.STOPPED: DIED, EngineState.DIED: DIED}


@dataclass(frozen=True)
class End:
    """How a comparison ended. ``message``: why, for the user."""

    kind: Literal["done", "stopped", "failed"]
    message: str = ""


class Runner(QObject):
    """Works through one list of tasks at a time.

    Attributes:
        may_ask: Called before each answer is requested; an `End` it returns ends the comparison.

    Signals:
        waiting_changed: Whether it waits for the engine.
        run_begun: Number of the task, and whether the run has a draft.
        prompt_progressed: Tokens of the prompt done, and all of them; also before the first run.
        rounds_received: Rounds of the run.
        run_ended: The `Run`.
        draft_failed: Why the draft ended before the answer, in words for the user.
        compared: The `Compared` of a task.
        left_out: A prompt the engine refused, as `Skipped`.
        ended: The `End`.
    """

    waiting_changed = Signal(bool)
    run_begun = Signal(int, bool)
    prompt_progressed = Signal(int, int)
    rounds_received = Signal(list)
    run_ended = Signal(object)
    draft_failed = Signal(str)
    compared = Signal(object)
    left_out = Signal(object)
    ended = Signal(object)

    def __init__(self, engine: EngineClient, is_wanted: Callable[[], bool], parent: QObject | None = None) -> None:
        """``is_wanted``: whether the chat needs the engine; `go_on` reports that it no longer does."""
        super().__init__(parent)
        self._engine = engine
        self._is_wanted = is_wanted
        self.may_ask: Callable[[], End | None] = lambda: None
        self._steps: Steps | None = None
        """Only while it is running."""
        self._request = 0
        self._is_waiting = False
        self._has_result = False
        self._refusal = ""
        """Why the last prompt was skipped."""
        engine.state_changed.connect(self._on_state_changed)
        engine.prompt_progressed.connect(self._on_prompt_progressed)
        engine.rounds_received.connect(self._on_rounds_received)
        engine.generation_finished.connect(self._on_generation_finished)
        engine.generation_failed.connect(self._on_generation_failed)
        engine.tokens_scored.connect(self._on_tokens_scored)

    # ------------------------------------------------------------ for callers

    def is_running(self) -> bool:
        return self._steps is not None

    def is_waiting(self) -> bool:
        """Whether it is waiting because the engine isn't free."""
        return self._is_waiting

    def start_one(self, task: Task) -> None:
        """Compare one answer: without a draft, then with one."""
        self._start(Steps.of_one(task))

    def start_set(self, tasks: Sequence[Task]) -> None:
        """Compare prompts, all with the first seed, then all with the next, after two short runs that don't count."""
        self._start(Steps.of_set(tasks, WARM_UP_TOKENS))

    @Slot()
    def stop(self) -> None:
        """Stop at once; the engine stops within one verify pass."""
        if self.is_running():
            if self._request:
                self._engine.cancel()
            self._end(End("stopped"))

    def give_up(self, message: str) -> None:
        """The engine is gone or gets another pair; ``message`` tells the user."""
        if self.is_running():
            if self._request and self._engine.state() is EngineState.COMPARING:
                self._engine.cancel()
            self._end(End("failed", message))

    @Slot()
    def go_on(self) -> None:
        """The engine may be free; starts the next prompt if it is."""
        if self._is_waiting:
            QTimer.singleShot(0, self, self._next_task)

    # ------------------------------------------------------------ steps

    def _start(self, plan: Steps) -> None:
        if self.is_running():
            raise RuntimeError("a comparison is running")
        self._steps = plan
        self._has_result, self._refusal = False, ""
        if (reason := _CANNOT_START.get(self._engine.state())) is not None:
            self._end(End("failed", reason))
        else:
            self._next_task()

    @Slot()
    def _next_task(self) -> None:
        """Start the next prompt, if the engine is free and the chat doesn't need it."""
        if not self.is_running() or self._request:
            return
        is_free = self._engine.state() is EngineState.READY and not self._is_wanted()
        self._set_waiting(not is_free)
        if is_free:
            self._next_step()

    def _next_step(self) -> None:
        if self._steps is None:
            return  # stopped by the receiver of the last signal
        match found := self._steps.next():
            case Generate():
                self._ask_for_answer(found)
            case ScoreTokens():
                self._request = self._engine.ask(found)
                if not self._request:
                    self._steps.fail("this engine doesn't report scores")
                    self._next_step()
            case Compared():
                self._has_result = True
                self.compared.emit(found)
                self._task_over()
            case Skipped():
                self._refusal = found.reason
                self.left_out.emit(found)
                self._task_over()

    def _ask_for_answer(self, command: Generate) -> None:
        assert self._steps is not None and self._steps.step is not None
        step = self._steps.step
        if (end := self.may_ask()) is not None:
            self._end(end)
            return
        if step.counts:
            self.run_begun.emit(step.number, step.drafted)
            if not self.is_running():
                return  # given up by its receiver
        self._request = self._engine.ask(command, compared=True)

    def _task_over(self) -> None:
        if self._steps is None:
            return  # stopped by its receiver
        if not self._steps.is_done():
            self._next_task()
        elif self._has_result:
            self._end(End("done"))
        else:
            self._end(End("failed", self._refusal))

    def _end(self, end: End) -> None:
        self._request = 0
        self._steps = None
        self._set_waiting(False)
        self.ended.emit(end)

    def _set_waiting(self, waits: bool) -> None:
        if waits != self._is_waiting:
            self._is_waiting = waits
            self.waiting_changed.emit(waits)

    # ------------------------------------------------------------ what the engine reports

    @Slot(EngineState)
    def _on_state_changed(self, state: EngineState) -> None:
        if not self.is_running():
            return
        if state in _CANNOT_START:
            self.give_up(ENGINE_LOST if self._request else _CANNOT_START[state])
        elif self._request and state is EngineState.LOADING:
            self.give_up(PAIR_GIVEN_UP)
        elif state is EngineState.READY:
            self.go_on()

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        if self._is_own(progress.request):
            self.prompt_progressed.emit(progress.done, progress.total)

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        if self._steps is None or not self._is_own(event.request):
            return
        for one in event.rounds:
            self._steps.add(one)
        if self._steps.step is not None and self._steps.step.counts:
            self.rounds_received.emit(event.rounds)

    @Slot(object)
    def _on_generation_finished(self, finished: GenerationFinished) -> None:
        if self._steps is None or not self._is_own(finished.request):
            return
        self._request = 0
        if finished.finish_reason == "cancelled":
            self._end(End("stopped"))
            return
        running = self._steps
        step, run = running.step, running.finish(finished)
        if finished.draft_failure:
            self.draft_failed.emit(finished.draft_failure)
        if step is not None and step.counts:
            self.run_ended.emit(run)
        if self._steps is running:  # not stopped by its receiver
            self._next_step()

    @Slot(object)
    def _on_generation_failed(self, failed: GenerationFailed) -> None:
        if self._steps is not None and self._is_own(failed.request):
            self._request = 0
            if failed.cause in _GONE:
                self._end(End("failed", failed.message))
                return
            self._steps.fail(failed.message)
            self._next_step()

    @Slot(object)
    def _on_tokens_scored(self, scored: TokensScored) -> None:
        if self._steps is not None and self._is_own(scored.request):
            self._request = 0
            self._steps.score(scored)
            self._next_step()

    def _is_own(self, request: int) -> bool:
        return self._request != 0 and request == self._request
