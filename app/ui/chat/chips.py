"""What goes with a message, as small buttons: a click shows it, the cross removes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QPushButton, QToolButton, QWidget

from app.chats.model import Attachment
from app.models.text import visible
from app.ui.chat.parts import icon_button
from app.ui.widgets import icons, units
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.layouts import row

_WIDEST = 260
_GAP = 6


class Chip(QFrame):
    """One attachment, or a file that is being read.

    Signals:
        opened: It is to be shown.
        removed: It isn't wanted any more.
    """

    opened = Signal()
    removed = Signal()

    def __init__(
        self, name: str, detail: str, parent: QWidget, *, can_open: bool, can_remove: bool, tag: str = ""
    ) -> None:
        """``tag``: whatever the caller knows it by."""
        super().__init__(parent)
        self.name = visible(name)
        self.tag = tag
        themes.set_role(self, "chip")
        self.button = QPushButton(autoDefault=False)
        themes.set_role(self.button, "chip")
        icons.set_icon(self.button, "file")
        self.button.setEnabled(can_open)
        self.button.clicked.connect(self.opened)
        themes.scale_font(self.button, 0.9)
        self.remove: QToolButton | None = None
        if can_remove:
            self.remove = icon_button("close", "", f"Remove {self.name}")
            themes.set_role(self.remove, "chip")
            self.remove.clicked.connect(self.removed)
        row(self.button, *filter(None, [self.remove]), gap=0, on=self)
        self._set_detail(detail)

    def show_tokens(self, tokens: int) -> None:
        """They have been counted."""
        self._set_detail(units.tokens(tokens))

    def _set_detail(self, detail: str) -> None:
        metrics = self.button.fontMetrics()
        widest = themes.px(_WIDEST) - metrics.horizontalAdvance(detail)
        shown = metrics.elidedText(self.name, Qt.TextElideMode.ElideMiddle, max(widest, themes.px(60)))
        self.button.setText(f"{shown.replace('&', '&&')}{'  ·  ' if detail else ''}{detail}")
        self.button.setAccessibleName(", ".join(filter(None, (self.name, detail))))
        self.button.setToolTip(plain_tooltip(self.name))

    def text(self) -> str:
        """What is read on it."""
        return self.button.accessibleName()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace) and self.remove is not None:
            self.removed.emit()
        else:
            super().keyPressEvent(event)


class Chips(QWidget):
    """Several of them, in as many rows as they need; see `fit`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chips: list[Chip] = []
        self.setAccessibleName("Attachments")

    def show_chips(self, chips: Sequence[Chip]) -> None:
        """Show these in the place of those before; they are to be children of this."""
        for chip in self.chips:
            if chip not in chips:
                chip.hide()
                chip.deleteLater()
        self.chips = list(chips)
        before: QWidget | None = None
        for chip in self.chips:
            chip.show()
            for button in filter(None, (chip.button, chip.remove)):
                if before is not None:
                    QWidget.setTabOrder(before, button)
                before = button

    def fit(self, width: int) -> int:
        """Arrange them within this width; returns the height they take."""
        x = y = bottom = 0
        for chip in self.chips:
            size = chip.sizeHint()
            if x and x + size.width() > width:
                x, y = 0, bottom + _GAP
            chip.setGeometry(x, y, min(size.width(), max(width, 1)), size.height())
            x, bottom = x + size.width() + _GAP, y + size.height()
        return bottom


def details_of(attachment: Attachment, tokens: int | None) -> str:
    """How much of the context it takes; until that is known, how large it is."""
    if attachment.is_missing:
        return "missing"
    if tokens is not None:
        return units.tokens(tokens)
    return f"{units.number(max(1, round(attachment.size / 1000)))}{units.NO_BREAK}KB"


def chips_of(
    attachments: Sequence[Attachment],
    parent: QWidget,
    show: Callable[[Attachment], object],
    remove: Callable[[int], object] | None = None,
    tokens: Callable[[Attachment], int | None] = lambda _attachment: None,
) -> list[Chip]:
    """A chip for each attachment. ``remove`` gets its place; without it, none can be removed."""
    chips: list[Chip] = []
    for place, one in enumerate(attachments):
        detail = details_of(one, tokens(one))
        can_open, can_remove = not one.is_missing, remove is not None
        chip = Chip(one.name, detail, parent, can_open=can_open, can_remove=can_remove, tag=one.sha256)
        chip.opened.connect(lambda one=one: show(one))
        if remove is not None:
            chip.removed.connect(lambda place=place: remove(place))
        chips.append(chip)
    return chips
