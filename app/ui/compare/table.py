"""The table of a prompt set: a row for each kind of text and below it, collapsed, its prompts."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QTreeWidget, QTreeWidgetItem

from app.compare.results import Comparison, Row, Summary
from app.ui.compare import wording
from app.ui.widgets import theme, units
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.table import LEFT, RIGHT, hide_columns, set_up_table

COLUMNS = ("Kind", "Prompts", "Without draft", "With draft", "Speed-up", "Accepted", "Tokens per pass", "Same text")
HELP = (
    "Kind of text. Open a row to see its prompts; double-click one to see its two answers.",
    "How many prompts were compared, including repeats.",
    "Decode speed without a draft: the median over the prompts.",
    "Decode speed with a draft: the median over the prompts.",
    "Decode speed with a draft ÷ without one: the median over the prompts.",
    "Acceptance rate: accepted ÷ tested draft tokens, over all prompts of this kind.",
    "Mean acceptance length: 1 + accepted ÷ verify passes.",
    "Prompts whose two answers have the same text.",
)
ALL = "all"
_LEAST_WIDTHS = {1: 640, 2: 560, 3: 560, 6: 640}
"""In a narrower table, less important columns are hidden."""
_NUMBER = Qt.ItemDataRole.UserRole


class ResultTable(QTreeWidget):
    """Fills up as the comparisons arrive."""

    opened = Signal(int)
    """Index of the comparison to show."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, QTreeWidgetItem] = {}
        self._total: QTreeWidgetItem | None = None
        self._shown = 0
        self.setHeaderLabels(COLUMNS)
        set_up_table(self, "Results by kind of text")
        self.setExpandsOnDoubleClick(False)
        self.header().setSectionsMovable(False)
        self.header().setMinimumSectionSize(48)
        # Not as a tooltip, because each column has its own.
        self.setWhatsThis("\n".join(f"{title}: {text}" for title, text in zip(COLUMNS, HELP, strict=True)))
        for column, text in enumerate(HELP):
            self.headerItem().setToolTip(column, text)
            self.headerItem().setTextAlignment(column, _alignment(column))
        self.itemActivated.connect(self._on_activated)

    def clear_results(self) -> None:
        self._kinds.clear()
        self._total = None
        self._shown = 0
        self.clear()

    def show_results(self, comparisons: Sequence[Comparison], summary: Summary) -> None:
        """``comparisons`` only grows until `clear_results`."""
        for row in summary.rows:
            _set_texts(self._kind_item(row.kind), [row.kind, *wording.row_cells(row)])
        for number in range(self._shown, len(comparisons)):
            one = comparisons[number]
            self._kinds[one.prompt.kind].addChild(_prompt_item(number, one))
        self._shown = len(comparisons)
        if comparisons:
            self._show_total(summary.total)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        hide_columns(self, _LEAST_WIDTHS)

    # ------------------------------------------------------------ inside

    def _kind_item(self, kind: str) -> QTreeWidgetItem:
        item = self._kinds.get(kind)
        if item is None:
            item = self._kinds[kind] = QTreeWidgetItem()
            place = self.topLevelItemCount() - (1 if self._total is not None else 0)
            self.insertTopLevelItem(place, item)
        return item

    def _show_total(self, row: Row) -> None:
        if self._total is None:
            self._total = QTreeWidgetItem()
            self.addTopLevelItem(self._total)
            bold = theme.tabular(QFont())  # of the size of the table, whatever that becomes
            bold.setBold(True)
            for column in range(len(COLUMNS)):
                self._total.setFont(column, bold)
        _set_texts(self._total, [ALL, *wording.row_cells(row)])

    @Slot(QTreeWidgetItem, int)
    def _on_activated(self, item: QTreeWidgetItem, _column: int) -> None:
        number = item.data(0, _NUMBER)
        if isinstance(number, int):
            self.opened.emit(number)
        else:
            item.setExpanded(not item.isExpanded())


def _prompt_item(number: int, one: Comparison) -> QTreeWidgetItem:
    draft = one.drafted.figures.draft
    item = QTreeWidgetItem()
    item.setData(0, _NUMBER, number)
    cells = [
        one.prompt.title,
        f"seed {one.seed}",
        units.speed(one.plain.figures.decode_tokens_per_second),
        units.speed(one.drafted.figures.decode_tokens_per_second),
        units.times(one.speed_up),
        units.share(draft.acceptance_rate),
        wording.a_pass(draft.mean_acceptance_length),
        wording.sameness(one),
    ]
    _set_texts(item, cells)
    item.setToolTip(0, plain_tooltip(one.prompt.title))
    return item


def _set_texts(item: QTreeWidgetItem, texts: Sequence[str]) -> None:
    for column, text in enumerate(texts):
        if item.text(column) != text:
            item.setText(column, text)
            item.setTextAlignment(column, _alignment(column))


def _alignment(column: int) -> Qt.AlignmentFlag:
    return RIGHT if column else LEFT
