"""Small things the entries of the transcript are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QPushButton, QToolButton, QWidget

from app.ui.actions import Actions
from app.ui.notices import Kind
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.entries import Widths
from app.ui.widgets.layouts import CARD_MARGINS, GAP, column, row

CONTEXT_TEXT = "The messages above no longer fit in the context"
_COPIED_MILLISECONDS = 1500


def copy_text(text: str, button: QAbstractButton) -> None:
    """Put text on the clipboard; its button says so for a moment."""
    QGuiApplication.clipboard().setText(text)
    button.setText("Copied")
    QTimer.singleShot(_COPIED_MILLISECONDS, button, lambda: button.setText("Copy"))


def icon_button(icon: str, text: str, name: str) -> QToolButton:
    """A quiet button with an icon; ``text`` may be empty, ``name`` is what a screen reader says."""
    result = QToolButton(autoRaise=True)
    result.setText(text)
    result.setToolTip(name)
    result.setAccessibleName(name)
    result.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    icons.set_icon(result, icon)
    if text:
        result.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    themes.scale_font(result, 0.9)
    return result


def named_button(name: str, action: Callable[[], object]) -> QPushButton:
    """A button with this text and effect."""
    button = QPushButton(name)
    button.setAccessibleName(name)
    button.clicked.connect(lambda _checked: action())
    return button


class Card(QFrame):
    """A raised surface with text and buttons."""

    def __init__(self, text: str, actions: Iterable[tuple[str, Callable[[], object]]], role: Kind) -> None:
        """``actions``: what stands on each button, and what it does."""
        super().__init__()
        themes.set_role(self, "card")
        self._role = role
        self.text = label(text, wraps=True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.buttons = [named_button(name, action) for name, action in actions]
        self._grid = QGridLayout()
        self._grid.setSpacing(GAP)
        self._grid.setColumnStretch(len(self.buttons), 1)
        self._column = column(self.text, self._grid, margins=CARD_MARGINS, on=self)
        self._place_buttons(1)

    def fit(self, widths: Widths) -> int:
        """As many buttons beside each other as have room, the others below them."""
        margins = self.contentsMargins() + self._column.contentsMargins()
        available = widths.prose - margins.left() - margins.right()
        needed = [button.sizeHint().width() + GAP for button in self.buttons]
        count = len(needed)
        while count > 1 and sum(max(needed[place::count]) for place in range(count)) > available:
            count -= 1
        if count != self._beside:
            self._place_buttons(count)
        return height_of(self, widths.prose)

    def _place_buttons(self, count: int) -> None:
        self._beside = count
        for place, button in enumerate(self.buttons):
            self._grid.addWidget(button, place // count, place % count)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        theme = themes.current()
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush({"info": theme.accent, "warning": theme.warning, "bad": theme.bad}[self._role])
        painter.drawRoundedRect(1, 12, 3, self.height() - 24, 1.5, 1.5)


def version_switch(version: int, versions: int, step: Callable[[int], object]) -> QWidget:
    """‹ 1/2 ›: which version of a message this is, from 1. ``step`` gets -1 or 1 for the earlier or the later one."""
    result = QWidget()
    back, on = icon_button("left", "", "Earlier version"), icon_button("right", "", "Later version")
    number = label(f"{version}/{versions}", role="quiet", scale=0.9, figures=True)
    number.setAccessibleName(f"Version {version} of {versions}")
    row(back, number, on, gap=0, on=result)
    back.setEnabled(version > 1)
    on.setEnabled(version < versions)
    back.clicked.connect(lambda: step(-1))
    on.clicked.connect(lambda: step(1))
    return result


def action_button(icon: str, actions: Actions, name: str, *values: object) -> QToolButton:
    """A quiet button for an action of the table; without ``values`` it does nothing by itself."""
    button = icon_button(icon, actions.text(name), actions.description(name))
    if values:
        button.clicked.connect(lambda _checked: actions.run(name, *values))
    return button


def height_of(widget: QWidget, width: int) -> int:
    """The height a label, or a widget with a layout, needs at this width."""
    return widget.heightForWidth(width) if widget.hasHeightForWidth() else widget.sizeHint().height()


class ContextLine(QWidget):
    """A line that marks where the model's context begins."""

    def __init__(self) -> None:
        super().__init__()
        self._label = label(CONTEXT_TEXT, "quiet", scale=0.9)
        self._label.setParent(self)
        self._prose = 0

    def fit(self, widths: Widths) -> int:
        self._prose = widths.prose
        self._label.setWordWrap(self._label.sizeHint().width() > widths.prose)
        width = min(self._label.sizeHint().width(), widths.prose)
        height = height_of(self._label, width)
        self._label.setGeometry((widths.prose - width) // 2, 4, width, height)
        return height + 8

    def is_in_use(self) -> bool:
        return False

    def is_drawn(self) -> bool:
        return True

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() // 2
        gap = self._label.geometry().adjusted(-12, 0, 12, 0)
        line = themes.current().line
        painter.fillRect(0, middle, max(0, gap.left()), 1, line)
        painter.fillRect(gap.right(), middle, max(0, self._prose - gap.right()), 1, line)
