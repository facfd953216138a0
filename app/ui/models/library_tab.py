"""Models → Library: the models on this computer, and the page of the chosen one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSplitter, QVBoxLayout, QWidget

from app.ui.models.library_list import LibraryList, LibraryRow
from app.ui.models.model_page import ModelPage
from app.ui.widgets.controls import label, small_button
from app.ui.widgets.theme import SPACING


class LibraryTab(QWidget):
    """Lays out list and page.

    Attributes:
        list, page: The parts.

    Signals:
        folders_requested: Show the settings of the folders.
        getting_requested: Show where models can be had.
        scan_requested: Look into the folders again.
    """

    folders_requested = Signal()
    getting_requested = Signal()
    scan_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._search = QLineEdit()
        self._search.setPlaceholderText("Search the library")
        self._search.setAccessibleName("Search the library")
        self._search.setClearButtonEnabled(True)
        self._summary = label(role="quiet", figures=True, wraps=True)
        self._offer = label(role="quiet", wraps=True)
        self._empty = label(wraps=True)
        self._get = small_button("Get models")
        self._again = small_button("Look again")
        self._again.setToolTip("Looks into the folders again")
        self._folders = small_button("Folders…")
        self.list = LibraryList()
        self.page = ModelPage()
        self._total = 0
        self._lay_out()
        self._get.hide()
        self.show_offer("")
        self._search.textChanged.connect(self._on_search)
        self._folders.clicked.connect(self.folders_requested)
        self._get.clicked.connect(self.getting_requested)
        self._again.clicked.connect(self.scan_requested)

    def show_rows(self, rows: Sequence[LibraryRow], summary: str) -> None:
        """``summary`` says how many models there are and what they take."""
        self._total = len(rows)
        self.list.show_rows(rows)
        self._summary.setText(summary)
        self._show_emptiness()

    def show_offer(self, text: str) -> None:
        """Folders of other apps that could be added."""
        self._offer.setText(text)
        self._offer.setVisible(bool(text))

    def show_scanning(self) -> None:
        """The folders are being looked into."""
        self._summary.setText("Looking into the folders …")

    def focus(self) -> None:
        self._search.setFocus()

    def _lay_out(self) -> None:
        bottom = QHBoxLayout()
        bottom.setSpacing(2 * SPACING)
        bottom.addWidget(self._again)
        bottom.addWidget(self._folders)
        bottom.addStretch(1)
        left = QWidget()
        column = QVBoxLayout(left)
        column.setContentsMargins(5 * SPACING, 4 * SPACING, 3 * SPACING, 3 * SPACING)
        column.setSpacing(3 * SPACING)
        column.addWidget(self._search)
        column.addWidget(self._empty)
        column.addWidget(self._get, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self.list, 1)
        column.addWidget(self._offer)
        column.addWidget(self._summary)
        column.addLayout(bottom)
        left.setMinimumWidth(280)
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.addWidget(left)
        splitter.addWidget(self.page)
        splitter.setChildrenCollapsible(False)
        splitter.setStretchFactor(0, 1)
        splitter.setSizes([560, 400])
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(splitter)

    @Slot(str)
    def _on_search(self, text: str) -> None:
        self.list.set_words(text)
        self._show_emptiness()

    def _show_emptiness(self) -> None:
        if not self._total:
            self._empty.setText("No models here yet. Get one with its draft, or add a folder that has some.")
        else:
            self._empty.setText("" if self.list.shown() else "No model has these words.")
        self._empty.setVisible(bool(self._empty.text()))
        self._get.setVisible(not self._total)
