"""The tab with one answer written twice, with and without a draft, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum, auto

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QPushButton, QStackedWidget, QWidget

from app import words
from app.compare.results import Comparison, Difference, Run
from app.compare.steps import Task
from app.compare.wording import chat_settings
from app.protocol.events import Round
from app.ui.compare import wording
from app.ui.compare.runner import End
from app.ui.compare.tab import AnswerPane, CompareTab, line
from app.ui.compare.wording import Verdict
from app.ui.widgets import theme
from app.ui.widgets.controls import column, label, row
from app.ui.widgets.theme import SPACING

RUN_AGAIN = "Run again"
TICK_MS = 100
STACK_BELOW = 720
"""Below this width, in pixels, the answers are stacked."""


class Stage(Enum):
    """The progress of the comparison of one answer."""

    EMPTY = auto()
    """There is no answer to compare."""
    ASKED = auto()
    """Nothing is running, and there is no result."""
    READING = auto()
    """Waiting for the engine, or processing the prompt."""
    WRITING = auto()
    COMPARED = auto()


class OneAnswer(CompareTab):
    """Shows what a runner does with one task."""

    def __init__(self) -> None:
        super().__init__(RUN_AGAIN)
        self._stage = Stage.EMPTY
        self._live: AnswerPane | None = None
        self.plain = AnswerPane("Without a draft")
        self.drafted = AnswerPane("With a draft")
        self._title = label(role="heading", wraps=True)
        self._settings = label(role="quiet", wraps=True, scale=0.95)
        self._notes = label(role="warning", wraps=True, scale=0.95)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        self._lay_out()
        self.show_nothing(wording.NOTHING_YET)

    # ------------------------------------------------------------ from outside

    def is_running(self) -> bool:
        return self._stage in (Stage.READING, Stage.WRITING)

    def show_nothing(self, why: str) -> None:
        """The empty page."""
        self._timer.stop()
        self._clear(Stage.EMPTY)
        self._empty_text.setText(why)
        self._pages.setCurrentIndex(0)

    def prepare(self, task: Task, notes: Sequence[str] = (), *, on_server: bool = False) -> None:
        """Show an answer that can be compared; nothing is running yet. ``notes``: what will be different."""
        self._title.setText(task.prompt.title)
        self._settings.setText(settings_line(task, on_server=on_server))
        self._notes.setText(" ".join(notes))
        self._notes.setVisible(bool(notes))
        self._pages.setCurrentIndex(1)
        self.footer.run_button.setText("Compare")
        self._clear(Stage.ASKED)

    def begin(self, task: Task, notes: Sequence[str] = (), *, on_server: bool = False) -> None:
        """The runner has the task; `set_waiting` says what it waits for, if it hasn't started yet."""
        self.prepare(task, notes, on_server=on_server)
        self._draft_failure = ""
        self.footer.run_button.setText(RUN_AGAIN)
        self._clear(Stage.READING, f"{wording.READING}…", wording.WAITS_FOR_OTHER_RUN)

    def set_waiting(self, waits: str) -> None:
        if self._stage is Stage.READING:
            self.plain.set_note(waits or f"{wording.READING}…")

    @Slot(int, int)
    def set_prompt_progress(self, done: int, total: int) -> None:
        """Tokens of the prompt that have been read."""
        if self._stage is Stage.READING and total > 0:
            self.plain.set_note(f"{wording.READING} · {min(100, 100 * done // total)}%")

    @Slot(int, bool)
    def begin_run(self, _number: int, drafted: bool) -> None:
        if self.is_running():
            self._stage = Stage.WRITING
            self._live = self.drafted if drafted else self.plain
            self._live.begin(time.monotonic())
            self._timer.start()

    @Slot(list)
    def add_rounds(self, rounds: list[Round]) -> None:
        if self._live is not None:
            self._live.add_rounds(rounds)

    @Slot(object)
    def end_run(self, run: Run) -> None:
        if self._live is not None:
            self._live.finish(run.figures)
            self._live = None

    def show_result(self, comparison: Comparison) -> None:
        """Both runs of the task are finished. Both sides scroll to the first token in which they differ."""
        self._stage = Stage.COMPARED
        self._timer.stop()
        self._say_result(wording.verdict(comparison, comparison.command))
        if comparison.difference is not None:
            for pane, run in ((self.plain, comparison.plain), (self.drafted, comparison.drafted)):
                in_thinking = is_in_thinking(run, comparison.difference)
                pane.set_mark(marked(run, comparison.difference, in_thinking=in_thinking), in_thinking=in_thinking)

    @Slot(object)
    def end(self, end: End) -> None:
        """The runner has finished the task, or given up."""
        if not self.is_running():
            return
        self._timer.stop()
        self._stage = Stage.ASKED
        if self._live is not None:
            self._live.finish(None)
            self._live = None
        else:
            self.plain.set_note("")
        self.drafted.set_note("")
        self._say_result(Verdict(end.message or wording.STOPPED, mood="bad" if end.kind == "failed" else "plain"))

    def show_compared(self, comparison: Comparison, *, on_server: bool = False) -> None:
        """Show a comparison that was made before."""
        self.prepare(Task(comparison.prompt, comparison.command), on_server=on_server)
        self.footer.run_button.setText(RUN_AGAIN)
        self._draft_failure = ""
        self.plain.show_run(comparison.plain)
        self.drafted.show_run(comparison.drafted)
        self.show_result(comparison)

    def set_show_drafted(self, shown: bool) -> None:
        self.plain.set_show_drafted(shown)
        self.drafted.set_show_drafted(shown)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        self._empty_text = label(wording.NOTHING_YET, "quiet", wraps=True)
        self._empty_text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.last_button = QPushButton("Compare last answer")
        button = self.last_button, Qt.AlignmentFlag.AlignHCenter
        empty, margins = QWidget(), (12 * SPACING, 0, 12 * SPACING, 0)
        column(None, self._empty_text, button, None, None, gap=4 * SPACING, margins=margins, on=empty)
        self._pages = QStackedWidget()
        self._pages.addWidget(empty)
        self._pages.addWidget(self._make_answers())
        column((self._pages, 1), line(), self._make_below(), gap=0, on=self)

    def _make_answers(self) -> QWidget:
        margins = (6 * SPACING, 4 * SPACING, 6 * SPACING, 3 * SPACING)
        about = column(self._title, self._settings, self._notes, gap=SPACING, margins=margins)
        self._between = QFrame()
        self._panes = row((self.plain, 1), self._between, (self.drafted, 1), gap=0)
        answers = QWidget()
        column(about, line(), (self._panes, 1), gap=0, on=answers)
        theme.follow(self._between, self._dress_line)
        return answers

    def _dress_line(self) -> None:
        self._between.setStyleSheet(f"background: {theme.current().line.name()};")

    def _clear(self, stage: Stage, plain_note: str = "", drafted_note: str = "") -> None:
        self._stage = stage
        self._live = None
        self.plain.clear(plain_note)
        self.drafted.clear(drafted_note)
        self.say(Verdict(""))

    def _show_state(self) -> None:
        has_subject = self._stage is not Stage.EMPTY
        self.footer.set_state(
            running=self.is_running(),
            can_run=has_subject and not self._blocked,
            can_export=self._stage is Stage.COMPARED,
            has_subject=has_subject,
            why_not=self._blocked if self._blocked != self.verdict.text() else "",
        )
        self.last_button.setEnabled(not self._blocked)
        self.verdict.setVisible(bool(self.verdict.text()))

    @Slot()
    def _on_tick(self) -> None:
        if self._live is not None:
            self._live.tick(time.monotonic())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = event.size().width() < STACK_BELOW
        directions = QBoxLayout.Direction
        self._panes.setDirection(directions.TopToBottom if narrow else directions.LeftToRight)
        self._between.setMaximumSize(16777215 if narrow else 1, 1 if narrow else 16777215)


def is_in_thinking(run: Run, difference: Difference) -> bool:
    """Whether this run was still thinking where the two start to differ."""
    if difference.token is None or not run.pieces:
        return difference.in_thinking and bool(run.thinking)
    return run.pieces[min(difference.token, len(run.pieces) - 1)].thinking


def marked(run: Run, difference: Difference, *, in_thinking: bool = False) -> tuple[int, int]:
    """The characters of the first different token, or the first different one if the engine reports no tokens; in the
    thinking or in the answer of the run."""
    if difference.token is None:
        return difference.character, difference.character + 1
    start = sum(len(piece.text) for piece in run.pieces[: difference.token] if piece.thinking == in_thinking)
    shown = len(run.pieces[difference.token].text) if difference.token < len(run.pieces) else 0
    return start, start + max(1, shown)


def settings_line(task: Task, *, on_server: bool = False) -> str:
    """The settings of both runs, in one line; a server decides itself how it drafts."""
    command = task.command
    sampling, length, longest = command.sampling, command.draft_length, command.max_tokens
    return " · ".join(
        [
            f"Seed {task.seed}",
            "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}",
            *([] if on_server else [f"draft length {str(length).capitalize()}", f"accept rule {command.accept}"]),
            *(f"{name} {value}" for name, value in chat_settings(command)),
            *([f"up to {words.tokens(longest)}"] if longest else []),
        ]
    )
