"""The line above a code block: its language and a button that copies it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from app.models.text import shortened
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label

_MAX_LANGUAGE = 24


class CodeHeader(QWidget):
    """Lies over the top of a code block's frame; whoever owns it connects `copy_button`."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self._language = label(role="quiet", scale=0.9)
        self.copy_button = QPushButton("Copy")
        self.copy_button.setFont(themes.scaled(self.font(), 0.9))
        themes.set_role(self.copy_button, "flat")
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 3, 4, 0)
        row.addWidget(self._language, 1)
        row.addWidget(self.copy_button)
        self.set_language("")

    @property
    def language(self) -> str:
        """What stands on the left."""
        return self._language.text()

    def set_language(self, language: str) -> None:
        """Name the language of the code; empty where it is not known."""
        language = shortened(language, _MAX_LANGUAGE)
        shown = language or "code"
        if shown == self._language.text():
            return
        self._language.setText(shown)
        self.copy_button.setAccessibleName(f"Copy this {language} code" if language else "Copy this code")
