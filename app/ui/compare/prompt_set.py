"""The tab with a set of prompts: what is compared, a table and a chart that fill as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QProgressBar, QSplitter

from app.compare.results import Comparison, Skipped, summarize
from app.compare.steps import Compared
from app.ui.compare import wording
from app.ui.compare.chart import ChartView
from app.ui.compare.prompt_choice import PromptChoice
from app.ui.compare.runner import End
from app.ui.compare.tab import CompareTab, line
from app.ui.compare.table import ResultTable
from app.ui.compare.wording import Verdict
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

TICK_MS = 1000
TABLE_HEIGHT = 224
"""Of seven kinds and their total."""
_SIDE = 6 * SPACING


class PromptSet(CompareTab):
    """Shows what a runner does with a set.

    Attributes:
        results, skipped: What came of the set that ran last, or runs.
        planned: How many comparisons it has.
        table, chart: Their signal ``opened`` names one of the results.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("Start")
        self.results: list[Compared] = []
        self.skipped: list[Skipped] = []
        self._clock = clock
        self._is_running = False
        self._waits = ""
        self.planned = 0
        self._began = 0.0
        self.choice = PromptChoice()
        self.table = ResultTable()
        self.chart = ChartView()
        self._bar = QProgressBar(textVisible=False)
        self._bar.setAccessibleName("Progress of the comparison")
        self._bar.setFixedHeight(SPACING)
        self._progress = label(role="quiet", figures=True)
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._show_progress)
        self.setAcceptDrops(True)
        self._lay_out()
        self.choice.changed.connect(self._show_state)
        self.choice.kinds.buttonToggled.connect(self._show_state)
        self.choice.failed.connect(lambda text: self.say(Verdict(text, mood="bad")))
        self.say(Verdict(""))

    # ------------------------------------------------------------ what the runner does

    def is_running(self) -> bool:
        return self._is_running

    def begin(self, planned: int) -> None:
        """A set of so many comparisons starts."""
        self.results, self.skipped, self._draft_failure = [], [], ""
        self._is_running, self.planned, self._began = True, planned, self._clock()
        self.table.clear_results()
        self._show_results()
        self.say(Verdict(""))
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

    @Slot(object)
    def add_skipped(self, skipped: Skipped) -> None:
        if self._is_running:
            self.skipped.append(skipped)
            self._show_progress()

    @Slot(object)
    def end(self, end: End) -> None:
        if not self._is_running:
            return
        self._timer.stop()
        self._is_running = False
        summary = summarize(self.comparisons())
        verdict = wording.set_verdict(summary.total, self.skipped)
        if end.kind != "done":
            rest = verdict.text if self.results else ""
            verdict = Verdict(end.message or wording.STOPPED, rest, "bad" if end.kind == "failed" else "plain")
        self._say_result(verdict)

    def comparisons(self) -> list[Comparison]:
        return [one.comparison for one in self.results]

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        results = QSplitter(Qt.Orientation.Vertical, childrenCollapsible=False)
        results.addWidget(self.table)
        results.addWidget(self.chart)
        results.setStretchFactor(0, 0)
        results.setStretchFactor(1, 1)
        self.table.setMinimumHeight(120)
        results.setSizes([TABLE_HEIGHT, 2 * TABLE_HEIGHT])
        above = column(self.choice, margins=(_SIDE, 4 * SPACING, _SIDE, 3 * SPACING))
        middle = column(results, margins=(_SIDE - 2 * SPACING, 2 * SPACING, _SIDE - 2 * SPACING, 2 * SPACING))
        below = self._make_below()
        below.insertLayout(0, row((self._bar, 1), self._progress, gap=4 * SPACING))
        column(above, line(), (middle, 1), line(), below, gap=0, on=self)

    def _show_results(self) -> None:
        comparisons = self.comparisons()
        summary = summarize(comparisons)
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
        can_export = bool(self.results) and not self._is_running
        self.footer.set_state(running=self._is_running, can_run=not why, can_export=can_export, why_not=why)
        self.choice.setEnabled(not self._is_running)
        for part in (self._bar, self._progress):
            part.setVisible(self._is_running)
        self.verdict.setVisible(not self._is_running and bool(self.verdict.text()))

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(900, 720)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if not self._is_running and _dropped(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event)
        if path is not None and not self._is_running:
            event.acceptProposedAction()
            self.choice.open_file(path)


def _dropped(event: QDropEvent) -> Path | None:
    """The one file that is dropped."""
    urls = event.mimeData().urls()
    return Path(urls[0].toLocalFile()) if len(urls) == 1 and urls[0].isLocalFile() else None
