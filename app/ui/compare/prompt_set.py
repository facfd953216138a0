"""The tab with a set of prompts: what is compared, and a table and a chart that fill up during the comparison."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt, Signal, Slot
from PySide6.QtGui import QFont, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QCheckBox, QComboBox, QFileDialog, QProgressBar, QPushButton, QTreeWidgetItem, QWidget

from app import words
from app.compare import prompts
from app.compare.results import Comparison, Skipped, Summary, by_drafter, summarize
from app.protocol.options import DrafterChoice
from app.system import KnownError
from app.ui.compare import wording
from app.ui.compare.runner import End, SetChoice
from app.ui.compare.tab import CompareTab, line
from app.ui.compare.wording import Verdict
from app.ui.widgets import theme
from app.ui.widgets.controls import column, explain, guard_wheel, label, named, plain_tooltip, row
from app.ui.widgets.forms import Whole
from app.ui.widgets.table import LEFT, RIGHT, Table, hide_columns
from app.ui.widgets.theme import SPACING
from app.words import NO_BREAK

DEFAULT_LONGEST = 128
_SIDE = 6 * SPACING
_ALL_HELP = "Each prompt is answered without a draft and with every drafter that fits the loaded model, in turn."
_FILES = "Prompts (*.txt *.jsonl *.json);;All files (*)"
_FILE_HELP = (
    "A text file with one prompt per line; a .jsonl file with one object per line: "
    '{"kind": "code", "prompt": "…"} or {"kind": "code", "messages": [{"role": "user", "content": "…"}]}; '
    "or a comparison exported as JSON."
)


class PromptSet(CompareTab):
    """Shows what a runner does with a set.

    Attributes:
        results, skipped: What came of the set that ran last, or runs.
        planned: How many comparisons it has.
        drafter_bytes: `Setup.drafter_bytes` of the set.
        table, chart: Show them; `ResultTable.opened` names one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("Start")
        self.results: list[Comparison] = []
        self.skipped: list[Skipped] = []
        self.planned = 0
        self.drafter_bytes: Mapping[DrafterChoice, int] = {}
        self._drafters: Sequence[DrafterChoice] = ()
        """Those that fit the loaded pair."""
        self._each = 1
        """How many comparisons a prompt takes."""
        self._clock = clock
        self._waits = ""
        self._began: float | None = None
        """While a set is running."""
        self.table, self.chart = ResultTable(), ChartView()
        self._make_fields()
        self._lay_out()
        self.say(Verdict(""))
        self.open_file(prompts.bundled_file())

    # ------------------------------------------------------------ what is compared

    def choice(self) -> SetChoice:
        """What is selected."""
        path, found = self._source.currentData() or (prompts.bundled_file(), [])
        drafters = self._drafters if self._all_drafters.isChecked() and self._all_drafters.isEnabled() else ()
        return SetChoice(found, path, self._repeats.value(), self._longest.value(), drafters)

    def set_drafters(self, drafters: Sequence[DrafterChoice], why_not: str = "") -> None:
        """Those that fit the loaded pair; ``why_not``: why they can't be compared."""
        self._drafters = drafters
        self._all_drafters.setEnabled(not why_not)
        explain(self._all_drafters, why_not or _ALL_HELP)

    def open_file(self, path: Path) -> None:
        """Use the prompts of a file, or say why that isn't possible."""
        try:
            found = prompts.read(path)
        except KnownError as error:
            self.say(Verdict(str(error), mood="bad"))
            return
        is_own = path != prompts.bundled_file()
        while self._source.count() > is_own:  # the bundled ones stay
            self._source.removeItem(self._source.count() - 1)
        title = f"{path.name if is_own else 'Bundled'}, {words.number(len(found))} prompts"
        self._source.addItem(title, (path, found))
        self._source.setCurrentIndex(self._source.count() - 1)
        self._show_state()

    @Slot()
    def choose_file(self) -> None:
        """Ask for a file of prompts."""
        folder = self._source.itemData(1)[0].parent if self._source.count() > 1 else ""
        name, _ = QFileDialog.getOpenFileName(self, "Prompts to compare", str(folder), _FILES)
        if name:
            self.open_file(Path(name))

    # ------------------------------------------------------------ what the runner does

    def is_running(self) -> bool:
        return self._began is not None

    def begin(self, planned: int, choice: SetChoice) -> None:
        """A set of this many comparisons starts."""
        self.results, self.skipped, self._draft_failure = [], [], ""
        self.planned, self._began = planned, self._clock()
        self._each = choice.repeats * max(len(choice.drafters), 1)
        self.table.clear_results(several=bool(choice.drafters))
        self._show_results()
        self.say(Verdict(""))

    def set_waiting(self, waits: str) -> None:
        """What the next prompt is waiting for; empty if nothing."""
        self._waits = waits
        self._show_progress()

    def add_compared(self, compared: Comparison) -> None:
        self.results.append(compared)
        self._show_results()

    @Slot(object)
    def add_skipped(self, skipped: Skipped) -> None:
        if self.is_running():
            self.skipped.append(skipped)
            self._show_progress()

    @Slot(object)
    def end(self, end: End) -> None:
        if not self.is_running():
            return
        self._began = None
        totals = [one.total for one in by_drafter(self.results).values()]
        verdict = wording.set_verdict(totals, self.skipped)
        if end.kind != "done":
            rest = verdict.text if self.results else ""
            verdict = Verdict(end.message or wording.STOPPED, rest, "bad" if end.kind == "failed" else "plain")
        self._say_result(verdict)

    def _make_fields(self) -> None:
        self._source = named(QComboBox(sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToContents), "Prompts")
        explain(self._source, "The prompts that come with Slipstream, three for each kind of text, or those of a file.")
        guard_wheel(self._source)
        self._source.activated.connect(self._show_state)
        self._choose = QPushButton("Choose file…")
        explain(self._choose, _FILE_HELP)
        self._choose.clicked.connect(self.choose_file)
        self._repeats, self._longest = Whole(1, 20, 1), Whole(16, 8192, 16)
        self._longest.setValue(DEFAULT_LONGEST)
        explain(named(self._repeats, "Repeats"), "How often each prompt is compared, each time with a different seed.")
        text = "Answers are cut off after this many tokens. Below about 60, the measured speeds are imprecise."
        explain(named(self._longest, "Maximum length"), text)
        self._all_drafters = QCheckBox("All drafters")
        self.set_drafters(())
        self._bar = named(QProgressBar(textVisible=False), "Progress of the comparison")
        self._bar.setFixedHeight(SPACING)
        self._progress = label(role="quiet", figures=True)

    def _lay_out(self) -> None:
        self._choice, space = QWidget(), 4 * SPACING
        source = row(self._source, self._choose, None, gap=space)
        numbers = row(label("Repeats"), self._repeats, space, label("Maximum length"), self._longest, None)
        column(source, numbers, self._all_drafters, on=self._choice)
        above = column(self._choice, margins=(_SIDE, 4 * SPACING, _SIDE, 3 * SPACING))
        side = _SIDE - 2 * SPACING
        middle = column((self.table, 2), (self.chart, 3), margins=(side, 2 * SPACING, side, 2 * SPACING))
        below = self._make_below()
        below.insertLayout(0, row((self._bar, 1), self._progress, gap=4 * SPACING))
        column(above, line(), (middle, 1), line(), below, gap=0, on=self)

    def _show_results(self) -> None:
        self.table.show_results(self.results, self.drafter_bytes)
        drawn = wording.with_drafters_as_kinds(self.results) if self.table.several else self.results
        self.chart.show_results(drawn, summarize(drawn))
        self._show_progress()

    @Slot()
    def _show_progress(self) -> None:
        done = len(self.results) + len(self.skipped) * self._each
        self._bar.setRange(0, max(self.planned, 1))
        self._bar.setValue(done)
        rest = "warming up"
        if done and self._began is not None:
            rest = words.time_left((self._clock() - self._began) / done * (self.planned - done))
        self._progress.setText(f"{words.number(done)} of {words.number(self.planned)} · {self._waits or rest}")

    @Slot()
    def _show_state(self) -> None:
        why, running = self._blocked, self.is_running()
        can_export = bool(self.results) and not running
        self.footer.set_state(running=running, can_run=not why, can_export=can_export, why_not=why)
        self._choice.setEnabled(not running)
        for part in (self._bar, self._progress):
            part.setVisible(running)
        self.verdict.setVisible(not running and bool(self.verdict.text()))


# ---------------------------------------------------------------- the table

COLUMNS = {
    "Kind": "Kind of text. Open a row to see its prompts; double-click one to see its two answers.",
    "Prompts": "How many prompts were compared, including repeats.",
    "Without draft": "Decode speed without a draft: the median over the prompts.",
    "With draft": "Decode speed with a draft: the median over the prompts.",
    "Speed-up": "Decode speed with a draft ÷ without one: the median over the prompts.",
    "Accepted": "Acceptance rate: accepted ÷ tested draft tokens, over all prompts of this kind.",
    "Tokens per pass": "Mean acceptance length: 1 + accepted ÷ verify passes.",
    "Same text": "Prompts whose two answers have the same text.",
}
"""With their explanations."""
DRAFTER_COLUMNS = {
    "Drafter": "Expand a row to see its kinds of text and their prompts; double-click a prompt to see both answers.",
    "Speed": "Decode speed: the median over the prompts.",
    "Speed-up": COLUMNS["Speed-up"],
    "Accepted": "Acceptance rate: accepted ÷ tested draft tokens, over all prompts.",
    "Tokens per pass": COLUMNS["Tokens per pass"],
    "Draft token": "Drafting time ÷ drafted tokens.",
    "Pass": "Mean time of a verify pass.",
    "Memory": "What the drafter needs in addition to the target, from the memory plan.",
    "Same text": COLUMNS["Same text"],
}
"""If several drafters are compared."""
ALL = "all"
_LEAST_WIDTHS = {1: 640, 2: 560, 3: 560, 6: 640}
"""In a narrower table, less important columns are hidden."""
_DRAFTER_LEAST_WIDTHS = {1: 560, 4: 640, 5: 700, 6: 760, 7: 820}
_NUMBER = Qt.ItemDataRole.UserRole
_TOTAL = ""
"""No kind of text is called so."""


class ResultTable(Table):
    """A row for each kind of text and below it, collapsed, its prompts; above the kinds their drafter, if there are
    several. Fills up as the comparisons arrive. ``several``: whether it is so now.
    """

    opened = Signal(int)
    """Index of the comparison to show."""

    def __init__(self) -> None:
        super().__init__("Results", [])
        self._rows: dict[tuple[str, ...], QTreeWidgetItem] = {}
        """By the texts of their first cells, from the top one on."""
        self._shown = 0
        self.setRootIsDecorated(True)
        self.header().setSectionsMovable(False)
        self.header().setMinimumSectionSize(48)
        self.itemActivated.connect(self._on_activated)
        self.clear_results(several=False)

    def clear_results(self, *, several: bool) -> None:
        self.several = several
        self._rows.clear()
        self._shown = 0
        self.clear()
        columns = DRAFTER_COLUMNS if several else COLUMNS
        self.setAccessibleName("Results by drafter" if several else "Results by kind of text")
        self.setColumnCount(len(columns))
        self.setHeaderLabels(list(columns))
        # Not as a tooltip, because each column has its own.
        self.setWhatsThis("\n".join(f"{title}: {text}" for title, text in columns.items()))
        for place, text in enumerate(columns.values()):
            self.headerItem().setToolTip(place, text)
            self.headerItem().setTextAlignment(place, RIGHT if place else LEFT)
            self.setColumnHidden(place, False)
        self._least_widths = _DRAFTER_LEAST_WIDTHS if several else _LEAST_WIDTHS
        hide_columns(self, self._least_widths)

    def show_results(self, comparisons: Sequence[Comparison], drafter_bytes: Mapping[DrafterChoice, int]) -> None:
        """``comparisons`` only grows until `clear_results`; ``drafter_bytes``: `Setup.drafter_bytes`."""
        for drafter, summary in by_drafter(comparisons).items() if comparisons else ():
            if self.several:
                self._show_drafter(wording.drafter_title(drafter), summary, drafter_bytes)
            else:
                _set_texts(self._row(_TOTAL), [ALL, *wording.row_cells(summary.total)])
                for one in summary.rows:
                    _set_texts(self._row(one.kind), [one.kind, *wording.row_cells(one)])
        for number in range(self._shown, len(comparisons)):
            compared = comparisons[number]
            above = (wording.drafter_title(compared.drafter),) if self.several else ()
            item = QTreeWidgetItem(self._rows[*above, compared.prompt.kind])
            item.setData(0, _NUMBER, number)
            item.setToolTip(0, plain_tooltip(compared.prompt.title))
            cells = wording.drafter_prompt_cells if self.several else wording.prompt_cells
            _set_texts(item, cells(compared))
        self._shown = len(comparisons)

    def _show_drafter(self, title: str, summary: Summary, drafter_bytes: Mapping[DrafterChoice, int]) -> None:
        _set_texts(self._row(wording.NO_DRAFT), [wording.NO_DRAFT, *wording.plain_cells(summary.total)])
        _set_texts(self._row(title), [title, *wording.drafter_cells(summary.total, drafter_bytes)])
        for one in summary.rows:
            _set_texts(self._row(title, one.kind), [one.kind, *wording.drafter_cells(one, {})])

    def _row(self, *path: str) -> QTreeWidgetItem:
        """The total of all kinds stays the last row."""
        item = self._rows.get(path)
        if item is None:
            item = self._rows[path] = QTreeWidgetItem()
            is_total = path == (_TOTAL,)
            if len(path) > 1:
                self._rows[path[:-1]].addChild(item)
            else:
                self.insertTopLevelItem(self.topLevelItemCount() - (0 if is_total or self.several else 1), item)
            if is_total:
                bold = theme.tabular(QFont())  # of the size of the table, whatever that becomes
                bold.setBold(True)
                for place in range(len(COLUMNS)):
                    item.setFont(place, bold)
        return item

    @Slot(QTreeWidgetItem, int)
    def _on_activated(self, item: QTreeWidgetItem, _column: int) -> None:
        if isinstance(number := item.data(0, _NUMBER), int):
            self.opened.emit(number)


def _set_texts(item: QTreeWidgetItem, texts: Sequence[str]) -> None:
    for place, text in enumerate(texts):
        item.setText(place, text)
        item.setTextAlignment(place, RIGHT if place else LEFT)


# ---------------------------------------------------------------- the chart

EMPTY = (
    "Each prompt is answered twice with the same seed, once without a draft and once with it.\nThe table and this "
    "chart fill in as the comparison runs."
)
SHAPES = ((36, 0), (4, 45), (3, -90), (4, -90), (5, -90), (3, 90), (6, 0))
"""Corners and the direction of the first one, in degrees; the first is a circle."""
_POINT, _MEDIAN, _GAP, _TOP = 5.0, 7.5, 6.0, 8.0
_STEPS = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
_MOST_TICKS = 6


class Point(NamedTuple):
    """A comparison, or the median of a kind. ``acceptance_rate`` is ``None`` if nothing was drafted."""

    kind: str
    acceptance_rate: float | None
    speed_up: float


class ChartView(QWidget):
    """A mark for each prompt, and a larger one with its name for the median of each kind.

    Comparisons that are too short to time have no mark. If nothing was drafted, it is hollow, at the axis.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Chart: acceptance rate and speed-up of each prompt")
        self.setMinimumSize(320, 180)
        self.setFont(theme.tabular(self.font()))
        self.show_results((), summarize(()))

    def show_results(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        self._kinds = [one.kind for one in summary.rows]
        self.points = [
            Point(one.prompt.kind, one.drafted.figures.draft.acceptance_rate, one.speed_up)
            for one in comparisons
            if one.speed_up is not None
        ]
        rows = [(one, one.speed_up) for one in summary.rows if one.speed_up is not None]
        self.medians = [Point(one.kind, one.acceptance_rate, speed_up) for one, speed_up in rows]
        self._ticks = speed_ticks([one.speed_up for one in (*self.points, *self.medians)])
        parts = [
            f"{one.kind}: {words.share(one.acceptance_rate)} accepted, {words.speed_up(one.speed_up)}"
            for one in self.medians
        ]
        self.setAccessibleDescription("; ".join(parts).replace(NO_BREAK, " ") or EMPTY)
        self.update()

    def plot(self) -> QRectF:
        """The area of the marks: the name of one axis is above it, the numbers and the name of the other below."""
        metrics = self.fontMetrics()
        left, line = metrics.horizontalAdvance("88.8×") + 2 * _GAP, metrics.height()
        return QRectF(self.rect()).adjusted(left, _TOP + line + 2 * _GAP, -4 * _GAP, -2 * line - 3 * _GAP)

    def place(self, point: Point) -> QPointF:
        """Where a point is drawn."""
        plot, low, high = self.plot(), self._ticks[0], self._ticks[-1]
        x = plot.left() + (point.acceptance_rate or 0.0) * plot.width()
        return QPointF(x, plot.bottom() - (point.speed_up - low) / (high - low) * plot.height())

    # ------------------------------------------------------------ painting

    def _paint_axes(self, painter: QPainter) -> None:
        colors, plot, line = theme.current(), self.plot(), self.fontMetrics().height()
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        middle = Qt.AlignmentFlag.AlignCenter
        without = (1.0, QPen(colors.text, 1.2, Qt.PenStyle.DashLine))
        for tick, pen in (*((tick, QPen(colors.line, 1)) for tick in self._ticks), without):
            y = self.place(Point("", 0.0, tick)).y()
            painter.setPen(pen)
            painter.drawLine(QPointF(plot.left(), y), QPointF(plot.right(), y))
        painter.setPen(colors.quiet)
        for tick in self._ticks:
            y = self.place(Point("", 0.0, tick)).y()
            painter.drawText(QRectF(0, y - line / 2, plot.left() - _GAP, line), right, f"{tick:.3g}×")
        for fifths in range(6):
            x = plot.left() + fifths / 5 * plot.width()
            painter.drawText(QRectF(x - 30, plot.bottom() + _GAP, 60, line), middle, words.share(fifths / 5))
        painter.drawText(QRectF(plot.left(), plot.bottom() + line + 2 * _GAP, plot.width(), line), middle, "accepted")
        painter.drawText(QPointF(_GAP, _TOP + line), "speed-up (dashed line: speed without a draft)")

    def _paint_mark(self, painter: QPainter, point: Point, radius: float, strength: float) -> None:
        colors, kind = theme.current(), self._kinds.index(point.kind)
        color = colors.series[kind % len(colors.series)]
        painter.setPen(QPen(color, 1.4))
        is_hollow = point.acceptance_rate is None
        painter.setBrush(colors.surface if is_hollow else theme.mix(colors.surface, color, strength))
        painter.drawPolygon(mark(kind, self.place(point), radius))

    def name_boxes(self) -> list[QRectF]:
        """Where the names of the medians are drawn: beside them, if possible where no other median or name is."""
        inside, beside = self.plot().adjusted(0, -2 * _GAP, 3 * _GAP, 0), _MEDIAN + _GAP
        around = QRectF(-_MEDIAN - 1, -_MEDIAN - 1, 2 * _MEDIAN + 2, 2 * _MEDIAN + 2)
        taken, found = [around.translated(self.place(one)) for one in self.medians], list[QRectF]()
        for one in self.medians:
            size = self.fontMetrics().size(0, one.kind)
            width, height = size.width() + 2, size.height()
            sides = [(beside, -height / 2), (-beside - width, -height / 2)]
            sides += [(-width / 2, -beside - height), (-width / 2, beside)]
            boxes = [QRectF(x, y, width, height).translated(self.place(one)) for x, y in sides]
            free = (box for box in boxes if inside.contains(box) and not any(map(box.intersects, taken)))
            found.append(next(free, boxes[0]))
            taken.append(found[-1])
        return found

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self.points:
            self._paint_axes(painter)
            for point in self.points:
                self._paint_mark(painter, point, _POINT, 0.45)
            for median in self.medians:
                self._paint_mark(painter, median, _MEDIAN, 1.0)
            painter.setPen(theme.current().text)
            for median, box in zip(self.medians, self.name_boxes(), strict=True):
                painter.drawText(box, Qt.AlignmentFlag.AlignCenter, median.kind)
        else:
            painter.setPen(theme.current().quiet)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, EMPTY)
        painter.end()


def mark(kind: int, center: QPointF, radius: float) -> QPolygonF:
    """The mark of kind number ``kind``; all marks have about the same area."""
    corners, first = SHAPES[kind % len(SHAPES)]
    length = radius if corners > 6 else 1.2 * radius
    angles = [math.radians(first + corner * 360 / corners) for corner in range(corners)]
    return QPolygonF([center + QPointF(math.cos(angle), math.sin(angle)) * length for angle in angles])


def speed_ticks(speed_ups: Sequence[float]) -> list[float]:
    """Round values that enclose all of these and 1, at most seven."""
    low, high = min([0.9, *speed_ups]), max([1.5, *speed_ups])
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_TICKS - 1), _STEPS[-1])
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(max(first, 0), last + 1)]
