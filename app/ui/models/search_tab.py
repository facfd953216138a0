"""Models → Search: repositories on Hugging Face, their files, and drafts for them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QComboBox,
    QLineEdit,
    QPushButton,
    QSplitter,
    QWidget,
)

from app.models.hub.repository import SearchResult
from app.models.text import count_text, printable
from app.ui.models.repository_page import RepositoryPage
from app.ui.widgets import theme
from app.ui.widgets.controls import label, plain_tooltip
from app.ui.widgets.layouts import LIST_MARGINS, column, row
from app.ui.widgets.table import Table
from app.ui.widgets.theme import SPACING

SORTS = (
    ("trending", "Trending"),
    ("downloads", "Most downloaded"),
    ("likes", "Most liked"),
    ("newest", "Newest"),
)


class SearchTab(QWidget):
    """Shows what was found and says what the user wants to know or have.

    Attributes:
        page: The repository that is shown.

    Signals:
        search_requested: Words and one of `SORTS`.
        repository_chosen: The id of a repository whose files shall be shown.
    """

    search_requested = Signal(str, str)
    repository_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._words = QLineEdit()
        self._words.setPlaceholderText("Search GGUF models on Hugging Face, such as qwen3 8b")
        self._words.setAccessibleName("Search words")
        self._words.setClearButtonEnabled(True)
        self._sort = QComboBox()
        self._sort.setAccessibleName("Sort by")
        for value, text in SORTS:
            self._sort.addItem(text, value)
        self._go = QPushButton("Search")
        theme.set_role(self._go, "primary")
        self._status = label(role="quiet", wraps=True)
        self._results = Table(
            "Repositories found",
            ["Repository", "Downloads", "Likes", "Changed"],
            right=(1, 2),
            least_widths={1: 320, 2: 480, 3: 400},
        )
        self.page = RepositoryPage()
        self._lay_out()
        self._words.returnPressed.connect(self._on_search)
        self._go.clicked.connect(self._on_search)
        self._sort.activated.connect(self._on_search)
        self._results.itemSelectionChanged.connect(self._on_selected)
        self.show_status("Type what you look for. Nothing is asked of the network before.")

    # ------------------------------------------------------------ what is shown

    def show_results(self, results: Sequence[SearchResult]) -> None:
        self._results.clear()
        for one in results:
            name = printable(one.id, 120) + ("  (gated)" if one.gated != "no" else "")
            item = self._results.add(
                [name, count_text(one.downloads), count_text(one.likes), one.modified[:10]], one.id
            )
            gated = "\nIts terms must be accepted on its page first." if one.gated != "no" else ""
            item.setToolTip(0, plain_tooltip(printable(one.id, 200) + gated))
        self.show_status("" if results else "Nothing found. Try fewer or other words.")

    def show_status(self, text: str, role: str = "quiet") -> None:
        """What the search does, or why it failed."""
        self._status.setText(text)
        self._status.setVisible(bool(text))
        theme.set_role(self._status, role)

    def set_words(self, words: str) -> None:
        """Type for the user, and search."""
        self._words.setText(words)
        self._on_search()

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        left = QWidget()
        column(
            row((self._words, 1), self._go),
            row(label("Sort by", "quiet"), self._sort, None),
            self._status,
            (self._results, 1),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        left.setMinimumWidth(280)
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(left)
        splitter.addWidget(self.page)
        splitter.setChildrenCollapsible(False)
        splitter.setSizes([520, 440])
        column(splitter, on=self)

    @Slot()
    def _on_search(self) -> None:
        if words := self._words.text().strip():
            self.search_requested.emit(words, self._sort.currentData())

    @Slot()
    def _on_selected(self) -> None:
        if (chosen := self._results.chosen()) is not None:
            self.repository_chosen.emit(chosen)
