"""Has prompts answered with and without a draft by the engine that the chat uses, one run after another. No widgets.

A prompt has the engine for both of its runs, so that they meet the same conditions; between two prompts chats go first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from PySide6.QtCore import QObject, Signal, Slot

from app.chats.model import StoredMessage
from app.compare import report as reports
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Report, Setup, Skipped
from app.compare.setup import hashed, setup_of
from app.compare.steps import Steps, Task
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Generate, ScoreTokens, generate
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    PairLoaded,
    PromptProgressed,
    RoundsReceived,
    TokensScored,
)
from app.protocol.options import DRAFTER_WORDS, HEADS, DrafterChoice, LoadSettings
from app.storage.files import write_export
from app.system import KnownError
from app.ui.chat.conversation import conversation
from app.ui.chat.footer import figures_of
from app.ui.context import AppContext
from app.ui.engine import Priority, pair_names
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair_names import is_author
from app.ui.engine.queue import EngineQueue, Job, Loss
from app.ui.widgets.tasks import BUG

WARM_UP_TOKENS = 32
ENGINE_LOST = "The engine stopped, so the comparison was canceled. The main window says why and can restart it."
PAIR_GIVEN_UP = "Another pair was loaded, so the comparison was canceled."
NO_PAIR = "No model is loaded."
DIED = "The engine isn't running. The main window says why and can restart it."

_GONE = ("unreachable", "key", "offline")
"""Failures that every other prompt would meet as well."""
CANNOT_START = {EngineState.EMPTY: NO_PAIR, EngineState.STOPPED: "The engine isn't running.", EngineState.DIED: DIED}
"""Why no comparison can begin."""


@dataclass(frozen=True)
class End:
    """How a comparison ended. ``message``: why, for the user."""

    kind: Literal["done", "stopped", "failed"]
    message: str = ""


class Runner(QObject):
    """Works through one list of tasks at a time.

    Signals:
        run_begun: Number of the task, and whether the run has a draft.
        prompt_progressed: Tokens of the prompt done, and all of them; also before the first run.
        rounds_received: Rounds of the run.
        run_ended: The `Run`.
        draft_failed: Why the draft ended before the answer, in words for the user.
        compared: The `Comparison` of a task.
        left_out: A prompt the engine refused, as `Skipped`.
        ended: The `End`.
    """

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
        engine: EngineClient,
        queue: EngineQueue,
        parent: QObject | None = None,
        *,
        priority: Priority = Priority.COMPARISON,
        may_ask: Callable[[], End | None] = lambda: None,
    ) -> None:
        """``may_ask`` is called before each answer is requested; an `End` it returns ends the comparison."""
        super().__init__(parent)
        self._engine = engine
        self._queue = queue
        self._priority = priority
        self._may_ask = may_ask
        self._plan: Callable[[], Steps] | None = None
        """Only while it is running."""
        self._steps: Steps | None = None
        self._job: Job | None = None
        """With which the engine is asked for the current task."""
        self._has_begun = self._has_result = False
        self._refusal = ""
        """Why the last prompt was skipped."""

    # ------------------------------------------------------------ for callers

    def is_running(self) -> bool:
        return self._steps is not None

    def waits_for(self) -> list[Priority] | None:
        """What goes first, while it waits for the engine; otherwise ``None``."""
        is_waiting = self._job is not None and not self._job.is_running()
        return self._queue.before(self._job) if is_waiting and self._job is not None else None

    def start_one(self, task: Task) -> None:
        """Compare one answer: without a draft, then with one."""
        self._start(lambda: Steps.of_one(task))

    def start_set(self, tasks: Sequence[Task], drafters: Sequence[DrafterChoice] = ()) -> None:
        """Compare prompts, all with the first seed, then all with the next, after short runs that don't count; with
        each of ``drafters``, by default the tasks' own."""
        self._start(lambda: Steps.of_set(tasks, WARM_UP_TOKENS, drafters))

    @Slot()
    def stop(self) -> None:
        """Stop at once; the engine stops within one verify pass."""
        if self.is_running():
            self._end(End("stopped"))

    def give_up(self, message: str) -> None:
        """It can't go on; ``message`` tells the user why."""
        if self.is_running():
            self._end(End("failed", message))

    # ------------------------------------------------------------ steps

    def _start(self, plan: Callable[[], Steps]) -> None:
        if self.is_running():
            raise RuntimeError("a comparison is running")
        self._plan, self._steps = plan, plan()
        self._has_begun, self._has_result, self._refusal = False, False, ""
        if (reason := CANNOT_START.get(self._engine.state())) is not None:
            self._end(End("failed", reason))
        else:
            self._submit()

    def _submit(self) -> None:
        """Submit the next task."""
        self._job = job = Job(self._next, self._priority, in_series=True)
        job.prompt_progressed.connect(self._on_prompt_progressed)
        job.rounds_received.connect(self._on_rounds_received)
        job.answered.connect(self._on_answered)
        job.failed.connect(self._on_failed)
        job.put_off.connect(self._on_put_off)
        job.lost.connect(self._on_lost)
        self._queue.submit(job)

    def _next(self) -> Generate | ScoreTokens | None:
        """What the task needs next; when it is over, the next one waits for its turn."""
        self._has_begun = True
        if self._steps is None:
            return None
        match found := self._steps.next():
            case Generate():
                return found if self._may_begin() else None
            case ScoreTokens():
                return found
            case Comparison():
                self._has_result = True
                self.compared.emit(found)
            case Skipped():
                self._refusal = found.reason
                self.left_out.emit(found)
        if self.is_running():  # not stopped by the receiver
            self._task_over(self._steps)
        return None

    def _task_over(self, steps: Steps) -> None:
        if not steps.is_done():
            self._submit()
        else:
            self._end(End("done") if self._has_result else End("failed", self._refusal))

    def _may_begin(self) -> bool:
        assert self._steps is not None and self._steps.step is not None
        if (end := self._may_ask()) is not None:
            self._end(end)
        elif (step := self._steps.step).counts:
            self.run_begun.emit(step.number, step.drafter is not None)  # its receiver may give up
        return self.is_running()

    def _end(self, end: End) -> None:
        job, self._job, self._plan, self._steps = self._job, None, None, None
        if job is not None:
            self._queue.drop(job)
        self.ended.emit(end)

    # ------------------------------------------------------------ what the engine reports

    @Slot(object)
    def _on_prompt_progressed(self, progress: PromptProgressed) -> None:
        self.prompt_progressed.emit(progress.done, progress.total)

    @Slot(object)
    def _on_rounds_received(self, event: RoundsReceived) -> None:
        if self._steps is not None:
            for one in event.rounds:
                self._steps.add(one)
            if self._steps.step is not None and self._steps.step.counts:
                self.rounds_received.emit(event.rounds)

    @Slot(object)
    def _on_answered(self, event: GenerationFinished | TokensScored) -> None:
        if self._steps is None:
            return
        if isinstance(event, TokensScored):
            self._steps.score(event)
        elif event.finish_reason == "cancelled":
            self._end(End("stopped"))
        else:
            step, run = self._steps.step, self._steps.finish(event)
            if event.draft_failure:
                self.draft_failed.emit(event.draft_failure)
            if step is not None and step.counts:
                self.run_ended.emit(run)

    @Slot(object)
    def _on_failed(self, failed: GenerationFailed) -> None:
        if self._steps is not None:
            if failed.cause in _GONE:
                self._end(End("failed", failed.message))
            else:
                self._steps.fail(failed.message)

    @Slot()
    def _on_put_off(self) -> None:
        """What was begun is begun anew: both runs are to meet the same conditions."""
        if self._plan is not None:
            self._steps = self._plan()

    @Slot(str)
    def _on_lost(self, what: Loss) -> None:
        if what == "engine":
            self.give_up(ENGINE_LOST if self._has_begun else CANNOT_START.get(self._engine.state(), DIED))
        else:
            self.give_up(PAIR_GIVEN_UP if what == "pair" else BUG)


KIND = "chat"
"""Marks a prompt that comes from one of the user's chats."""


class SetChoice(NamedTuple):
    """A set of prompts to compare. ``path`` is the file it came from."""

    prompts: list[Prompt]
    path: Path
    repeats: int
    longest: int
    drafters: Sequence[DrafterChoice] = ()
    """To be compared with each other; empty: the chat's choice alone."""


class Snapshot(NamedTuple):
    """How a comparison was made: another pair may be loaded when it is exported."""

    setup: Setup
    """Without the models' hashes, which take time."""
    pair: PairLoaded

    @classmethod
    def now(cls, ctx: AppContext, first: Task, choice: SetChoice | None) -> Snapshot:
        """``first``: the first task; ``choice``: the prompt set, if any. Raises `KnownError` if the file of prompts is
        gone."""
        pair, files = ctx.loader.pair(), ctx.loader.files()
        assert pair is not None
        setup = setup_of(
            engine=ctx.engine.description(),
            devices=ctx.engine.devices(),
            pair=pair,
            settings=files.settings if files else LoadSettings(),
            command=first.command,
            repeat=choice.repeats if choice else 1,
            prompt_file=choice.path if choice else None,
            drafters=choice.drafters if choice else (),
        )
        return cls(setup, pair)

    def export(self, report: Report, path: Path, picture: bytes, should_stop: Callable[[], bool]) -> None:
        """Write a report, or its ``picture``. Takes time, because model files are hashed. Raises `KnownError`."""
        if not picture:
            hashed_setup = hashed(self.setup, self.pair, should_stop)
            report = msgspec.structs.replace(report, setup=hashed_setup)
        try:
            write_export(path, picture or reports.encoded(report, path.suffix.lower()))
        except OSError as error:
            raise KnownError(f"The comparison couldn't be exported to {path}: {error.strerror or error}.") from error


@dataclass(frozen=True)
class Subject:
    """The last answer of a branch of a chat, or the ``task`` of a prompt of a set."""

    branch: Sequence[StoredMessage] = ()
    is_private: bool = False
    """Whether it belongs to a temporary chat, and is deleted with it."""
    task: Task | None = None

    @property
    def chat_id(self) -> str | None:
        return self.branch[-1].chat_id if self.branch else None

    def asked(self, pair: PairLoaded | None) -> tuple[Task, list[str]] | None:
        """How to have ``pair`` write the answer again, and what will be different, for the user; ``None`` if there is
        no question before it."""
        if self.task is not None:
            return self.task, []
        *before, answer = self.branch
        if answer.role != "assistant" or not any(message.role == "user" for message in before):
            return None
        settings = answer.asked
        notes = []
        if pair is not None and (writer := _other_writer(answer, pair)):
            notes.append(
                f"This answer was written by another pair ({writer}). Both runs use the pair that is loaded now."
            )
        if settings.draft_length == 0 or settings.drafter == "none":
            settings = msgspec.structs.replace(settings, draft_length="auto", drafter="auto")
            notes.append("This answer was written without a draft. The run with a draft uses draft length Auto.")
        messages = conversation(before, settings.system_prompt).messages
        command = generate(
            settings,
            messages,
            drafter=pair_names.usable(settings.drafter, pair),
            thinking=pair.usable_thinking(settings.thinking) if pair else "",
            max_tokens=_limit(answer, settings),
            seed=next((seed for seed in (answer.seed, settings.seed) if seed is not None), 0),
            private=self.is_private,
        )
        return Task(Prompt(kind=KIND, messages=messages), command), notes


def _other_writer(answer: StoredMessage, pair: PairLoaded) -> str:
    """Who wrote an answer, if it wasn't ``pair``."""
    draft, head = answer.settings.get("draft"), answer.settings.get("head")
    if answer.settings.get("mtp_head") is True:  # as earlier versions stored it
        head = "mtp"
    title = DRAFTER_WORDS[head].title if head in HEADS else ""
    same_draft = draft in pair.draft.names if pair.draft else draft is None
    if is_author(pair, answer.pair) and same_draft and head == pair.head_drafter:
        return ""
    if isinstance(draft, str):
        return f"{answer.author} with the draft {draft}{f' and its {title}' if title else ''}"
    return f"{answer.author} with its {title}" if title else f"{answer.author} without a draft"


def _limit(answer: StoredMessage, settings: AnswerSettings) -> int | None:
    """An answer that was stopped is written again up to the same length."""
    if answer.status == "complete":
        return settings.max_tokens
    return figures_of(answer.figures).completion_tokens or len(answer.provenance) or settings.max_tokens
