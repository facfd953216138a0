"""The bar above a chat in which one looks for words in it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal, Slot
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QLineEdit, QToolButton

from app.ui.widgets import icons, theme
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import keeps_escape, label
from app.ui.widgets.entries import prose_margin
from app.ui.widgets.layouts import row
from app.ui.widgets.theme import SPACING


class _Field(QLineEdit):
    """Enter goes to the next match, Shift+Enter to the one before, Esc closes."""

    def __init__(self, bar: FindBar) -> None:
        super().__init__(placeholderText="Find in this chat")
        self.setAccessibleName("Find in this chat")
        self._bar = bar

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            is_back = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
            self._bar.stepped.emit(-1 if is_back else 1)
        else:
            super().keyPressEvent(event)


class FindBar(QFrame):
    """Hidden until it is opened.

    Attributes:
        field, previous_button, next_button, close_button: Its controls.

    Signals:
        query_changed: What is looked for.
        stepped: The user wants the next match (1) or the one before (-1).
        closed: The user is done.
    """

    query_changed = Signal(str)
    stepped = Signal(int)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        theme.set_role(self, "bar")
        self.field = _Field(self)
        self._count = label(role="quiet", figures=True)
        self.previous_button = self._button("up", "Previous match", "Shift+Enter")
        self.next_button = self._button("down", "Next match", "Enter")
        self.close_button = self._button("close", "Close", "Esc")
        buttons = (self.previous_button, self.next_button, self.close_button)
        self._row = row((self.field, 1), self._count, *buttons, gap=SPACING, on=self)
        theme.follow_zoom(self, self._align)
        self.field.textChanged.connect(self._on_typed)
        self.previous_button.clicked.connect(lambda: self.stepped.emit(-1))
        self.next_button.clicked.connect(lambda: self.stepped.emit(1))
        self.close_button.clicked.connect(self.leave)
        self.hide()

    def _button(self, icon: str, name: str, keys: str) -> QToolButton:
        button = QToolButton(autoRaise=True)
        icons.set_icon(button, icon)
        button.setToolTip(f"{name} ({keys})")
        button.setAccessibleName(name)
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        return button

    def begin(self, query: str | None = None) -> None:
        """Open, with what was looked for before or with ``query``; the keyboard goes there only for the former."""
        self.show()
        if query is None:
            self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.field.selectAll()
        elif query != self.field.text():
            self.field.setText(query)

    @Slot()
    def leave(self) -> None:
        """Close."""
        if not self.isHidden():
            self.hide()
            self.closed.emit()

    def show_count(self, number: int, count: int, *, is_complete: bool) -> None:
        """Match ``number``, from 1, of ``count``; 0 where none stands out. Not ``is_complete``: more may be found."""
        if not self.field.text().strip():
            text = ""
        elif not is_complete:
            text = "Searching…"
        elif not count:
            text = "No matches"
        else:
            text = f"{number:,} of {count:,}" if number else f"{count:,} found"
        self.previous_button.setEnabled(count > 0)
        self.next_button.setEnabled(count > 0)
        if text != self._count.text():
            self._count.setText(text)
            if is_complete and self.field.hasFocus():
                announce(self, text)

    def count_text(self) -> str:
        """What it says about the matches."""
        return self._count.text()

    @Slot(str)
    def _on_typed(self, text: str) -> None:
        self.query_changed.emit(text)

    def _align(self) -> None:
        """In line with the messages."""
        side = prose_margin(self.font(), self.width())
        self._row.setContentsMargins(side, SPACING, side, SPACING)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align()

    def event(self, event: QEvent) -> bool:
        return keeps_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.leave()
        else:
            super().keyPressEvent(event)
