"""Very long messages are folded: only the beginning is shown, with a button for the rest."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QWidget

from app import words

FOLD_CHARACTERS = 12_000
FOLD_LINES = 200
"""A message with more characters or lines is folded."""
SHOWN_CHARACTERS = 5000
SHOWN_LINES = 80
"""So much of it, at most, is shown then."""
SHOW_LESS_TEXT = "Show less"


def folded_length(text: str) -> int | None:
    """How many characters of a long text are shown while it is folded: up to the end of a paragraph, a line or a word.
    ``None`` if it isn't long."""
    if len(text) <= FOLD_CHARACTERS and text.count("\n") < FOLD_LINES:
        return None
    end = 0
    for _ in range(SHOWN_LINES):
        end = text.find("\n", end) + 1 or len(text)
        if end > SHOWN_CHARACTERS:
            end = SHOWN_CHARACTERS
            break
    half = end // 2
    for separator in ("\n\n", "\n", " "):
        cut = text.rfind(separator, half, end)
        if cut >= 0:
            return cut + 1
    return end


_ABOVE, _BELOW = 6, 2


class Fold:
    """How much of a text is shown. ``length``: how many characters; ``None``: all."""

    def __init__(self, parent: QWidget, changed: Callable[[], None]) -> None:
        """``changed``: called when the user wants to see more, or less."""
        self.length: int | None = None
        self._parent = parent
        self._changed = changed
        self._text = ""
        self._button: QPushButton | None = None

    def set_text(self, text: str, *, folds: bool) -> None:
        """Fold this text if it is very long; not at all where it does not fold."""
        self.length = folded_length(text) if folds else None
        self._text = text if self.length is not None else ""
        if self._text and self._button is None:
            self._button = QPushButton(self._parent)
            self._button.setCursor(Qt.CursorShape.ArrowCursor)
            self._button.clicked.connect(self._toggle)
        if self._button is not None:
            self._button.setVisible(bool(self._text))

    def unfold(self) -> None:
        """Show all."""
        if self.length is not None:
            self._toggle()

    def _toggle(self) -> None:
        self.length = folded_length(self._text) if self.length is None else None
        self._changed()

    def place(self, top: int, width: int) -> int:
        """Put the button below the text; gives back where it ends, which is ``top`` where there is none."""
        if self._button is None or not self._text:
            return top
        all_text = f"Show all ({words.number(len(self._text))} characters)"
        self._button.setText(SHOW_LESS_TEXT if self.length is None else all_text)
        size = self._button.sizeHint()
        # A little inside, so that the outline is not cut off.
        self._button.setGeometry(2, top + _ABOVE, min(size.width(), width - 4), size.height())
        return top + _ABOVE + size.height() + _BELOW
