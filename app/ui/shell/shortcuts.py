"""Help → Keyboard shortcuts: the keys of the menus, and those that only work in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from PySide6.QtCore import QSize, Qt, Slot
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QHeaderView, QLineEdit, QTreeWidget, QTreeWidgetItem, QWidget

from app.ui.actions import native
from app.ui.chat.editor import send_key
from app.ui.widgets import theme
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import DIALOG_MARGINS, column
from app.ui.widgets.theme import SPACING

Group: TypeAlias = tuple[str, Sequence[tuple[str, str]]]
"""A title, and pairs of what happens and the keys."""
_WIDTH, _HEIGHT = 480, 520


def keys_elsewhere() -> list[Group]:
    """What works where the focus is, and is no action."""
    return [
        (
            "While writing a message",
            [
                ("Send the message", send_key().text()),
                ("Start a new line", send_key().new_line_text()),
                ("Stop the answer, or cancel editing a message", native("Esc")),
            ],
        ),
        (
            "In the chat list",
            [
                ("Next or previous chat", f"{native('Down')} or {native('Up')}"),
            ],
        ),
        (
            "In the messages",
            [
                ("Scroll one page", f"{native('PgDown')} or {native('PgUp')}"),
                ("Go to the first or the last message", f"{native('Home')} or {native('End')}"),
                ("Zoom", f"{native('Ctrl+A').removesuffix('A')}mouse wheel"),
                ("Next or previous button, link or field", f"{native('Tab')} or {native('Shift+Tab')}"),
            ],
        ),
        ("Everywhere", [("Explain what has the focus", native("Shift+F1"))]),
        ("In other windows", [("Close the window", native("Esc"))]),
    ]


def _joined(groups: Sequence[Group]) -> list[Group]:
    """Those with the same title as one, where the first of them stands."""
    titles = dict.fromkeys(title for title, _ in groups)
    return [(title, [one for other, keys in groups if other == title for one in keys]) for title in titles]


class ShortcutsDialog(QDialog):
    """All keys in groups, with a field that filters them.

    Attributes:
        filter, list: Its parts.
    """

    def __init__(self, shortcuts: Sequence[Group], parent: QWidget | None = None) -> None:
        """``shortcuts``: those of the actions."""
        super().__init__(parent)
        self.setWindowTitle("Keyboard shortcuts")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.filter = QLineEdit(placeholderText="Filter by name or key", clearButtonEnabled=True)
        self.filter.setAccessibleName("Filter the shortcuts")
        self.filter.textChanged.connect(self._on_filter_changed)
        self.list = QTreeWidget(columnCount=2)
        self._rows: list[tuple[QTreeWidgetItem, list[QTreeWidgetItem]]] = []
        self._fill(_joined([*shortcuts, *keys_elsewhere()]))
        self._nothing = label("No shortcuts found.", "quiet", wraps=True)
        self._nothing.hide()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        close = buttons.button(QDialogButtonBox.StandardButton.Close)
        close.setText("Close")
        close.setAutoDefault(False)
        buttons.rejected.connect(self.reject)
        column(self.filter, self._nothing, (self.list, 1), buttons, gap=3 * SPACING, margins=DIALOG_MARGINS, on=self)
        self.filter.setFocus()
        self.resize(theme.px(_WIDTH), theme.px(_HEIGHT))
        if parent is not None:
            self.resize(self.size().boundedTo(parent.window().size()))

    def _fill(self, groups: Sequence[Group]) -> None:
        shown = self.list
        shown.setAccessibleName("Keyboard shortcuts")
        shown.setHeaderLabels(["What it does", "Keys"])
        shown.setHeaderHidden(True)
        shown.setRootIsDecorated(False)
        shown.setItemsExpandable(False)
        shown.setIndentation(0)
        bold = QFont()
        bold.setBold(True)
        for title, shortcuts in groups:
            heading = QTreeWidgetItem(shown, [title])
            heading.setFont(0, bold)
            heading.setTextAlignment(0, Qt.AlignmentFlag.AlignBottom)
            heading.setSizeHint(0, QSize(0, 2 * self.fontMetrics().height()))
            heading.setFlags(Qt.ItemFlag.ItemIsEnabled)
            rows = [QTreeWidgetItem(heading, [name, keys]) for name, keys in shortcuts]
            for row in rows:
                row.setData(0, Qt.ItemDataRole.AccessibleTextRole, f"{row.text(0)}: {row.text(1)}")
            self._rows.append((heading, rows))
        shown.expandAll()
        shown.header().setStretchLastSection(False)
        shown.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        shown.header().setSectionResizeMode(1, QHeaderView.ResizeMode.ResizeToContents)

    @Slot(str)
    def _on_filter_changed(self, text: str) -> None:
        words = text.lower().split()
        for heading, rows in self._rows:
            for row in rows:
                said = f"{row.text(0)} {row.text(1)}".lower()
                row.setHidden(not all(word in said for word in words))
            heading.setHidden(all(row.isHidden() for row in rows))
        has_some = not all(heading.isHidden() for heading, _rows in self._rows)
        self._nothing.setVisible(not has_some)
        self.list.setVisible(has_some)
