"""Models → Library: the models on this computer, and the page of the chosen one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Slot
from PySide6.QtWidgets import QLineEdit, QWidget

from app.ui.models.library_list import LibraryList, LibraryRow
from app.ui.models.model_page import ModelPage
from app.ui.widgets.controls import beside, label, show_text, small_button
from app.ui.widgets.layouts import LEFT, LIST_MARGINS, column, row
from app.ui.widgets.theme import SPACING


class LibraryTab(QWidget):
    """Lays out list and page.

    Attributes:
        list, page: The parts.
        folders, get, again: The buttons "Folders…", "Get models" and "Look again".
    """

    def __init__(self) -> None:
        super().__init__()
        self._search = QLineEdit(placeholderText="Search the library", clearButtonEnabled=True)
        self._search.setAccessibleName("Search the library")
        self._summary = label(role="quiet", figures=True, wraps=True)
        self._offer = label(role="quiet", wraps=True)
        self._empty = label(wraps=True)
        self.get = small_button("Get models")
        self.again = small_button("Look again")
        self.again.setToolTip("Looks into the folders again")
        self.folders = small_button("Folders…")
        self.list = LibraryList()
        self.page = ModelPage()
        self._total = 0
        self._lay_out()
        self.get.hide()
        self.show_offer("")
        self._search.textChanged.connect(self._on_search)

    def show_rows(self, rows: Sequence[LibraryRow], summary: str) -> None:
        """``summary`` says how many models there are and what they take."""
        self._total = len(rows)
        self.list.show_rows(rows)
        self._summary.setText(summary)
        self._show_emptiness()

    def show_offer(self, text: str) -> None:
        """Folders of other apps that could be added."""
        show_text(self._offer, text)

    def show_scanning(self) -> None:
        """The folders are being looked into."""
        self._summary.setText("Looking into the folders …")

    def _lay_out(self) -> None:
        left = QWidget(minimumWidth=280)
        column(
            self._search,
            self._empty,
            (self.get, LEFT),
            (self.list, 1),
            self._offer,
            self._summary,
            row(self.again, self.folders, None),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        splitter = beside(left, self.page, [560, 400])
        splitter.setStretchFactor(0, 1)
        column(splitter, on=self)

    @Slot(str)
    def _on_search(self, text: str) -> None:
        self.list.rows.set_words(text)
        self._show_emptiness()

    def _show_emptiness(self) -> None:
        if not self._total:
            text = "No models here yet. Get one with its draft, or add a folder that has some."
        else:
            text = "" if self.list.rows.shown else "No model has these words."
        show_text(self._empty, text)
        self.get.setVisible(not self._total)
