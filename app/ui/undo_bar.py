"""A bar that offers to take something back, for as long as that is possible."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.ui import icons, theme


class UndoBar(QFrame):
    """Hidden until `offer`."""

    undo_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        theme.set_role(self, "card")
        self._label = QLabel()
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._undo = QPushButton("Undo")
        self._undo.setAccessibleName("Undo the deletion")
        icons.set_icon(self._undo, "undo")
        theme.set_role(self._undo, "flat")
        self._undo.clicked.connect(self.undo_requested)
        gap = theme.SPACING
        layout = QHBoxLayout(self)
        layout.setContentsMargins(3 * gap, gap, gap, gap)
        layout.addWidget(self._label, 1)
        layout.addWidget(self._undo)
        self.hide()

    def offer(self, text: str) -> None:
        """Say what happened and that it can be undone."""
        self._label.setText(text)
        self.show()
