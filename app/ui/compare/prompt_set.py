"""The tab with a set of prompts: what is compared, and a table and a chart that fill up during the comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QFileDialog,
    QGridLayout,
    QProgressBar,
    QPushButton,
    QRadioButton,
    QSplitter,
    QWidget,
)

from app.compare import prompts
from app.compare.prompts import Prompt
from app.compare.results import Comparison, Skipped, summarize
from app.compare.steps import Compared
from app.errors import KnownError
from app.ui.compare import wording
from app.ui.compare.chart import ChartView
from app.ui.compare.runner import End
from app.ui.compare.tab import CompareTab, line
from app.ui.compare.table import ResultTable
from app.ui.compare.wording import Verdict
from app.ui.widgets.controls import ElidedLabel, explain, label
from app.ui.widgets.forms import Whole
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

TICK_MS = 1000
TABLE_HEIGHT = 224
"""Seven kinds and their total."""
_SIDE = 6 * SPACING
MOST_KINDS = 16
"""In a file with more kinds than this, all of them are used."""
DEFAULT_LONGEST = 128
_A_ROW = 8
_FILES = "Prompts (*.txt *.jsonl *.json);;All files (*)"
_FILE_HELP = (
    "A text file with one prompt per line; a .jsonl file with one object per line: "
    '{"kind": "code", "prompt": "…"} or {"kind": "code", "messages": [{"role": "user", "content": "…"}]}; '
    "or a comparison exported as JSON."
)


@dataclass(frozen=True)
class SetChoice:
    """A set of prompts to compare. ``path`` is the file it came from."""

    prompts: tuple[Prompt, ...]
    path: Path
    kinds: tuple[str, ...]
    """Empty means all of them."""
    repeats: int
    longest: int


class PromptChoice(QWidget):
    """Attributes:
        kinds: The boxes of the kinds of text; other ones for each file.

    Signals:
        changed: The prompts are those of another file.
        failed: A file cannot be used, and why, in words for the user.
    """

    changed = Signal()
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._path = prompts.bundled_file()
        self._prompts: list[Prompt] = []
        self._own: tuple[Path, list[Prompt]] | None = None
        self._boxes: dict[str, QCheckBox] = {}
        self.kinds = QButtonGroup(self, exclusive=False)
        self._bundled = QRadioButton("Bundled")
        explain(self._bundled, "The prompts that come with Slipstream: three for each kind of text.")
        self._from_file = QRadioButton("From a file")
        explain(self._from_file, _FILE_HELP)
        self._choose = QPushButton("Choose file…")
        explain(self._choose, f"{_FILE_HELP} You can also drop a file here.")
        self._file = ElidedLabel("quiet")
        kinds = self._kinds_box = QWidget()
        kinds.setMinimumWidth(1)  # its content would keep the window wide; it takes more rows instead
        self._kinds_grid = QGridLayout(kinds)
        self._kinds_grid.setContentsMargins(0, 0, 0, 0)
        self._kinds_grid.setHorizontalSpacing(4 * SPACING)
        self._kinds_grid.setVerticalSpacing(0)
        self._repeats = _spin("Repeats", 1, 20, 1, 1)
        explain(self._repeats, "How often each prompt is compared, each time with a different seed.")
        self._longest = _spin("Maximum length", 16, 8192, 16, DEFAULT_LONGEST)
        explain(
            self._longest,
            "Answers are cut off after this many tokens. Below about 60, the measured speeds are imprecise.",
        )
        self._lay_out()
        self._bundled.setChecked(True)
        self._bundled.clicked.connect(self._take_bundled)
        self._from_file.clicked.connect(self._on_from_file)
        self._choose.clicked.connect(self.choose_file)
        self._take_bundled()

    def choice(self) -> SetChoice:
        """What is selected; it may contain no prompts."""
        kinds = tuple(kind for kind, box in self._boxes.items() if box.isChecked())
        taken = tuple(one for one in self._prompts if not self._boxes or one.kind in kinds)
        return SetChoice(
            prompts=taken,
            path=self._path,
            kinds=() if len(taken) == len(self._prompts) else kinds,
            repeats=self._repeats.value(),
            longest=self._longest.value(),
        )

    @Slot()
    def choose_file(self) -> None:
        """Ask for a file of prompts."""
        folder = str(self._own[0].parent) if self._own else ""
        name, _ = QFileDialog.getOpenFileName(self, "Prompts to compare", folder, _FILES)
        if name:
            self.open_file(Path(name))
        else:
            self._show_source()

    def open_file(self, path: Path) -> None:
        """Use the prompts of a file, or say why that isn't possible."""
        try:
            found = prompts.read(path)
        except KnownError as error:
            self._show_source()
            self.failed.emit(str(error))
            return
        self._own = path, found
        self._take(path, found)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        source = row(self._bundled, self._from_file, self._choose, (self._file, 1), gap=4 * SPACING)
        space = 4 * SPACING
        numbers = row(label("Repeats"), self._repeats, space, label("Maximum length"), self._longest, space, None)
        column(source, self._kinds_box, numbers, on=self)

    @Slot()
    def _take_bundled(self) -> None:
        try:
            self._take(prompts.bundled_file(), prompts.bundled())
        except KnownError as error:
            self.failed.emit(str(error))

    def _take(self, path: Path, found: list[Prompt]) -> None:
        self._path, self._prompts = path, found
        self._offer_kinds(list(dict.fromkeys(one.kind for one in found)))
        self._show_source()
        self.changed.emit()

    def _offer_kinds(self, kinds: Sequence[str]) -> None:
        for box in self._boxes.values():
            self.kinds.removeButton(box)
            self._kinds_grid.removeWidget(box)
            box.deleteLater()
        self._boxes = {}
        for kind in kinds if 1 < len(kinds) <= MOST_KINDS else ():
            box = QCheckBox(kind.replace("&", "&&"))
            box.setAccessibleName(f"Kind: {kind}")
            box.setChecked(True)
            self.kinds.addButton(box)
            self._boxes[kind] = box
        self._place_kinds()

    def _place_kinds(self) -> None:
        """As many per row as fit."""
        boxes = list(self._boxes.values())
        widest = max((box.sizeHint().width() for box in boxes), default=0) + self._kinds_grid.horizontalSpacing()
        a_row = max(1, min(_A_ROW, (self.width() + self._kinds_grid.horizontalSpacing()) // max(widest, 1)))
        for place, box in enumerate(boxes):
            self._kinds_grid.addWidget(box, place // a_row, place % a_row)
        for place in range(_A_ROW):
            self._kinds_grid.setColumnStretch(place, 1 if place < a_row else 0)

    def _show_source(self) -> None:
        is_own = self._own is not None and self._path == self._own[0]
        self._bundled.setChecked(not is_own)
        self._from_file.setChecked(is_own)
        count = f"{len(self._prompts):,} prompts"
        self._file.setText(f"{self._path.name}, {count}" if is_own else count)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_kinds()

    @Slot()
    def _on_from_file(self) -> None:
        if self._own is not None:
            self._take(*self._own)
        else:
            self.choose_file()


def _spin(name: str, low: int, high: int, step: int, value: int) -> Whole:
    box = Whole(low, high, step)
    box.setValue(value)
    box.setAccessibleName(name)
    return box


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
        return self._timer.isActive()

    def begin(self, planned: int) -> None:
        """A set of this many comparisons starts."""
        self.results, self.skipped, self._draft_failure = [], [], ""
        self.planned, self._began = planned, self._clock()
        self._timer.start()
        self.table.clear_results()
        self._show_results()
        self.say(Verdict(""))
        self._show_progress()

    def set_waiting(self, waits: str) -> None:
        """What the next prompt is waiting for; empty if nothing."""
        self._waits = waits
        self._show_progress()

    def add_compared(self, compared: Compared) -> None:
        self.results.append(compared)
        self._show_results()
        self._show_progress()

    @Slot(object)
    def add_skipped(self, skipped: Skipped) -> None:
        if self.is_running():
            self.skipped.append(skipped)
            self._show_progress()

    @Slot(object)
    def end(self, end: End) -> None:
        if not self.is_running():
            return
        self._timer.stop()
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
        nothing = "" if self.choice.choice().prompts else "No prompts are selected."
        why, running = self._blocked or nothing, self.is_running()
        can_export = bool(self.results) and not running
        self.footer.set_state(running=running, can_run=not why, can_export=can_export, why_not=why)
        self.choice.setEnabled(not running)
        for part in (self._bar, self._progress):
            part.setVisible(running)
        self.verdict.setVisible(not running and bool(self.verdict.text()))

    # ------------------------------------------------------------ Qt

    def sizeHint(self) -> QSize:
        return QSize(900, 720)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if not self.is_running() and _dropped(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        path = _dropped(event)
        if path is not None and not self.is_running():
            event.acceptProposedAction()
            self.choice.open_file(path)


def _dropped(event: QDropEvent) -> Path | None:
    """The dropped file, if it is the only one."""
    urls = event.mimeData().urls()
    return Path(urls[0].toLocalFile()) if len(urls) == 1 and urls[0].isLocalFile() else None
