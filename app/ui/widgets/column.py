"""A column of messages that builds only what is near the screen.

Each entry has an estimated height until its widget is needed; when the real height turns out different, what the user
is looking at stays where it is. Widgets far from the screen are freed again. A chat of thousands of messages opens as
fast as a short one, and needs little more memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Protocol, cast

from PySide6.QtCore import QEvent, QPoint, QRect, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFont, QFontMetricsF, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QWidget

from app.ui.widgets import theme as themes

MARGIN = 24
"""Free space to the left and right of the column, in pixels."""
GAP = 12
PROSE_CHARACTERS = 72
CODE_CHARACTERS = 100
FAR = 5
"""Widgets further than this many pages from the screen are freed."""
MAX_BUILT = 3
"""So many widgets are built in one go, fewer if they fill half the screen; the others follow when the window has
handled what waits."""
NEAR_END = 30
"""Within this many pixels of the end, the view still counts as being at the end."""


@dataclass(frozen=True)
class Widths:
    """How wide prose and code may be, in pixels."""

    prose: int
    code: int


def prose_width(font: QFont, space: int) -> int:
    """How wide a line of text shall be where there are ``room`` pixels."""
    return min(max(120, space - 2 * MARGIN), round(QFontMetricsF(font).averageCharWidth() * PROSE_CHARACTERS))


def prose_margin(font: QFont, space: int) -> int:
    """What is left free on either side of a line of text, for what stands in line with the messages."""
    return (space - prose_width(font, space)) // 2


class EntryWidget(Protocol):
    """What a widget in the column has to offer."""

    def fit(self, widths: Widths) -> int:
        """Take these widths; give back the height this needs, in pixels."""

    def is_in_use(self) -> bool:
        """Whether it has something that would be lost with it, such as a selection."""


@dataclass(eq=False)
class Entry:
    """One place in the column. ``build`` makes its widget when it comes near the screen."""

    key: str
    build: Callable[[Entry], QWidget]
    height: int
    widget: QWidget | None = None
    fitted: Widths | None = None
    top: int = -1
    """Its position in the column; -1 until it is placed."""
    is_pinned: bool = False
    """Whether its widget is kept, however far away from the screen it is."""


def _stops(widget: QWidget) -> list[QWidget]:
    """Where the Tab key stops in a widget, in its own order."""
    return [one for one in widget.findChildren(QWidget) if one.focusPolicy() & Qt.FocusPolicy.TabFocus]


class Column(QAbstractScrollArea):
    """Scrolls entries; follows the end while the user is there."""

    following_changed = Signal(bool)
    """The view left the end or came back to it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: list[Entry] = []
        self.follows = True
        self._is_moving = False
        self._built: set[Entry] = set()
        self._may_build = 0
        self._to_fill = 0
        self._placed = 0
        """How many entries, from the first, have a correct position."""
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
        place = len(self.entries) if index is None else index
        self.entries.insert(place, entry)
        self._placed = min(self._placed, place)
        # Later: of a whole chat that is added at once only the end has to be built.
        self._soon.start()

    def build(self, entry: Entry) -> QWidget:
        """The widget of this entry, made now if there is none yet."""
        if entry.widget is None:
            entry.widget = entry.build(entry)
            entry.widget.setParent(self.viewport())
            self._order_focus(entry.widget, entry)
            self._built.add(entry)
        return entry.widget

    def _order_focus(self, widget: QWidget, entry: Entry) -> None:
        """The Tab key goes through the messages as one reads, also where older ones were built later."""
        before = (one for one in self._built if one.top < entry.top or entry.top < 0)
        above = max(before, key=lambda one: one.top, default=None)
        last: QWidget = self
        for following in (*(_stops(above.widget) if above is not None and above.widget else ())[-1:], *_stops(widget)):
            if last is not self or above is None:
                QWidget.setTabOrder(last, following)
            last = following

    def remove(self, entries: list[Entry]) -> None:
        """Remove these entries and their widgets."""
        if not entries:
            return
        removed = set(entries)
        self._placed = min(self._placed, next(i for i, entry in enumerate(self.entries) if entry in removed))
        self.entries = [entry for entry in self.entries if entry not in removed]
        for entry in entries:
            self._free(entry)
        self.arrange()

    def _free(self, entry: Entry) -> None:
        if entry.widget is not None:
            entry.widget.hide()
            entry.widget.deleteLater()
            entry.widget, entry.fitted = None, None
            self._built.discard(entry)

    def refit(self, entry: Entry) -> None:
        """The content of this entry's widget changed."""
        entry.fitted = None
        self.arrange(0)  # it has just drawn something: what has to be built waits for a turn of its own

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
    def arrange(self, may_build: int = MAX_BUILT) -> None:
        """Put every entry that is on screen into its place; build those that are missing, at most so many now."""
        if self._is_moving:
            self._soon.start()
            return
        self._soon.stop()
        self._is_moving = True
        self._may_build, self._to_fill = may_build, self.viewport().height() // 2
        try:
            self._arrange()
        finally:
            self._is_moving = False

    def _arrange(self) -> None:
        widths = self.widths()
        anchor = self._anchor()
        for _ in range(12):
            self._compute_tops(anchor)
            # What the user looks at first comes first.
            near = reversed(self._near()) if self.follows else self._near()
            changed = [entry for entry in near if self._realize(entry, widths)]
            if not changed:
                break
        self._compute_tops(anchor)
        self._place(widths)
        if any(entry.widget is None for entry in self._near()):
            self._soon.start()

    def _anchor(self) -> tuple[Entry, int] | None:
        """The first entry on screen and its place there, which shall stay the same."""
        value = self.verticalScrollBar().value()
        index = self._index_at(value)
        return None if index == self._placed else (self.entries[index], self.entries[index].top - value)

    def _index_at(self, y: int) -> int:
        """The first of the placed entries that ends below ``y``; how many they are where none does."""
        index = bisect_right(self.entries, y, hi=self._placed, key=lambda entry: entry.top) - 1
        return index if index >= 0 and self.entries[index].top + self.entries[index].height > y else index + 1

    def _compute_tops(self, anchor: tuple[Entry, int] | None) -> None:
        """Place what changed and everything below it."""
        above = self.entries[self._placed - 1] if self._placed else None
        top = MARGIN if above is None else above.top + above.height + GAP
        for entry in islice(self.entries, self._placed, None):
            entry.top = top
            top += entry.height + GAP
        self._placed = len(self.entries)
        bar = self.verticalScrollBar()
        page = self.viewport().height()
        bar.setRange(0, max(0, top + GAP - page))
        bar.setPageStep(page)
        if self.follows:
            bar.setValue(bar.maximum())
        elif anchor is not None:
            bar.setValue(anchor[0].top - anchor[1])

    def _near(self) -> list[Entry]:
        """What is on the screen, or half a page from it."""
        page = self.viewport().height()
        top = self.verticalScrollBar().value() - page // 2
        first = self._index_at(top)
        return list(takewhile(lambda entry: entry.top <= top + 2 * page, islice(self.entries, first, None)))

    def _realize(self, entry: Entry, widths: Widths) -> bool:
        """Build and fit an entry. True if that changed its height."""
        is_new = entry.widget is None
        if is_new and (not self._may_build or self._to_fill <= 0):
            return False
        widget = self.build(entry)
        if entry.fitted == widths:
            return False
        entry.fitted = widths
        height = cast(EntryWidget, widget).fit(widths)
        if is_new:
            self._may_build -= 1
            self._to_fill -= max(height, entry.height)  # it may not have drawn all of it yet
        if height == entry.height:
            return False
        entry.height = height
        self._placed = min(self._placed, self.entries.index(entry) + 1)
        return True

    def _place(self, widths: Widths) -> None:
        left = (self.width() - widths.prose) // 2
        offset = self.verticalScrollBar().value()
        near = set(self._near())
        for entry in list(self._built):
            if entry.widget is None:
                continue
            if entry in near:
                entry.widget.setGeometry(left, entry.top - offset, widths.code, entry.height)
                entry.widget.show()
            elif not entry.widget.isAncestorOf(QApplication.focusWidget() or self):
                entry.widget.hide()
                if self._is_far(entry, offset):
                    self._free(entry)

    def _is_far(self, entry: Entry, offset: int) -> bool:
        """Whether its widget can go: it is made again when the user comes back."""
        page = max(self.viewport().height(), 100)
        is_away = entry.top + entry.height < offset - FAR * page or entry.top > offset + (FAR + 1) * page
        return is_away and not entry.is_pinned and not cast(EntryWidget, entry.widget).is_in_use()

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
        page = bar.pageStep() - 40
        places = {
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: bar.maximum(),
            Qt.Key.Key_PageUp: bar.value() - page,
            Qt.Key.Key_PageDown: bar.value() + page,
        }
        if event.key() in places:
            bar.setValue(places[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)
