"""The tab with one answer written twice, plain and with draft, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from app.compare.results import Comparison, Difference, Run
from app.protocol.messages import Round
from app.ui.compare import wording
from app.ui.compare.pane import AnswerPane
from app.ui.compare.parts import Footer, VerdictLine, line
from app.ui.compare.runner import Compared, End, Task
from app.ui.compare.wording import Verdict
from app.ui.widgets import theme, units
from app.ui.widgets.controls import label
from app.ui.widgets.theme import SPACING

TICK_MS = 100
STACK_BELOW = 720
"""Narrower than this, in pixels, the answers stand one below the other."""


@dataclass(frozen=True)
class Shown:
    """What the tab is about. ``title``: its question. ``notes``: what is not as it was in the chat."""

    title: str
    settings: str
    notes: tuple[str, ...] = ()


class OneAnswer(QWidget):
    """Shows what a runner does with one task; decides nothing.

    Signals:
        again_requested, stop_requested, export_requested, close_requested: The buttons.
        last_requested: The button of the empty page.
        link_activated: A link in an answer was opened.
    """

    again_requested = Signal()
    stop_requested = Signal()
    export_requested = Signal(str)
    close_requested = Signal()
    last_requested = Signal()
    link_activated = Signal(QUrl)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._runs_now = False
        self._has_task = False
        self._has_result = False
        self._has_begun = False
        """Whether the first run has, behind the reading of the prompt."""
        self._blocked = ""
        self._live: AnswerPane | None = None
        self.plain = AnswerPane("Plain")
        self.drafted = AnswerPane("With draft")
        self.verdict = VerdictLine()
        self.footer = Footer("Run again")
        self._title = label(role="heading", wraps=True)
        self._settings = label(role="quiet", wraps=True, scale=0.95)
        self._notes = label(role="warning", wraps=True, scale=0.95)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        self._lay_out()
        self._connect()
        self.show_nothing(wording.NOTHING_YET)

    # ------------------------------------------------------------ from outside

    def show_nothing(self, why: str) -> None:
        """The empty page."""
        self._has_task = self._has_result = self._runs_now = False
        self._timer.stop()
        self.plain.clear()
        self.drafted.clear()
        self._empty_text.setText(why)
        self._pages.setCurrentIndex(0)
        self._say(Verdict(""))

    def prepare(self, shown: Shown) -> None:
        """An answer that can be compared; nothing runs yet."""
        self._has_task, self._has_result = True, False
        self._title.setText(shown.title)
        self._settings.setText(shown.settings)
        self._notes.setText(" ".join(shown.notes))
        self._notes.setVisible(bool(shown.notes))
        self._pages.setCurrentIndex(1)
        self.plain.clear()
        self.drafted.clear()
        self._say(Verdict(""))

    def begin(self) -> None:
        """The runner has the task; `set_waiting` says what for, if it is not at work yet."""
        self._runs_now, self._has_result, self._has_begun = True, False, False
        self.plain.clear(f"{wording.READING} …")
        self.drafted.clear(wording.AFTER_PLAIN)
        self._say(Verdict(""))

    def set_waiting(self, waits: str) -> None:
        if not self._has_begun:
            self.plain.set_note(waits or f"{wording.READING} …")

    def set_prompt_progress(self, done: int, total: int) -> None:
        """Tokens of the prompt that have been read."""
        if not self._has_begun and total > 0:
            self.plain.set_note(f"{wording.READING} · {min(100, 100 * done // total)}{units.NO_BREAK}%")

    def begin_run(self, drafted: bool) -> None:
        self._has_begun = True
        self._live = self.drafted if drafted else self.plain
        self._live.begin(time.monotonic())
        self._timer.start()

    def add_rounds(self, rounds: Sequence[Round]) -> None:
        if self._live is not None:
            self._live.add_rounds(rounds)

    def end_run(self, drafted: bool, run: Run) -> None:
        (self.drafted if drafted else self.plain).finish(run.figures)
        self._live = None

    def show_result(self, compared: Compared) -> None:
        """Both runs of the task are there."""
        self._has_result = True
        self._say(wording.verdict(compared.comparison, compared.task.settings))
        self._mark(compared.comparison)

    def end(self, end: End) -> None:
        """The runner is done with the task, or gave it up."""
        self._timer.stop()
        self._runs_now = False
        if self._live is not None:
            self._live.finish(None)
        elif not self._has_result:
            self.plain.set_note("")
        self._live = None
        if not self._has_result:
            self.drafted.set_note("")
            self._say(Verdict(end.message or wording.STOPPED, mood="bad" if end.kind == "failed" else "plain"))
        self._show_state()

    def say(self, verdict: Verdict) -> None:
        """Why nothing runs."""
        self._say(verdict)

    def add_detail(self, text: str) -> None:
        """One more sentence below what came of it."""
        shown = self._shown_verdict
        self._say(replace(shown, detail=f"{shown.detail} {text}".strip()))

    def show_compared(self, compared: Compared, shown: Shown) -> None:
        """Show a comparison that was made before."""
        self.prepare(shown)
        comparison = compared.comparison
        self.plain.show_run(comparison.plain.text, compared.plain, comparison.plain.figures)
        self.drafted.show_run(comparison.drafted.text, compared.drafted, comparison.drafted.figures)
        self.show_result(compared)

    def set_blocked(self, why: str) -> None:
        """Nothing can be started now, and why; empty: it can."""
        self._blocked = why
        self._show_state()

    def set_show_drafted(self, shown: bool) -> None:
        self.plain.set_show_drafted(shown)
        self.drafted.set_show_drafted(shown)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        self._empty_text = label(wording.NOTHING_YET, "quiet", wraps=True)
        self._empty_text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self._last_button = QPushButton("Compare last answer")
        empty = QWidget()
        column = QVBoxLayout(empty)
        column.setContentsMargins(12 * SPACING, 0, 12 * SPACING, 0)
        column.setSpacing(4 * SPACING)
        column.addStretch(1)
        column.addWidget(self._empty_text)
        column.addWidget(self._last_button, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(2)
        self._pages = QStackedWidget()
        self._pages.addWidget(empty)
        self._pages.addWidget(self._make_answers())
        below = QVBoxLayout()
        below.setContentsMargins(6 * SPACING, 3 * SPACING, 6 * SPACING, 4 * SPACING)
        below.setSpacing(3 * SPACING)
        below.addWidget(self.verdict)
        below.addWidget(self.footer)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(self._pages, 1)
        whole.addWidget(line())
        whole.addLayout(below)

    def _make_answers(self) -> QWidget:
        about = QVBoxLayout()
        about.setContentsMargins(6 * SPACING, 4 * SPACING, 6 * SPACING, 3 * SPACING)
        about.setSpacing(SPACING)
        for part in (self._title, self._settings, self._notes):
            about.addWidget(part)
        self._panes = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._panes.setSpacing(0)
        self._between = QFrame()
        self._panes.addWidget(self.plain, 1)
        self._panes.addWidget(self._between)
        self._panes.addWidget(self.drafted, 1)
        answers = QWidget()
        column = QVBoxLayout(answers)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(about)
        column.addWidget(line())
        column.addLayout(self._panes, 1)
        theme.follow(self._between, self._dress_line)
        return answers

    def _connect(self) -> None:
        self.footer.run_requested.connect(self.again_requested)
        self.footer.stop_requested.connect(self.stop_requested)
        self.footer.export_requested.connect(self.export_requested)
        self.footer.close_requested.connect(self.close_requested)
        self._last_button.clicked.connect(self.last_requested)
        for pane in (self.plain, self.drafted):
            pane.link_activated.connect(self.link_activated)

    def _dress_line(self) -> None:
        self._between.setStyleSheet(f"background: {theme.current().line.name()};")

    def _say(self, verdict: Verdict) -> None:
        self._shown_verdict = verdict
        self.verdict.show_verdict(verdict)
        self._show_state()

    def _show_state(self) -> None:
        can_run = self._has_task and not self._blocked
        self.footer.set_state(
            running=self._runs_now,
            can_run=can_run,
            can_export=self._has_result and not self._runs_now,
            has_subject=self._has_task,
            why_not=self._blocked,
        )
        self._last_button.setEnabled(not self._blocked)
        self.verdict.setVisible(bool(self.verdict.text()))

    def _mark(self, comparison: Comparison) -> None:
        """Both sides go to the first token in which they differ."""
        difference = comparison.difference
        if difference is None:
            return
        for pane, run in ((self.plain, comparison.plain), (self.drafted, comparison.drafted)):
            pane.set_mark(marked(run, difference))

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


def marked(run: Run, difference: Difference) -> tuple[int, int]:
    """The characters of the first different token, or the first different one where the engine tells no tokens."""
    if difference.token is None:
        return difference.character, difference.character + 1
    start = sum(len(piece) for piece in run.pieces[: difference.token])
    shown = len(run.pieces[difference.token]) if difference.token < len(run.pieces) else 0
    return start, start + max(1, shown)


def settings_line(task: Task) -> str:
    """How both runs were asked, in a line."""
    sampling = task.settings.sampling
    length = task.settings.draft_length
    longest = task.settings.max_tokens
    return " · ".join(
        [
            f"Seed {task.seed}",
            "greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}",
            "draft length Auto" if length == "auto" else f"draft length {length}",
            f"accept rule {task.settings.accept}",
            *([f"at most {units.tokens(longest)}"] if longest else []),
        ]
    )
