"""A bar that offers to take something back, for as long as that is possible."""

from __future__ import annotations

from PySide6.QtCore import Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from app.models.text import visible
from app.ui.widgets import icons, theme
from app.ui.widgets.column import prose_margin
from app.ui.widgets.controls import ElidedLabel, plain_tooltip
from app.ui.widgets.layouts import row


class UndoBar(QWidget):
    """Hidden until `offer`; in line with the messages above it.

    Attributes:
        undo: Its button.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._label = ElidedLabel()
        self.undo = QPushButton("Undo")
        self.undo.setAccessibleName("Undo the deletion")
        icons.set_icon(self.undo, "undo")
        theme.set_role(self.undo, "flat")
        card = QFrame()
        theme.set_role(card, "card")
        gap = theme.SPACING
        row((self._label, 1), self.undo, gap=-1, margins=(3 * gap, gap, gap, gap), on=card)
        self._column = QVBoxLayout(self)
        self._column.addWidget(card)
        self.hide()

    def offer(self, text: str) -> None:
        """Say what happened and that it can be undone."""
        self._label.setText(visible(text))
        self._label.setToolTip(plain_tooltip(text))
        self.show()

    @Slot()
    def withdraw(self) -> None:
        """Offer nothing any more; what was offered named something that may be gone for good."""
        self.hide()
        self._label.setText("")
        self._label.setToolTip("")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        side = prose_margin(self.font(), event.size().width())
        self._column.setContentsMargins(side, theme.SPACING, side, 0)
