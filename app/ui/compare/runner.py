"""Has prompts answered with and without a draft by the engine that the chat uses, one run after another. No widgets.

The chat never interrupts a run on its engine: a message sent in the meantime is answered before the next prompt, and
the comparison continues after that answer. Where a second engine answers without a draft, the chat's own one is free
meanwhile and answers at once; the interrupted run is done again, because both may share a machine.
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
from app.ui.engine.interface import Engine, EngineState

WARM_UP_TOKENS = 32
ENGINE_LOST = "The engine stopped, so the comparison was canceled. The main window says why and can restart it."
PAIR_GIVEN_UP = "Another pair was loaded, so the comparison was canceled."
NO_PAIR = "No model is loaded."
DIED = "The engine isn't running."
SECOND_LOST = "The connection to the server without a draft ended unexpectedly, so the comparison was canceled."

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

    def __init__(
        self,
        engine: Engine,
        is_wanted: Callable[[], bool],
        parent: QObject | None = None,
        *,
        second: Engine | None = None,
    ) -> None:
        """``is_wanted``: whether the chat needs the engine; `go_on` reports that it no longer does. ``second`` answers
        without a draft if a comparison is started ``on_two``.
        """
        super().__init__(parent)
        self._engine = engine
        self._second = second
        self._is_wanted = is_wanted
        self.may_ask: Callable[[], End | None] = lambda: None
        self._on_two = False
        self._asked = engine
        """Which of them `_request` is a request of."""
        self._steps: Steps | None = None
        """Only while it is running."""
        self._request = 0
        self._is_waiting = False
        self._has_result = False
        self._refusal = ""
        """Why the last prompt was skipped."""
        engine.state_changed.connect(self._on_state_changed)
        if second is not None:
            second.state_changed.connect(self._on_second_changed)
        for one in (engine, second) if second is not None else (engine,):
            one.prompt_progressed.connect(self._on_prompt_progressed)
            one.rounds_received.connect(self._on_rounds_received)
            one.generation_finished.connect(self._on_generation_finished)
            one.generation_failed.connect(self._on_generation_failed)
            one.tokens_scored.connect(self._on_tokens_scored)

    # ------------------------------------------------------------ for callers

    def is_running(self) -> bool:
        return self._steps is not None

    def is_waiting(self) -> bool:
        """Whether it is waiting because the engine isn't free."""
        return self._is_waiting

    def is_on_two(self) -> bool:
        """Whether what is running needs the second engine."""
        return self.is_running() and self._on_two

    def start_one(self, task: Task, *, on_two: bool = False) -> None:
        """Compare one answer: without a draft, then with one."""
        self._start(Steps.of_one(task, on_two=on_two), on_two)

    def start_set(self, tasks: Sequence[Task], *, on_two: bool = False) -> None:
        """Compare prompts, all with the first seed, then all with the next, after two short runs that don't count."""
        self._start(Steps.of_set(tasks, WARM_UP_TOKENS), on_two)

    @Slot()
    def stop(self) -> None:
        """Stop at once; the engine stops within one verify pass."""
        if self.is_running():
            if self._request:
                self._asked.cancel()
            self._end(End("stopped"))

    def give_up(self, message: str) -> None:
        """An engine is gone or gets another pair; ``message`` tells the user."""
        if self.is_running():
            if self._request and self._asked.state() is EngineState.COMPARING:
                self._asked.cancel()
            self._end(End("failed", message))

    @Slot()
    def go_on(self) -> None:
        """The engine may be free; starts the next prompt if it is."""
        if self._is_waiting:
            QTimer.singleShot(0, self, self._next_task)

    # ------------------------------------------------------------ steps

    def _start(self, plan: Steps, on_two: bool) -> None:
        if self.is_running():
            raise RuntimeError("a comparison is running")
        self._steps, self._on_two = plan, on_two
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
        is_free = self._is_free()
        self._set_waiting(not is_free)
        if is_free:
            self._next_step()

    def _is_free(self) -> bool:
        needed = [self._engine, *([self._second] if self._on_two and self._second is not None else [])]
        return all(one.state() is EngineState.READY for one in needed) and not self._is_wanted()

    def _next_step(self) -> None:
        if self._steps is None:
            return  # stopped by the receiver of the last signal
        match found := self._steps.next():
            case Generate():
                self._ask_for_answer(found)
            case ScoreTokens():
                self._asked = self._engine
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
        if self._on_two and not self._is_free():  # between its runs the chat may have come
            self._steps.put_back()
            self._set_waiting(True)
            return
        if (end := self.may_ask()) is not None:
            self._end(end)
            return
        if step.counts:
            self.run_begun.emit(step.number, step.drafted)
            if not self.is_running():
                return  # given up by its receiver
        second = self._second if self._on_two and not step.drafted else None
        self._asked = second or self._engine
        self._request = self._asked.ask(command, compared=True)

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
        elif self._request and self._asked is not self._engine:
            self._interrupt()

    def _interrupt(self) -> None:
        """The chat is being answered: the second engine begins again after that."""
        assert self._steps is not None
        self._request = 0
        self._asked.cancel()
        self._steps.put_back()
        self._set_waiting(True)

    @Slot(EngineState)
    def _on_second_changed(self, state: EngineState) -> None:
        if not self.is_running() or not self._on_two:
            return
        if state.has_ended:
            self.give_up(SECOND_LOST)
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
            message = self._of_server(failed.message)
            if failed.cause in _GONE:
                self._end(End("failed", message))
                return
            self._steps.fail(message)
            self._next_step()

    def _of_server(self, message: str) -> str:
        """Of two servers, the one that failed is named."""
        if not self._on_two:
            return message
        which = "with" if self._asked is self._engine else "without"
        return f"The server {which} a draft failed. {message}"

    @Slot(object)
    def _on_tokens_scored(self, scored: TokensScored) -> None:
        if self._steps is not None and self._is_own(scored.request):
            self._request = 0
            self._steps.score(scored)
            self._next_step()

    def _is_own(self, request: int) -> bool:
        """Whether the current signal is about the current request; the numbers of two engines may be equal."""
        return self._request != 0 and request == self._request and self.sender() is self._asked
