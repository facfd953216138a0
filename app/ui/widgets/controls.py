"""Layouts in one call, and the small widgets of all windows."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from PySide6.QtCore import QEvent, QLocale, QObject, Qt, Signal, Slot
from PySide6.QtGui import QFont, QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QBoxLayout,
    QComboBox,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QStyle,
    QStyleOptionComboBox,
    QStylePainter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from app.ui.widgets import icons, theme
from app.ui.widgets.theme import SPACING
from app.words import is_right_to_left, visible

GAP = 2 * SPACING
"""Between the parts of most rows and columns, in pixels."""
PAGE_MARGINS = (5 * SPACING, 4 * SPACING, 5 * SPACING, 5 * SPACING)
DIALOG_MARGINS = (5 * SPACING, 5 * SPACING, 5 * SPACING, 4 * SPACING)
LIST_MARGINS = (5 * SPACING, 4 * SPACING, 3 * SPACING, 3 * SPACING)
CARD_MARGINS = (4 * SPACING, 3 * SPACING, 4 * SPACING, 3 * SPACING)

TOP, LEFT, MIDDLE = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignVCenter

_Box = TypeVar("_Box", bound=QBoxLayout)
Item: TypeAlias = QWidget | QLayout
Part: TypeAlias = Item | tuple[Item, int] | tuple[QWidget, Qt.AlignmentFlag] | int | None
"""A widget or a layout, alone, with its stretch, or with its alignment; a number of pixels left free; or ``None`` for a
stretch that takes the remaining space.
"""
Margins: TypeAlias = int | tuple[int, int, int, int]
"""In pixels: the same on all sides, or left, top, right, bottom."""


def row(*parts: Part, gap: int = GAP, margins: Margins = 0, on: QWidget | None = None) -> QHBoxLayout:
    """The parts next to each other, as the layout of ``on`` if that is given."""
    return _filled(QHBoxLayout(), parts, gap, margins, on)


def column(*parts: Part, gap: int = GAP, margins: Margins = 0, on: QWidget | None = None) -> QVBoxLayout:
    """The parts below each other, as the layout of ``on`` if that is given."""
    return _filled(QVBoxLayout(), parts, gap, margins, on)


def _filled(layout: _Box, parts: tuple[Part, ...], gap: int, margins: Margins, on: QWidget | None) -> _Box:
    if on is not None:
        on.setLayout(layout)
    layout.setContentsMargins(*((margins,) * 4 if isinstance(margins, int) else margins))
    layout.setSpacing(gap)
    for part in parts:
        _add(layout, part)
    return layout


def _add(layout: QBoxLayout, part: Part) -> None:
    one, how = part if isinstance(part, tuple) else (part, 0)
    stretch, place = (0, how) if isinstance(how, Qt.AlignmentFlag) else (how, Qt.AlignmentFlag(0))
    if one is None:
        layout.addStretch(1)
    elif isinstance(one, int):
        layout.addSpacing(one)
    elif isinstance(one, QLayout):
        layout.addLayout(one, stretch)
    else:
        layout.addWidget(one, stretch, place)


W = TypeVar("W", bound=QWidget)

LOCALE = QLocale(QLocale.Language.English, QLocale.Country.UnitedStates)
"""For all numbers and dates in the window that Qt writes: one locale, that of its text, which is American English."""


def explain(widget: W, text: str) -> W:
    """The widget, which has a tooltip with short lines from now on; screen readers get it as help."""
    text = visible(text)
    widget.setToolTip(_short_lines(text))
    widget.setWhatsThis(text)
    return widget


@lru_cache(maxsize=64)
def _short_lines(text: str) -> str:
    return "\n".join(textwrap.fill(line, 56) for line in text.split("\n"))


def plain_tooltip(text: str) -> str:
    """A tooltip with text from elsewhere: Qt can't be told that it is plain text, so the text is escaped."""
    return f"<qt>{html.escape(visible(text)).replace(chr(10), '<br>')}</qt>" if text else ""


def label(
    text: str = "",
    role: str | None = None,
    *,
    wraps: bool = False,
    scale: float = 1.0,
    bold: bool = False,
    figures: bool = False,
    selectable: bool = False,
    buddy: QWidget | None = None,
    parent: QWidget | None = None,
) -> QLabel:
    """A label that never interprets markup. ``figures``: digits of one width, for changing numbers; ``buddy``: the
    field it names."""
    result = QLabel(text, parent, textFormat=Qt.TextFormat.PlainText, wordWrap=wraps)
    if selectable:
        result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if buddy is not None:
        result.setBuddy(buddy)
    if bold or figures:
        font = result.font()
        if bold:
            font.setWeight(QFont.Weight.DemiBold)
        result.setFont(theme.tabular(font) if figures else font)
    if scale != 1.0:
        theme.scale_font(result, scale)
    if role is not None:
        # After the font, because a style sheet that is applied before would reset it.
        theme.set_role(result, role)
    return result


def breakable(text: str) -> str:
    """``text`` from elsewhere with places to break in long words: a label is never narrower than its longest word."""
    return re.sub(r"\S{30}", lambda word: f"{word[0]}\u200b", text)


def show_text(target: QLabel, text: str, role: str | None = None) -> None:
    """Show this in a label that is only visible while it says something."""
    target.setText(from_left(text))
    target.setVisible(bool(text))
    if role is not None:
        theme.set_role(target, role)


def from_left(text: str) -> str:
    """A sentence in English that begins with a name in Hebrew or Arabic, marked: it would be shown from the right."""
    return f"\u200e{text}" if is_right_to_left(text) and re.search(r" [a-z]{2,}\b", text) else text


class ElidedLabel(QLabel):
    """One line of plain text that never widens what it stands in: what has no room ends in "…".

    `text` gives back the whole text.
    """

    def __init__(self, role: str | None = None, *, keeps_end: bool = False) -> None:
        """``keeps_end``: what has no room is left out in the middle."""
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self._whole = ""
        self._mode = Qt.TextElideMode.ElideMiddle if keeps_end else Qt.TextElideMode.ElideRight
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        if role is not None:
            theme.set_role(self, role)

    def text(self) -> str:
        return self._whole

    def setText(self, text: str) -> None:  # noqa: N802
        self._whole = text
        self.setAccessibleName(text)
        self._fit()

    def _fit(self) -> None:
        space = self.contentsRect().width()
        super().setText(self.fontMetrics().elidedText(from_left(self._whole), self._mode, space))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit()


def stacked(*widgets: QWidget) -> QWidget:
    """Several widgets in one place, of which one is visible."""
    result = QWidget()
    column(*widgets, on=result)
    return result


def beside(left: QWidget, right: QWidget, widths: Sequence[int]) -> QSplitter:
    """Two widgets with a draggable line between them; ``widths`` are their initial widths in pixels."""
    splitter = QSplitter(Qt.Orientation.Horizontal, childrenCollapsible=False)
    splitter.addWidget(left)
    splitter.addWidget(right)
    splitter.setSizes(widths)
    return splitter


def scrolling(content: QWidget) -> QScrollArea:
    """``content`` in an area without a frame that scrolls if there isn't enough space.

    The Tab key doesn't stop at it: it follows the focus of its content, which passes on the keys for pages and lines.
    """
    area = QScrollArea(widgetResizable=True)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setWidget(content)
    return area


def named(widget: W, name: str) -> W:
    """The widget, which screen readers call ``name`` from now on."""
    widget.setAccessibleName(name)
    return widget


def push_button(
    text: str, act: Callable[[], object] | None = None, *, name: str = "", tooltip: str = "", role: str = ""
) -> QPushButton:
    """A button that calls ``act`` and isn't pressed by Enter in a field. ``name``: for screen readers, if the text says
    too little."""
    button = named(QPushButton(text, autoDefault=False), name)
    button.setToolTip(tooltip)
    if role:
        theme.set_role(button, role)
    if act is not None:
        button.clicked.connect(act)
    return button


def break_text(button: QPushButton, width: int) -> None:
    """Write its text in as many lines as it needs to be at most so wide."""
    whole = button.text().replace("\n", " ")
    metrics, lines = button.fontMetrics(), [""]
    room = width - (button.sizeHint().width() - metrics.size(0, button.text()).width())
    for word in whole.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and metrics.horizontalAdvance(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    if (text := "\n".join(lines)) != button.text():
        button.setText(text)


def small_button(
    text: str, act: Callable[[], object] | None = None, *, name: str = "", tooltip: str = ""
) -> QPushButton:
    """A button for a row in a list, otherwise as `push_button`."""
    return push_button(text, act, name=name, tooltip=tooltip, role="small")


def guard_wheel(field: QWidget, *, even_focused: bool = False) -> None:
    """Keep the wheel from a field, by default while it has no focus, so that scrolling past it changes nothing."""
    field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    field.installEventFilter(_WheelGuard(field, even_focused))


class _WheelGuard(QObject):
    def __init__(self, field: QWidget, even_focused: bool) -> None:
        super().__init__(field)
        self._field, self._even_focused = field, even_focused

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Wheel and (self._even_focused or not self._field.hasFocus()):
            event.ignore()
            return True
        return super().eventFilter(watched, event)


def keeps_escape(event: QEvent) -> bool:
    """Accept Escape for the widget with the keyboard: elsewhere in the window it stops an answer."""
    is_escape = isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape
    if keeps := is_escape and event.type() is QEvent.Type.ShortcutOverride:
        event.accept()
    return keeps


def clear_layout(layout: QLayout) -> None:
    """Remove everything from a layout and those inside it, and delete the widgets. Their focus goes to the widget
    around them; Qt would give it to the next one, and scroll there."""
    focused = QApplication.focusWidget()
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            around = widget.parentWidget()
            if around is not None and focused is not None and (widget is focused or widget.isAncestorOf(focused)):
                around.setFocus()
            widget.hide()
            widget.deleteLater()
        elif (inner := item.layout()) is not None:
            clear_layout(inner)
            inner.deleteLater()


class Choice(QComboBox):
    """A list to choose from that never widens the panel: what has no room ends in "…"."""

    _given: Any = None
    _shown: Any = None

    def __init__(self, name: str) -> None:
        super().__init__(
            minimumContentsLength=8,
            sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon,
        )
        self.setAccessibleName(name)
        self.view().setAccessibleName(f"{name} choices")
        self.view().setTextElideMode(Qt.TextElideMode.ElideRight)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        guard_wheel(self, even_focused=True)

    def offer(self, choices: Sequence[tuple[str, str]]) -> None:
        """Values to choose from, and what is shown for them."""
        if [(self.itemData(place), self.itemText(place)) for place in range(self.count())] != list(choices):
            self.clear()
            for value, text in choices:
                self.addItem(text, value)

    def value(self) -> Any:
        """What is chosen; until somebody chooses, the value that was shown, even if it can't be chosen."""
        return self._given if self.currentData() == self._shown else self.currentData()

    def show_value(self, value: str) -> None:
        """The first one where ``value`` cannot be chosen."""
        self.setCurrentIndex(max(self.findData(value), 0))
        self._given, self._shown = value, self.currentData()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, option = QStylePainter(self), QStyleOptionComboBox()
        self.initStyleOption(option)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        room = self.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, self
        )
        elided = self.fontMetrics().elidedText(self.currentText(), Qt.TextElideMode.ElideRight, room.width())
        option.currentText = elided
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)


HELP = (
    "This model's file contains an MTP head: a part that predicts further tokens, and drafts without a second model. "
    "Automatic uses it where it is expected to save time. It never changes the answers. A change loads the model again "
    "and is remembered for this model."
)
_CHOICES = {"auto": "Automatic", "on": "On", "off": "Off"}
"""Those of `app.protocol.options.HeadChoice`."""


class HeadControl(QWidget):
    """Whether to use the MTP head in a model: a list to choose from, and below it why the head isn't used, and what it
    brought."""

    choice_changed = Signal(str)
    """Carries a `HeadChoice`; only for choices of the user."""

    def __init__(self) -> None:
        super().__init__()
        self._box = Choice("MTP head")
        self._box.offer(list(_CHOICES.items()))
        self._reason = label(role="quiet", wraps=True)
        line = row(label("MTP head", "heading"), (self._box, 1), gap=3 * SPACING)
        self._measured = label(role="quiet", wraps=True, figures=True)
        column(line, self._reason, self._measured, gap=SPACING, on=self)
        for widget in (self, self._box):
            explain(widget, HELP)
        self._box.activated.connect(self._on_activated)
        self.show_choice("auto", "")

    def choice(self) -> str:
        """A `HeadChoice`."""
        return str(self._box.currentData())

    def show_choice(self, choice: str, reason: str, measured: str = "") -> None:
        """``reason``: why the head isn't used, a sentence; empty if it is. ``measured``: what a trial says of it."""
        self._box.setCurrentIndex(self._box.findData(choice))
        self._box.setAccessibleDescription(" ".join(text for text in (reason, measured) if text))
        show_text(self._measured, measured)
        show_text(self._reason, f"Not in use. {reason}" if reason else "")

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        self.choice_changed.emit(self._box.itemData(index))


class Section(QWidget):
    """A heading with a triangle, and below it its content while it is open; closed, its settings in a few words.
    ``button``: opens and closes it."""

    def __init__(self, title: str, content: QWidget) -> None:
        super().__init__()
        self._title = title
        self._content = content
        self.button = QToolButton(toolButtonStyle=Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setText(title)
        self.button.setCheckable(True)
        theme.set_role(self.button, "section")
        self._summary = ElidedLabel("quiet")
        self._summary.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        line = QFrame()
        theme.set_role(line, "line")
        header = row(self.button, (self._summary, 1), gap=3 * SPACING)
        header.addStretch()
        column(line, header, content, gap=SPACING, on=self)
        self.button.toggled.connect(self._on_toggled)
        theme.follow(self, self._dress)
        self._on_toggled(False)

    def set_summary(self, text: str) -> None:
        """A summary of its settings in a few words."""
        self._summary.setText(text)
        self._summary.setToolTip(plain_tooltip(text))

    def _dress(self) -> None:
        icon = "chevron-down" if self.button.isChecked() else "chevron-right"
        self.button.setIcon(icons.themed(icon, theme.current()))

    @Slot(bool)
    def _on_toggled(self, is_open: bool) -> None:
        self._content.setVisible(is_open)
        self._summary.setVisible(not is_open)
        self.button.setAccessibleName(f"{self._title}, {'open' if is_open else 'closed'}")
        self._dress()
