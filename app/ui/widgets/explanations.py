"""Shift+F1: shows the texts of `explain` by keyboard: for the focused widget, and from there with the arrow keys.

Figures don't take the focus, so that the Tab key only goes through controls. Here they are reached like everything else
that has an explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from PySide6.QtCore import QObject, QPoint, QRect, Qt, Slot
from PySide6.QtGui import QHideEvent, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QShortcut
from PySide6.QtWidgets import QApplication, QFrame, QLabel, QScrollArea, QWidget

from app.ui.widgets import focus_ring, theme
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import column
from app.ui.widgets.theme import SPACING

KEYS = "Shift+F1"
NOTHING = "There is nothing to explain here."
_KEYS = "Up and Down: other explanations · Esc: close"
_KEY_NAME = "explanation"
_WIDTH = 360
_Key = Qt.Key


class Explanation(QFrame):
    """One explanation over the window, and a ring around what it is about. Deleted when it is closed.

    Attributes:
        about: What is explained; ``None`` where there is nothing.
        text: What is said.
    """

    def __init__(self, window: QWidget, explained: list[QWidget], about: QWidget | None) -> None:
        """``explained``: what the arrow keys go through."""
        super().__init__(window, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        theme.set_role(self, "popup")
        self.about = about
        self._explained = explained
        self._window = window
        self._ring = _Ring(window)
        self._title = label(role="heading", wraps=True)
        self.text = label(wraps=True)
        self._keys = label(_KEYS, "quiet", wraps=True, scale=0.9)
        self._keys.setVisible(len(explained) > 1)
        column(self._title, self.text, self._keys, gap=SPACING, margins=3 * SPACING, on=self)
        self.setFixedWidth(min(theme.px(_WIDTH), window.width()))

    def begin(self) -> None:
        """Show it, and have it read."""
        self._explain()
        self.show()
        self.setFocus(Qt.FocusReason.PopupFocusReason)
        announce(self, self.accessibleName())

    def _explain(self) -> None:
        about = self.about
        title, text = (name_of(about), about.whatsThis()) if about is not None else ("", NOTHING)
        self._title.setText(title)
        self._title.setVisible(bool(title))
        self.text.setText(text)
        self.setAccessibleName(f"{title}. {text}" if title else text)
        if about is not None:
            _scroll_to(about)
        self._fit()
        self._place(about)

    def _fit(self) -> None:
        """As high as the text at this width, which the labels know once they have their fonts."""
        for part in (self, self._title, self.text, self._keys):
            part.ensurePolished()
        if (layout := self.layout()) is not None:
            layout.invalidate()
            self.setFixedHeight(layout.totalHeightForWidth(self.width()))

    def _place(self, about: QWidget | None) -> None:
        """Below what is explained, or above if there is no space; always on the window's screen."""
        if about is None:
            self._ring.hide()
            self.move(self._window.mapToGlobal(self._window.rect().center() - self.rect().center()))
            return
        around = QRect(about.mapTo(self._window, QPoint(0, 0)), about.size())
        self._ring.surround(around)
        screen = self._window.screen().availableGeometry()
        corner = self._window.mapToGlobal(around.bottomLeft() + QPoint(0, SPACING))
        if corner.y() + self.height() > screen.bottom():
            corner = self._window.mapToGlobal(around.topLeft() - QPoint(0, self.height() + SPACING))
        x = max(screen.left(), min(corner.x(), screen.right() - self.width()))
        self.move(x, max(screen.top(), corner.y()))

    # -- Qt

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {_Key.Key_Down: 1, _Key.Key_Tab: 1, _Key.Key_Up: -1, _Key.Key_Backtab: -1}.get(_Key(event.key()), 0)
        if step and self.about is not None:
            place = self._explained.index(self.about)
            self.about = self._explained[(place + step) % len(self._explained)]
            self._explain()
            announce(self, self.accessibleName())
        elif event.key() not in (_Key.Key_Shift, _Key.Key_Control, _Key.Key_Alt, _Key.Key_Meta):
            self.close()

    def focusNextPrevChild(self, _is_next: bool) -> bool:  # noqa: N802
        """The Tab key goes on to the next explanation."""
        return False

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._ring.hide()
        self._ring.deleteLater()


class _Ring(QWidget):
    """Drawn over what is explained."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def surround(self, around: QRect) -> None:
        self.setGeometry(around.adjusted(-3, -3, 3, 3))
        self.show()
        self.raise_()

    def paintEvent(self, _event: QPaintEvent) -> None:
        focus_ring.draw(QPainter(self), self.rect())


def explain_focused(pane_of: Callable[[QWidget | None], QWidget | None] = lambda _widget: None) -> Explanation | None:
    """Explain what has the focus, or what comes next in its pane.

    ``pane_of`` returns the part of the window that a widget is in; ``None`` for the whole window.
    """
    focused = QApplication.focusWidget()
    window = focused.window() if focused is not None else QApplication.activeWindow()
    if window is None:
        return None
    here = pane_of(focused)
    explained = explained_in(here or window) or explained_in(window)
    made = Explanation(window, explained, _nearest(explained, focused))
    made.begin()
    return made


def explained_in(part: QWidget) -> list[QWidget]:
    """What has an explanation and can be seen, or scrolled to, in reading order; of several with the same one, the one
    that takes the focus, or the first.
    """
    candidates = [one for one in part.findChildren(QWidget) if one.whatsThis() and one.isVisible() and _is_there(one)]
    candidates.sort(key=lambda one: _place_in(part, one))
    chosen: dict[str, QWidget] = {}
    for one in candidates:
        before = chosen.get(one.whatsThis())
        if before is None or (one.focusPolicy() and not before.focusPolicy()):
            chosen[one.whatsThis()] = one
    return sorted(chosen.values(), key=lambda one: _place_in(part, one))


class ExplanationKeys(QObject):
    """Adds the key to every window that gets the focus, except the main window, whose menu has it."""

    def __init__(self, main_window: QWidget) -> None:
        super().__init__(main_window)
        self._main_window = main_window
        cast(QApplication, QApplication.instance()).focusChanged.connect(self._on_focus_changed)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        window = now.window() if now is not None else None
        if window is None or window is self._main_window or isinstance(window, Explanation):
            return
        if window.findChild(QShortcut, _KEY_NAME, Qt.FindChildOption.FindDirectChildrenOnly) is None:
            shortcut = QShortcut(QKeySequence(KEYS), window)
            shortcut.setObjectName(_KEY_NAME)
            shortcut.activated.connect(lambda: explain_focused())  # noqa: PLW0108 - without Qt's argument


def name_of(widget: QWidget) -> str:
    """Its name, including its figures."""
    name, texts = widget.accessibleName(), " ".join(_texts(widget.findChildren(QLabel)))
    if name:
        return texts if texts.startswith(name) else name
    if isinstance(text := widget.property("text"), str) and text:
        return text.replace("&", "")
    return texts


def _texts(labels: Iterable[QLabel]) -> list[str]:
    return [one.text() for one in labels if one.isVisible() and one.text()]


def _nearest(explained: list[QWidget], focused: QWidget | None) -> QWidget | None:
    """What has the focus or is around it, otherwise the first one after it."""
    if not explained or focused is None:
        return explained[0] if explained else None
    around = [one for one in explained if one is focused or one.isAncestorOf(focused)]
    if around:
        return around[-1]
    same = next((one for one in explained if one.whatsThis() == focused.whatsThis()), None)
    window = focused.window()
    place = _place_in(window, focused)
    behind = (one for one in explained if _place_in(window, one) >= place)
    return same or next(behind, explained[0])


def _place_in(part: QWidget, widget: QWidget) -> tuple[int, int]:
    corner = widget.mapTo(part, QPoint(0, 0))
    return corner.y(), corner.x()


def _is_there(widget: QWidget) -> bool:
    """Whether it is on the screen, or in something that can scroll to it."""
    return not widget.visibleRegion().isEmpty() or _scroller(widget) is not None


def _scroller(widget: QWidget) -> QScrollArea | None:
    parent = widget.parentWidget()
    while parent is not None and not isinstance(parent, QScrollArea):
        parent = parent.parentWidget()
    return parent


def _scroll_to(widget: QWidget) -> None:
    if (scroller := _scroller(widget)) is not None:
        scroller.ensureWidgetVisible(widget, 0, 2 * SPACING)
