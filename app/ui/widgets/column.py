"""A column of messages that builds only what is near the screen.

Each entry has an estimated height until its widget is needed; when the real height turns out different, what the user
is looking at stays where it is. Until then the entry's text stands there as it is. One widget is built in a turn of
the event loop (see `app.ui.widgets.turns`), and those far from the screen are freed again. A chat of thousands of
messages opens as fast as a short one, and needs little more memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol, cast

from PySide6.QtCore import QEvent, QMargins, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFont, QFontMetricsF, QKeyEvent, QPainter, QPaintEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QFrame, QTextEdit, QWidget
from shiboken6 import isValid

from app.ui.widgets import focus, theme
from app.ui.widgets import theme as themes
from app.ui.widgets.garbage import delete_later
from app.ui.widgets.turns import turns

MARGIN = 24
"""Free space left and right of the column, in pixels."""
GAP = 12
"""Between two entries."""
PROSE_CHARACTERS = 72


@dataclass(frozen=True)
class Widths:
    """How wide prose and code may be, in pixels."""

    prose: int
    code: int


def prose_width(font: QFont, space: int) -> int:
    """How wide a line of text should be if there are ``space`` pixels."""
    return min(max(120, space - 2 * MARGIN), round(QFontMetricsF(font).averageCharWidth() * PROSE_CHARACTERS))


def prose_margin(font: QFont, space: int) -> int:
    """The margin on either side of a line of text, for what should be aligned with the messages."""
    return (space - prose_width(font, space)) // 2


class EntryWidget(Protocol):
    """What a widget in the column must provide."""

    def fit(self, widths: Widths) -> int:
        """Use these widths; returns the height this needs, in pixels."""

    def is_in_use(self) -> bool:
        """Whether it has something that would be lost with it, such as a selection."""

    def is_drawn(self) -> bool:
        """Whether all of it is drawn, so that its height is the real one."""


@dataclass(eq=False, slots=True)
class Entry:
    """One place in the column. ``build`` creates its widget, as a child of the column's viewport, when it comes near
    the screen.
    """

    key: str
    build: Callable[[Entry], QWidget]
    height: int
    text: str = ""
    """Shown until there is a widget."""
    content: object = None
    """The data from which ``build`` creates the widget."""
    widget: QWidget | None = None
    stops: Sequence[QWidget] = ()
    """Where the Tab key stops in it."""
    fitted: Widths | None = None
    drawn: int = 0
    """How much of its height its widget fills so far."""
    top: int = -1
    """Its position in the column; -1 until it was placed."""
    is_pinned: bool = False
    """Whether its widget is kept, however far it is from the screen."""

    def is_drawn(self) -> bool:
        """Whether its height is the real one."""
        return self.fitted is not None and cast(EntryWidget, self.widget).is_drawn()


CODE_CHARACTERS = 100
FAR = 5
"""Widgets further than this many pages from the screen are freed."""
MAX_FREED = 2
"""How many widgets are freed in one turn: more than are built, so that they never pile up."""
AHEAD = 1
"""Pages above and below the screen for which widgets are built beforehand."""
MAX_TEXT = 3000
"""How many characters of a message are shown while its widget isn't built yet."""
NEAR_END = 30
"""Within this many pixels of the end, the view still counts as being at the end."""


@dataclass(frozen=True)
class _Anchor:
    """What stays in its place on the screen while what is around it changes."""

    entry: Entry
    inside: int
    """Pixels from its top to the top of the screen."""
    height: int | None = None
    """Its estimated height, where ``inside`` is only as far into the text as a share of it."""

    def value(self) -> int:
        """Where the screen begins now, in pixels from the beginning of the column."""
        inside = self.inside if self.height is None else round(self.inside * self.entry.height / self.height)
        return self.entry.top + inside


class Column(QAbstractScrollArea):
    """Scrolls entries; follows the end while the user is there."""

    following_changed = Signal(bool)
    """The view left the end or came back to it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: list[Entry] = []
        self.follows = True
        self._is_moving = False
        self._shows_text = False
        """Whether unformatted text is on the screen for messages that aren't drawn yet."""
        self._built: set[Entry] = set()
        self._placed = 0
        """How many entries, from the first, have a correct position."""
        self._revealed: Entry | None = None
        """The entry that was scrolled to; it stays on the screen while the entries around it are built."""
        self._undrawn: Entry | None = None
        """The entry that was scrolled into before it was drawn there; it is read from the same share of its text."""
        self._followed: bool | None = None
        """Whether the end was followed before `keep_place`; ``None`` where that is over."""
        self._value = 0
        """Where the screen was, to determine in which direction the user scrolls."""
        self._scrolls_down = False
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(40)
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self._ringed: QWidget | None = None
        """What has the keyboard: the column itself, or a message, or the text of one."""
        cast(QApplication, QApplication.instance()).focusChanged.connect(self._on_focus_changed)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    # -- entries

    def add(self, entry: Entry, index: int | None = None) -> None:
        """Add an entry, at the end if no index is given."""
        place = len(self.entries) if index is None else index
        self.entries.insert(place, entry)
        self._placed = min(self._placed, place)
        turns().want(self)  # when a whole chat is added at once, only its end has to be built

    def add_all(self, entries: Iterable[Entry], index: int | None = None) -> None:
        """Add many entries, at the end if no index is given."""
        place = len(self.entries) if index is None else index
        anchor = self._anchor()
        self.entries[place:place] = entries
        if place < self._placed:
            self._placed = place
            self._place_anew(anchor)  # at once: later nobody knows what was on the screen
        turns().want(self)

    def build(self, entry: Entry) -> QWidget:
        """The widget of this entry, created if there is none yet."""
        if entry.widget is None:
            entry.widget = entry.build(entry)
            if entry.widget.parentWidget() is not self.viewport():
                entry.widget.setParent(self.viewport())
            self._built.add(entry)
        return entry.widget

    def built(self) -> list[Entry]:
        """The entries that have a widget, in any order."""
        return list(self._built)

    def remove(self, entries: list[Entry]) -> None:
        """Remove these entries and their widgets."""
        if not entries:
            return
        removed = set(entries)
        self._placed = min(self._placed, next(i for i, entry in enumerate(self.entries) if entry in removed))
        self.entries = [entry for entry in self.entries if entry not in removed]
        for entry in self._built & removed:
            self._free(entry)
        self.arrange()

    def _free(self, entry: Entry) -> None:
        if entry.widget is not None:
            for one in entry.widget.findChildren(QWidget):
                # A style sheet only notices the end of widgets that it has styled; those never shown may not be yet.
                one.ensurePolished()
            entry.widget.hide()
            delete_later(entry.widget)
            entry.widget, entry.fitted, entry.stops, entry.drawn = None, None, (), 0
            self._built.discard(entry)

    def refit(self, entry: Entry) -> None:
        """The content of this entry's widget changed."""
        if entry.widget is None:
            return  # it is being built
        entry.fitted = None
        self.arrange()

    # -- place

    def widths(self) -> Widths:
        """The widths that fit in the window at present."""
        prose = prose_width(self.font(), self.width())
        code = round(QFontMetricsF(themes.monospace()).averageCharWidth() * CODE_CHARACTERS)
        # Based on the whole width, so that a scroll bar that appears or disappears moves nothing.
        right = (self.width() + prose) // 2
        return Widths(prose, max(prose, min(code, prose + self.width() - MARGIN - right)))

    @Slot()
    def go_to_end(self) -> None:
        """Scroll to the newest and follow it from now on."""
        self._set_following(True)
        self.arrange()

    def reveal(self, entry: Entry) -> QWidget:
        """Scroll an entry that isn't on the screen to the top; returns its widget, which is created now."""
        self.arrange()
        bar = self.verticalScrollBar()
        if not (bar.value() <= entry.top < bar.value() + bar.pageStep()):
            bar.setValue(entry.top - GAP)
        self._revealed = entry
        widget = self.build(entry)
        self.arrange()
        return widget

    def is_complete(self) -> bool:
        """Whether everything on the screen is built and drawn."""
        return self._placed == len(self.entries) and all(entry.is_drawn() for entry in self._near(0))

    @Slot()
    def arrange(self) -> None:
        """Put every widget near the screen in its place; what is missing is built turn by turn."""
        if self._is_moving:
            turns().want(self)
            return
        self._is_moving = True
        try:
            self._arrange()
        finally:
            self._is_moving = False
        if self._missing() is not None or self._far():
            turns().want(self)
        elif self._followed is not None and self.is_complete():
            self._follow_again()

    def take_turn(self) -> None:
        """Build what is needed first; see `app.ui.widgets.turns`."""
        if self._placed < len(self.entries):
            self._place_anew(self._anchor())
        entry = self._missing()
        if entry is not None:
            self.build(entry)
        for one in self._far()[:MAX_FREED]:
            self._free(one)
        self.arrange()

    def _arrange(self) -> None:
        widths = self.widths()
        anchor = self._anchor()
        for _ in range(12):
            self._compute_tops(anchor)
            changed = [entry for entry in self._near(AHEAD) if self._fit(entry, widths)]
            if not changed:
                break
        self._compute_tops(anchor)
        if self._undrawn is not None and self._undrawn.is_drawn():
            self._undrawn = None
        self._place(widths)

    def _anchor(self) -> _Anchor | None:
        """What the user reads: the entry at the top of the screen, or the first drawn one below it if that isn't drawn
        and ends above the middle."""
        value = self.verticalScrollBar().value()
        shown = self._near(0) if self._placed else []
        if not shown:
            return None
        if self._revealed in shown:
            return _Anchor(self._revealed, value - self._revealed.top)
        first = shown[0]
        inside, is_drawn = value - first.top, first.is_drawn()
        if not is_drawn and first.height - inside < self.viewport().height() // 2:
            entry = next((one for one in shown if one.is_drawn()), first)
            return _Anchor(entry, value - entry.top)
        if not is_drawn and inside > first.drawn:
            self._undrawn = first
        return _Anchor(first, inside, first.height if first is self._undrawn else None)

    def _index_at(self, y: int) -> int:
        """The first of the placed entries that ends below ``y``; their number if there is none."""
        index = bisect_right(self.entries, y, hi=self._placed, key=lambda entry: entry.top) - 1
        return index if index >= 0 and self.entries[index].top + self.entries[index].height > y else index + 1

    def _compute_tops(self, anchor: _Anchor | None) -> None:
        """Place what has changed and everything below it."""
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
            bar.setValue(anchor.value())

    def _place_anew(self, anchor: _Anchor | None) -> None:
        """The same, when it isn't the user who scrolls."""
        self._is_moving = True
        self._compute_tops(anchor)
        self._is_moving = False

    def _near(self, pages: int) -> list[Entry]:
        """What is on the screen, or this many pages above or below it, from top to bottom."""
        page = self.viewport().height()
        top = self.verticalScrollBar().value() - pages * page
        first = self._index_at(top)
        last = bisect_right(
            self.entries, top + (1 + 2 * pages) * page, lo=first, hi=self._placed, key=lambda entry: entry.top
        )
        return self.entries[first:last]

    def _missing(self) -> Entry | None:
        """What has to be built next: what is on the screen, then where the user scrolls to, then the other side."""
        top = self.verticalScrollBar().value()
        bottom = top + self.viewport().height()
        missing = [entry for entry in self._near(AHEAD) if entry.widget is None]

        def urgency(entry: Entry) -> tuple[bool, int]:
            is_above, is_below = entry.top + entry.height <= top, entry.top >= bottom
            if not (is_above or is_below):
                return False, -entry.top if self.follows else entry.top
            away = top - entry.top if is_above else entry.top - bottom
            return True, away if is_below is self._scrolls_down else away + self.viewport().height()

        return min(missing, key=urgency, default=None)

    def _fit(self, entry: Entry, widths: Widths) -> bool:
        """Set the widths of an entry's widget. True if that changed its height."""
        if entry.widget is None or entry.fitted == widths:
            return False
        entry.fitted = widths
        height = entry.drawn = cast(EntryWidget, entry.widget).fit(widths)
        if not entry.is_pinned and not entry.is_drawn():
            height = max(height, entry.height)  # nothing that is being read moves while the rest is drawn
        self._order_focus(entry)
        if height == entry.height:
            return False
        entry.height = height
        self._placed = min(self._placed, self.entries.index(entry) + 1)
        return True

    def _place(self, widths: Widths) -> None:
        left = (self.width() - widths.prose) // 2
        offset = self.verticalScrollBar().value()
        near = set(self._near(AHEAD))
        for entry in self._built:
            if entry.widget is None:
                continue
            if entry in near:
                entry.widget.setGeometry(left, entry.top - offset, widths.code, entry.height)
                if entry.widget.isHidden():
                    entry.widget.show()
            elif not entry.widget.isHidden() and not entry.widget.isAncestorOf(QApplication.focusWidget() or self):
                entry.widget.hide()
        shows_text = any(entry.text and entry.drawn < entry.height for entry in self._near(0))
        if shows_text or self._shows_text:
            self.viewport().update()
        self._shows_text = shows_text

    def _far(self) -> list[Entry]:
        """Those whose widgets can be freed: they are created again when the user comes back."""
        offset, page = self.verticalScrollBar().value(), max(self.viewport().height(), 100)
        top, bottom = offset - FAR * page, offset + (FAR + 1) * page
        away = [entry for entry in self._built if entry.top + entry.height < top or entry.top > bottom]
        return [entry for entry in away if not entry.is_pinned and not self._is_in_use(entry)]

    def _is_in_use(self, entry: Entry) -> bool:
        widget = entry.widget
        if widget is None:
            return False
        return widget.isAncestorOf(QApplication.focusWidget() or self) or cast(EntryWidget, widget).is_in_use()

    def _set_following(self, follows: bool) -> None:
        if follows != self.follows:
            self.follows = follows
            self.following_changed.emit(follows)

    def keep_place(self, widget: QWidget, change: Callable[[], object]) -> None:
        """Do what changes heights, and leave ``widget`` where it is on the screen. The end is followed again if it is
        still in view when everything is drawn."""
        self._followed = self.follows if self._followed is None else self._followed
        self.follows = False
        change()
        self.arrange()
        place = QRect(widget.mapTo(self.viewport(), QPoint(0, 0)), widget.size())
        if not self.viewport().rect().intersects(place):
            self.show_box(widget, widget.rect())

    def _follow_again(self) -> None:
        """What `keep_place` began is over: tell if the view has left the end, or come back to it."""
        followed, self._followed = self._followed, None
        bar = self.verticalScrollBar()
        self.follows = bar.value() >= bar.maximum() - NEAR_END
        if followed is not None and followed != self.follows:
            self.following_changed.emit(self.follows)

    def show_point(self, widget: QWidget, point: QPoint) -> None:
        """Scroll a little toward this point of a widget if it is outside, as when selecting with the mouse."""
        y = widget.mapTo(self.viewport(), point).y()
        beyond = min(0, y) + max(0, y - self.viewport().height())
        if beyond:
            bar = self.verticalScrollBar()
            bar.setValue(bar.value() + max(-60, min(60, beyond)))

    def show_box(self, widget: QWidget, box: QRect) -> None:
        """Scroll so that a part of a widget can be seen: with what is before it, if it wasn't on the screen."""
        top, page = widget.mapTo(self.viewport(), box.topLeft()).y(), self.viewport().height()
        if top < GAP or top + box.height() > page - GAP:
            above = page // 3 if box.height() < page // 2 else GAP
            self.verticalScrollBar().setValue(self.verticalScrollBar().value() + top - above)

    @Slot(int)
    def _on_scrolled(self, value: int) -> None:
        went_down, self._value = value > self._value, value
        if not self._is_moving:
            self._scrolls_down, self._revealed, self._undrawn = went_down, None, None
            if self._followed is not None:
                self._follow_again()
            self._set_following(value >= self.verticalScrollBar().maximum() - NEAR_END)
            self.arrange()

    # -- the keyboard

    def _order_focus(self, entry: Entry) -> None:
        """The Tab key goes through the messages as one reads, also where older ones were built later."""
        inside = entry.widget.findChildren(QWidget) if entry.widget is not None else []
        stops = [one for one in inside if one.focusPolicy() & Qt.FocusPolicy.TabFocus]
        if stops == entry.stops:
            return
        entry.stops = stops
        before = (one for one in self._built if one.stops and (one.top < entry.top or entry.top < 0) and one != entry)
        above = max(before, key=lambda one: one.top, default=None)
        ends = [] if above is None else [one for one in above.stops if isValid(one)]
        for last, following in pairwise([ends[-1] if ends else self, *stops]):
            QWidget.setTabOrder(last, following)

    def _ring(self) -> QRect | None:
        """Around what has the keyboard: a message, or all of them."""
        if (ringed := self._ringed) is None or ringed is self:
            return None if ringed is None else self.viewport().rect()
        entry = next((one for one in self._built if one.widget and one.widget.isAncestorOf(ringed)), None)
        if entry is None or entry.widget is None:
            return None
        return QRect(entry.widget.pos(), QSize(self.widths().prose, entry.height)) + QMargins(5, 5, 5, 5)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        """Bring a control that was reached with the keyboard into view."""
        viewport, bar = self.viewport(), self.verticalScrollBar()
        ringed, self._ringed = self._ringed, focus.read_by_keyboard(self, now)
        if ringed is not self._ringed:
            viewport.update()
        if now is None or not viewport.isAncestorOf(now) or now.height() > viewport.height() // 2:
            return
        place = QRect(now.mapTo(viewport, QPoint(0, 0)), now.size())
        if place.top() < 0:
            bar.setValue(bar.value() + place.top() - GAP)
        elif place.bottom() > viewport.height():
            bar.setValue(bar.value() + place.bottom() - viewport.height() + GAP)

    def _paint_text(self, painter: QPainter, entry: Entry, widths: Widths) -> None:
        """The text of what isn't drawn yet, where it will be, about as much as can be seen."""
        offset, height = self.verticalScrollBar().value(), self.viewport().height()
        skipped = max(entry.drawn, offset - entry.top - height // 4)
        first = len(entry.text) * skipped // max(1, entry.height)
        left, top = (self.width() - widths.prose) // 2, entry.top - offset + skipped
        space = QRectF(left, top, widths.prose, entry.height - skipped)
        painter.drawText(space, Qt.TextFlag.TextWordWrap, entry.text[first : first + MAX_TEXT])

    def paintEvent(self, _event: QPaintEvent) -> None:
        if (ring := self._ring()) is not None:
            focus.draw(QPainter(self.viewport()), ring)
        missing = [entry for entry in self._near(0) if entry.text and entry.drawn < entry.height]
        if missing:
            widths, painter = self.widths(), QPainter(self.viewport())
            painter.setPen(themes.current().quiet)
            for entry in missing:
                self._paint_text(painter, entry, widths)

    def scrollContentsBy(self, _dx: int, _dy: int) -> None:  # noqa: N802
        """The entries are placed by `arrange`."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if len(self.entries) == 1:
            self.entries[0].fitted = None  # it may be as high as the page
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


SETTLING_MS = 500
"""After a change of zoom: how long the column may take to learn how high its entries are."""


class ReadingPlace(QObject):
    """Keeps the line being read in its place while the zoom changes the size of text. For one column, whose entries
    show their text in a `QTextEdit`. If its end was in view, it stays in view."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self._column = column
        self._view: QTextEdit | None = None
        self._position = 0
        """The first character of the line, in the view's document."""
        self._y = 0
        """Where the line was, in pixels from the top of the column."""
        self._settling = QTimer(self, singleShot=True, interval=SETTLING_MS)
        self._settling.timeout.connect(self._forget)
        theme.notifier().zoom_begins.connect(self._remember)
        theme.notifier().zoom_changed.connect(self._on_zoomed)
        # Later, because the column is still placing its entries.
        self._soon = QTimer(self, singleShot=True, interval=0)
        self._soon.timeout.connect(self._restore)
        column.verticalScrollBar().rangeChanged.connect(self._on_range_changed)

    @Slot()
    def _remember(self) -> None:
        """The first line that is completely in view."""
        if self._settling.isActive():
            return  # of several changes in a row, the place before the first one counts
        self._view = None if self._column.follows else self._first_view()
        if self._view is not None:
            inside = self._view.mapFrom(self._column.viewport(), QPoint(0, 0)).y()
            cursor = self._view.cursorForPosition(QPoint(0, max(0, inside)))
            if self._view.cursorRect(cursor).top() < inside:
                cursor.movePosition(QTextCursor.MoveOperation.Down)
            self._position, self._y = cursor.position(), self._place_of(cursor)

    @Slot()
    def _on_zoomed(self) -> None:
        self._settling.start()
        self._column.arrange()
        self._restore()

    @Slot()
    def _on_range_changed(self) -> None:
        if self._settling.isActive():
            self._soon.start()

    @Slot()
    def _restore(self) -> None:
        if self._view is None or not self._settling.isActive() or not isValid(self._view):
            return
        cursor = QTextCursor(self._view.document())
        if self._position < self._view.document().characterCount():
            cursor.setPosition(self._position)
            bar = self._column.verticalScrollBar()
            bar.setValue(bar.value() + self._place_of(cursor) - self._y)

    @Slot()
    def _forget(self) -> None:
        self._view = None

    def _first_view(self) -> QTextEdit | None:
        """The one at the upper edge of the column, or the first one below it."""
        viewport = self._column.viewport()
        shown = [one for one in viewport.findChildren(QTextEdit) if one.isVisible()]
        tops = {one: one.mapTo(viewport, QPoint(0, 0)).y() for one in shown}
        below = [one for one in shown if tops[one] + one.height() > 0]
        return min(below, key=lambda one: tops[one], default=None)

    def _place_of(self, cursor: QTextCursor) -> int:
        assert self._view is not None
        top = self._view.cursorRect(cursor).topLeft()
        return self._view.mapTo(self._column.viewport(), top).y()
