"""What is attached to the message in the composer."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from app.ui.chat.chips import Chip, Chips
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import explain, scrolling
from app.ui.widgets.layouts import LEFT, column
from app.ui.widgets.theme import SPACING

_MOST_HEIGHT = 104
"""About three rows; more scroll."""


class ComposerAttachments(QWidget):
    """The chips above the text; hidden while there are none.

    Attributes:
        chips: What they are shown in.
        as_text: Puts text that was pasted as an attachment into the message instead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.chips = Chips()
        self._area = scrolling(self.chips)
        self._area.setWidgetResizable(False)
        self.as_text = QPushButton("Paste as text", autoDefault=False)
        themes.set_role(self.as_text, "link")
        explain(self.as_text, "Put the pasted text into the message instead of attaching it.")
        column(self._area, (self.as_text, LEFT), gap=SPACING, margins=(0, 0, 0, SPACING), on=self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        themes.follow_zoom(self, self.fit)
        self.hide()

    def show_chips(self, chips: Sequence[Chip], *, has_pasted: bool) -> None:
        """Show these; ``has_pasted``: one of them is pasted text."""
        had_focus = self.isAncestorOf(self.focusWidget() or self)
        self.chips.show_chips(chips)
        self.as_text.setVisible(has_pasted)
        self.setVisible(bool(chips))
        self.fit()
        if had_focus and chips:
            chips[-1].button.setFocus()

    def fit(self) -> None:
        """Arrange them anew."""
        width = max(self.width(), 1)
        height = self.chips.fit(width)
        if height > themes.px(_MOST_HEIGHT):
            width -= self._area.verticalScrollBar().sizeHint().width()
            height = self.chips.fit(width)
        self.chips.resize(width, max(height, 1))
        self._area.setFixedHeight(max(1, min(height, themes.px(_MOST_HEIGHT))))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self.fit()
