"""The tab with a set of prompts: what is compared, a table and a chart that fill as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QSplitter, QVBoxLayout, QWidget

from app.compare.results import Comparison, Skipped, Summary, summarise
from app.ui.compare import wording
from app.ui.compare.chart_view import ChartView
from app.ui.compare.choice import PromptChoice, SetChoice
from app.ui.compare.parts import Footer, VerdictLine, line
from app.ui.compare.runner import Compared, End
from app.ui.compare.table import ResultTable
from app.ui.compare.wording import Verdict
from app.ui.widgets.controls import label
from app.ui.widgets.theme import SPACING

TICK_MS = 1000
TABLE_HEIGHT = 224
"""Of seven kinds and their total."""
_SIDE = 6 * SPACING


class PromptSet(QWidget):
    """Shows what a runner does with a set; decides nothing.

    Attributes:
        results, skipped: What came of the set that ran last, or runs.
        planned: How many comparisons it has.

    Signals:
        start_requested: The `SetChoice`.
        opened: The `Compared` that shall be shown in full.
        stop_requested, export_requested, close_requested: The buttons.
    """

    start_requested = Signal(object)
    opened = Signal(object)
    stop_requested = Signal()
    export_requested = Signal(str)
    close_requested = Signal()

    def __init__(self, clock: Callable[[], float] = time.monotonic, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.results: list[Compared] = []
        self.skipped: list[Skipped] = []
        self._clock = clock
        self._runs_now = False
        self._waits = ""
        self._blocked = ""
        self.planned = 0
        self._began = 0.0
        self.choice = PromptChoice()
        self.table = ResultTable()
        self.chart = ChartView()
        self.verdict = VerdictLine()
        self.footer = Footer("Start")
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setFixedHeight(SPACING)
        self._bar.setAccessibleName("Progress of the comparison")
        self._progress = label(role="quiet", figures=True)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._show_progress)
        self.setAcceptDrops(True)
        self._lay_out()
        self._connect()
        self._say(Verdict(""))

    # ------------------------------------------------------------ what the runner does

    def begin(self, planned: int) -> None:
        """A set of so many comparisons starts."""
        self.results, self.skipped = [], []
        self._runs_now, self.planned, self._began = True, planned, self._clock()
        self.table.clear_results()
        self._show_results()
        self._say(Verdict(""))
        self._timer.start()
        self._show_progress()
        self._show_state()

    def set_waiting(self, waits: str) -> None:
        """What the next prompt waits for; empty: nothing."""
        self._waits = waits
        self._show_progress()

    def add_compared(self, compared: Compared) -> None:
        self.results.append(compared)
        self._show_results()
        self._show_progress()

    def add_skipped(self, skipped: Skipped) -> None:
        self.skipped.append(skipped)
        self._show_progress()

    def end(self, end: End) -> None:
        self._timer.stop()
        self._runs_now = False
        summary = summarise(self.comparisons())
        verdict = wording.set_verdict(summary.total, self.skipped)
        if end.kind == "done":
            self._say(verdict)
        else:
            said = end.message or wording.STOPPED
            rest = verdict.text if self.results else ""
            self._say(Verdict(said, rest, "bad" if end.kind == "failed" else "plain"))
        self._show_state()

    def comparisons(self) -> list[Comparison]:
        return [one.comparison for one in self.results]

    def set_blocked(self, why: str) -> None:
        """Nothing can be started now, and why; empty: it can."""
        self._blocked = why
        self._show_state()

    def add_detail(self, text: str) -> None:
        """One more sentence below what came of it."""
        shown = self._shown_verdict
        self._say(replace(shown, detail=f"{shown.detail} {text}".strip()))

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        above = QVBoxLayout()
        above.setContentsMargins(_SIDE, 4 * SPACING, _SIDE, 3 * SPACING)
        above.addWidget(self.choice)
        results = QSplitter(Qt.Orientation.Vertical)
        results.addWidget(self.table)
        results.addWidget(self.chart)
        results.setChildrenCollapsible(False)
        results.setStretchFactor(0, 0)
        results.setStretchFactor(1, 1)
        self.table.setMinimumHeight(120)
        results.setSizes([TABLE_HEIGHT, 2 * TABLE_HEIGHT])
        middle = QVBoxLayout()
        middle.setContentsMargins(_SIDE - 2 * SPACING, 2 * SPACING, _SIDE - 2 * SPACING, 2 * SPACING)
        middle.addWidget(results)
        progress = QHBoxLayout()
        progress.setSpacing(4 * SPACING)
        progress.addWidget(self._bar, 1)
        progress.addWidget(self._progress)
        below = QVBoxLayout()
        below.setContentsMargins(_SIDE, 3 * SPACING, _SIDE, 4 * SPACING)
        below.setSpacing(3 * SPACING)
        below.addLayout(progress)
        below.addWidget(self.verdict)
        below.addWidget(self.footer)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addLayout(above)
        whole.addWidget(line())
        whole.addLayout(middle, 1)
        whole.addWidget(line())
        whole.addLayout(below)

    def _connect(self) -> None:
        self.footer.run_requested.connect(self._on_start)
        self.footer.stop_requested.connect(self.stop_requested)
        self.footer.export_requested.connect(self.export_requested)
        self.footer.close_requested.connect(self.close_requested)
        self.choice.changed.connect(self._show_state)
        self.choice.failed.connect(lambda text: self._say(Verdict(text, mood="bad")))
        for results in (self.table, self.chart):
            results.opened.connect(lambda number: self.opened.emit(self.results[number]))

    def _show_results(self) -> None:
        comparisons = self.comparisons()
        summary: Summary = summarise(comparisons)
        self.table.show_results(comparisons, summary)
        self.chart.show_results(comparisons, summary)

    @Slot()
    def _show_progress(self) -> None:
        done = len(self.results) + len(self.skipped)
        self._bar.setRange(0, max(self.planned, 1))
        self._bar.setValue(done)
        parts = [f"{done:,} of {self.planned:,}"]
        if self._waits:
            parts.append(self._waits)
        elif done:
            taken = self._clock() - self._began
            parts.append(wording.time_left(taken / done * (self.planned - done)))
        else:
            parts.append("warming up")
        self._progress.setText(" · ".join(parts))

    @Slot()
    def _show_state(self) -> None:
        nothing = "" if self.choice.choice().prompts else "No prompts are chosen."
        why = self._blocked or nothing
        can_export = bool(self.results) and not self._runs_now
        self.footer.set_state(running=self._runs_now, can_run=not why, can_export=can_export, why_not=why)
        self.choice.setEnabled(not self._runs_now)
        for part in (self._bar, self._progress):
            part.setVisible(self._runs_now)
        self.verdict.setVisible(not self._runs_now and bool(self.verdict.text()))

    def _say(self, verdict: Verdict) -> None:
        self._shown_verdict = verdict
        self.verdict.show_verdict(verdict)
        self._show_state()

    @Slot()
    def _on_start(self) -> None:
        chosen: SetChoice = self.choice.choice()
        if chosen.prompts and not self._blocked:
            self.start_requested.emit(chosen)

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(900, 720)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if not self._runs_now and _dropped(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event)
        if path is not None and not self._runs_now:
            event.acceptProposedAction()
            self.choice.open_file(path)


def _dropped(event: QDropEvent) -> Path | None:
    """The one file that is dropped."""
    urls = event.mimeData().urls()
    return Path(urls[0].toLocalFile()) if len(urls) == 1 and urls[0].isLocalFile() else None
