"""The fields of the chat settings: lines of text, numbers of the sampler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.inspect import IntType, ListType, LiteralType
from PySide6.QtCore import QSignalBlocker, QSize, Signal, Slot
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QSizePolicy, QWidget

from app.chats.settings import ChatSettings, stop_strings_as_text, stop_strings_from
from app.models.hub.recommended import SOURCE_TEXTS
from app.protocol.answering import TITLES, WORDS, kind_of, range_of
from app.protocol.options import Sampling
from app.ui.widgets import theme
from app.ui.widgets.controls import Choice, ElidedLabel, column, explain, label, row
from app.ui.widgets.forms import SMALLEST, Decimal, Digits, Whole
from app.ui.widgets.theme import SPACING

_STEPS = {
    "temperature": 0.1,
    "top_k": 5,
    "top_p": 0.05,
    "min_p": 0.01,
    "repetition_penalty": 0.05,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "penalty_window": 16,
}
_NUMBER_WIDTH = 88


def describe(field: QWidget, text: str, more: str = "") -> None:
    """Explain a field to everybody: as a tooltip, as help (Shift+F1), and to screen readers, who get ``more`` first."""
    explain(field, text)
    field.setAccessibleDescription(f"{more}. {text}" if more else text)


def small_link(text: str) -> QPushButton:
    """A button in a line of small text."""
    button = QPushButton(text, autoDefault=False)
    theme.scale_font(button, 0.9)
    theme.set_role(button, "link")
    return button


def field_for(key: str) -> TextField | Digits | Choice:
    """The field of a setting in `ChatSettings`, by its type and its words. It shows any value and gives it back as it
    is until somebody changes it."""
    words, kind = WORDS[key], kind_of(ChatSettings, key)
    field: TextField | Digits | Choice
    if isinstance(kind, IntType):
        field = Digits(*range_of(ChatSettings, key))
    elif isinstance(kind, ListType):
        field = TextField(2, stop_strings_from, stop_strings_as_text)
    elif isinstance(kind, LiteralType) or key == "thinking":
        field = Choice(words.title)
        field.offer([(value, title) for value, title in TITLES.get(key, {}).items()])
    else:
        field = TextField(5, lambda typed: typed[: getattr(kind, "max_length", None)])
    if not isinstance(field, Choice):
        field.setPlaceholderText(words.empty)
    field.show_value(getattr(ChatSettings(), key))
    field.setAccessibleName(words.title)
    describe(field, words.description)
    return field


class TextField(QPlainTextEdit):
    """Some lines of text; Tab leaves it."""

    def __init__(self, lines: int, read: Callable[[str], Any] = str, write: Callable[[Any], str] = str) -> None:
        """``read`` makes a value of what is typed, ``write`` the text that shows one."""
        super().__init__(tabChangesFocus=True)
        self._lines, self._read, self._write = lines, read, write
        self._value, self._shown = read(""), ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def value(self) -> Any:
        """What was shown, exactly, until something is typed: the editor itself has no no-break spaces, for example."""
        typed, shown = self.toPlainText(), self._shown
        return self._value if typed == shown or self._read(typed) == self._read(shown) else self._read(typed)

    def show_value(self, value: Any) -> None:
        """Show another value; nothing is to be undone then. The same one leaves everything as it is."""
        if value != self.value():
            with QSignalBlocker(self):
                self.setPlainText(self._write(value))
            self._value, self._shown = value, self.toPlainText()

    def sizeHint(self) -> QSize:
        return QSize(120, self._lines * self.fontMetrics().lineSpacing() + 5 * SPACING)

    minimumSizeHint = sizeHint


class Parameter(QWidget):
    """A number of the sampler: what is used, whose choice that is, and the way back to the recommendation.

    Attributes:
        field: The number.
        reset: Shown where something was chosen.

    Signals:
        changed: Another `value`.
    """

    changed = Signal()

    def __init__(self, key: str) -> None:
        super().__init__()
        title, self._description, *_ = WORDS[key]
        low, high = range_of(Sampling, key)
        self.field: Whole | Decimal
        if isinstance(high, int):
            self.field = Whole(low, high, int(_STEPS[key]))
        else:
            self.field = Decimal(max(low, SMALLEST) if low > 0 else low, high, _STEPS[key])
        theme.follow_zoom(self.field, lambda: self.field.setFixedWidth(theme.px(_NUMBER_WIDTH)))
        self.field.setAccessibleName(title)
        self.field.setKeyboardTracking(False)  # a number that is half typed is none
        self._chosen: float | None = None
        self._source = ElidedLabel()
        theme.scale_font(self._source, 0.9)
        theme.set_role(self._source, "quiet")  # after the font, which the style would take back
        self.reset = small_link("Reset")
        self.reset.setAccessibleName(f"Reset {title} to what the model recommends")
        theme.follow_zoom(self, lambda: self._source.setMinimumHeight(self.reset.sizeHint().height()))  # nothing jumps
        name = label(title, wraps=True)
        name.setBuddy(self.field)
        explain(name, self._description)
        column(row((name, 1), self.field, gap=SPACING), row((self._source, 1), self.reset, gap=SPACING), gap=0, on=self)
        self.field.valueChanged.connect(self._on_value_changed)
        self.field.editingFinished.connect(self.end_typing)
        self.reset.clicked.connect(self._on_reset)

    def value(self) -> float | None:
        """``None``: as the model recommends."""
        return self._chosen

    def show_value(self, chosen: float | None, recommended: float, source: str) -> None:
        """``source`` says in a few words who recommends that. What is half typed stays."""
        if not self.is_half_typed():
            self._chosen = chosen
            value = recommended if chosen is None else chosen
            with QSignalBlocker(self.field):
                if isinstance(self.field, Whole):
                    self.field.setValue(int(min(value, self.field.maximum())))
                else:
                    self.field.setValue(value)
        is_known = source != SOURCE_TEXTS["unknown"]
        whose = f"{recommended:g} is {source}" if is_known else "The server decides unless you choose a value"
        shown = source[:1].upper() + source[1:]
        if chosen is not None:
            shown = f"Recommended: {recommended:g}" if is_known else "Chosen in this chat"
        self._source.setText(shown)
        explain(self._source, whose)
        describe(self.field, self._description, f"Changed in this chat; {whose}" if chosen is not None else shown)
        self.reset.setVisible(chosen is not None)

    def show_refused(self, reason: str) -> None:
        """Why a server has no use for it; empty if it has. Called after each `show_value`."""
        self.setEnabled(not reason)
        if reason:
            self._source.setText(reason)
            for part in (self._source, self.field):
                describe(part, reason)

    def is_half_typed(self) -> bool:
        """Whether somebody is typing a number, which does not count yet."""
        return self.field.lineEdit().isModified()

    def commit(self) -> None:
        """What was typed counts now; what is no number is forgotten."""
        if self.field.lineEdit().isModified():
            self.field.interpretText()
            self.end_typing()

    @Slot()
    def end_typing(self) -> None:
        """What is half typed is not waited for."""
        self.field.lineEdit().setModified(False)

    @Slot()
    def _on_value_changed(self) -> None:
        self.end_typing()
        self._chosen = self.field.value()
        self.changed.emit()

    @Slot()
    def _on_reset(self) -> None:
        self._chosen = None
        self.field.setFocus()
        self.changed.emit()
