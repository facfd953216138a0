"""A column of messages that builds only what is near the screen.

Each entry has an estimated height until its widget is needed; when the real height turns out different, what the user
is looking at stays where it is. A chat of thousands of messages opens as fast as a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFont, QFontMetricsF, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from app.ui import theme as themes

MARGIN = 24
"""Free space left and right of the column, in pixels."""
GAP = 12
PROSE_CHARACTERS = 72
CODE_CHARACTERS = 100
NEAR_END = 30
"""As many pixels from the end, the view still counts as being there."""


@dataclass(frozen=True)
class Widths:
    """How wide prose and code may be, in pixels."""

    prose: int
    code: int


def prose_width(font: QFont, room: int) -> int:
    """How wide a line of text shall be where there are ``room`` pixels."""
    return min(max(120, room - 2 * MARGIN), round(QFontMetricsF(font).averageCharWidth() * PROSE_CHARACTERS))


def prose_margin(font: QFont, room: int) -> int:
    """What is left free on either side of a line of text, for what stands in line with the messages."""
    return (room - prose_width(font, room)) // 2


class EntryWidget(Protocol):
    """What a widget in the column has to offer."""

    def fit(self, widths: Widths) -> int:
        """Take these widths; give back the height this needs, in pixels."""
        ...


@dataclass(eq=False)
class Entry:
    """One place in the column. ``build`` makes its widget when it comes near the screen."""

    key: str
    build: Callable[[Entry], QWidget]
    height: int
    widget: QWidget | None = None
    fitted: Widths | None = None
    top: int = -1
    """Where it stands in the column; -1 until it was placed."""


class Column(QAbstractScrollArea):
    """Scrolls entries; follows the end while the user is there."""

    following_changed = Signal(bool)
    """The view left the end or came back to it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: list[Entry] = []
        self.follows = True
        self._is_moving = False
        self._total = 0
        self._soon = QTimer(self, singleShot=True, interval=0)
        self._soon.timeout.connect(self.arrange)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(40)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        application = cast(QApplication, QApplication.instance())
        application.focusChanged.connect(self._on_focus_changed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    # -- entries

    def add(self, entry: Entry, index: int | None = None) -> None:
        """Add an entry, at the end if no index is given."""
        self.entries.insert(len(self.entries) if index is None else index, entry)
        # Later: of a whole chat that is added at once only the end has to be built.
        self._soon.start()

    def build(self, entry: Entry) -> QWidget:
        """The widget of this entry, made now if there is none yet."""
        if entry.widget is None:
            entry.widget = entry.build(entry)
            entry.widget.setParent(self.viewport())
        return entry.widget

    def remove(self, entries: list[Entry]) -> None:
        """Remove these entries and their widgets."""
        if not entries:
            return
        for entry in entries:
            self.entries.remove(entry)
            if entry.widget is not None:
                entry.widget.hide()
                entry.widget.deleteLater()
                entry.widget = None
        self.arrange()

    def refit(self, entry: Entry) -> None:
        """The content of this entry's widget changed."""
        entry.fitted = None
        self.arrange()

    @property
    def is_pending(self) -> bool:
        """Whether entries were added that are not on screen yet."""
        return self._soon.isActive()

    # -- place

    def widths(self) -> Widths:
        """The widths that fit into the window at present."""
        prose = prose_width(self.font(), self.width())
        code = round(QFontMetricsF(themes.monospace()).averageCharWidth() * CODE_CHARACTERS)
        # Of the whole width: a scroll bar that comes or goes moves nothing.
        right = (self.width() + prose) // 2
        return Widths(prose, max(prose, min(code, prose + self.width() - MARGIN - right)))

    @Slot()
    def go_to_end(self) -> None:
        """Show the newest and follow it from now on."""
        self._set_following(True)
        self.arrange()

    @Slot()
    def arrange(self) -> None:
        """Put every entry that is on screen into its place; build those that are missing."""
        if self._is_moving:
            self._soon.start()
            return
        self._soon.stop()
        self._is_moving = True
        try:
            self._arrange()
        finally:
            self._is_moving = False

    def _arrange(self) -> None:
        widths = self.widths()
        anchor = self._anchor()
        for _ in range(12):
            self._compute_tops(anchor)
            changed = [entry for entry in self._near() if self._realize(entry, widths)]
            if not changed:
                break
        self._compute_tops(anchor)
        self._place(widths)

    def _anchor(self) -> tuple[Entry, int] | None:
        """The first entry on screen and its place there, which shall stay the same."""
        value = self.verticalScrollBar().value()
        shown = (entry for entry in self.entries if entry.top >= 0 and entry.top + entry.height > value)
        entry = next(shown, None)
        return None if entry is None else (entry, entry.top - value)

    def _compute_tops(self, anchor: tuple[Entry, int] | None) -> None:
        top = MARGIN
        for entry in self.entries:
            entry.top = top
            top += entry.height + GAP
        self._total = top + GAP
        bar = self.verticalScrollBar()
        page = self.viewport().height()
        bar.setRange(0, max(0, self._total - page))
        bar.setPageStep(page)
        if self.follows:
            bar.setValue(bar.maximum())
        elif anchor is not None:
            bar.setValue(anchor[0].top - anchor[1])

    def _near(self) -> list[Entry]:
        page = self.viewport().height()
        top = self.verticalScrollBar().value() - page // 2
        return [e for e in self.entries if e.top + e.height >= top and e.top <= top + 2 * page]

    def _realize(self, entry: Entry, widths: Widths) -> bool:
        """Build and fit an entry. True if that changed its height."""
        widget = self.build(entry)
        if entry.fitted == widths:
            return False
        entry.fitted = widths
        height = cast(EntryWidget, widget).fit(widths)
        changed = height != entry.height
        entry.height = height
        return changed

    def _place(self, widths: Widths) -> None:
        left = (self.width() - widths.prose) // 2
        offset = self.verticalScrollBar().value()
        near = set(self._near())
        for entry in self.entries:
            if entry.widget is None:
                continue
            if entry in near:
                entry.widget.setGeometry(left, entry.top - offset, widths.code, entry.height)
                entry.widget.show()
            elif not entry.widget.isAncestorOf(QApplication.focusWidget() or self):
                entry.widget.hide()

    def _set_following(self, follows: bool) -> None:
        if follows != self.follows:
            self.follows = follows
            self.following_changed.emit(follows)

    def show_point(self, widget: QWidget, point: QPoint) -> None:
        """Scroll a little towards this point of a widget if it lies outside, as when selecting with the mouse."""
        y = widget.mapTo(self.viewport(), point).y()
        beyond = min(0, y) + max(0, y - self.viewport().height())
        if beyond:
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() + max(-60, min(60, beyond)))

    @Slot(int)
    def _on_scrolled(self, value: int) -> None:
        if not self._is_moving:
            self._set_following(value >= self.verticalScrollBar().maximum() - NEAR_END)
            self.arrange()

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        """Bring a control that was reached with the keyboard into view."""
        if now is None or not self.viewport().isAncestorOf(now) or now.height() > self.viewport().height() // 2:
            return
        place = QRect(now.mapTo(self.viewport(), QPoint(0, 0)), now.size())
        bar = self.verticalScrollBar()
        if place.top() < 0:
            bar.setValue(bar.value() + place.top() - GAP)
        elif place.bottom() > self.viewport().height():
            bar.setValue(bar.value() + place.bottom() - self.viewport().height() + GAP)

    # -- Qt

    def scrollContentsBy(self, _dx: int, _dy: int) -> None:  # noqa: N802
        """The entries are placed by `arrange`."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.arrange()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() is QEvent.Type.FontChange:
            self.arrange()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.verticalScrollBar()
        if event.key() == Qt.Key.Key_Home:
            bar.setValue(0)
        elif event.key() == Qt.Key.Key_End:
            bar.setValue(bar.maximum())
        elif event.key() == Qt.Key.Key_PageUp:
            bar.setValue(bar.value() - bar.pageStep() + 40)
        elif event.key() == Qt.Key.Key_PageDown:
            bar.setValue(bar.value() + bar.pageStep() - 40)
        else:
            super().keyPressEvent(event)
