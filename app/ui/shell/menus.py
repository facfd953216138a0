"""The Edit menu, whose actions apply to the focused widget, and View → Zoom.

Fields and views handle the same keys themselves, and get them first. So the actions only have to be right while the
menu is open; otherwise they are disabled, so that no widget misses a key. Undo, however, stays enabled while there is a
deletion to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Slot
from PySide6.QtGui import QGuiApplication, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFrame,
    QLabel,
    QLineEdit,
    QMenu,
    QMenuBar,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)
from shiboken6 import isValid

from app.ui.context import AppContext
from app.ui.settings.general_page import apply, zoom_beside
from app.ui.shell.main_window import MainWindow
from app.ui.widgets import theme
from app.ui.widgets.column import ReadingPlace
from app.ui.widgets.controls import label, row
from app.ui.widgets.focus import announce
from app.ui.widgets.theme import SPACING

NAMES = ("undo", "redo", "cut", "copy", "paste", "select_all")
_UNDO, _UNDO_DELETION = "&Undo", "&Undo delete"


class EditMenu(QObject):
    """Carries out the actions called `NAMES`."""

    def __init__(self, ctx: AppContext, menu: QMenu) -> None:
        super().__init__(menu)
        self._actions = actions = ctx.actions
        self._operations = ctx.operations
        self._focused: QWidget | None = None
        self._offered: Collection[str] = ()
        """What is possible since the menu was opened."""
        menu.aboutToShow.connect(self._refresh)
        menu.aboutToHide.connect(lambda: actions.qaction("undo").setText(_UNDO))
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._on_focus_changed)
        ctx.operations.undo_changed.connect(self.reset)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        # A menu opened by keyboard takes the focus, and there is none while another app is active.
        if now is not None and not isinstance(now, QMenu | QMenuBar):
            self._focused = now
            self.reset()

    @Slot()
    def reset(self) -> None:
        """The menu was closed, or a deletion to undo came or went."""
        self._offered = ()
        self._actions.refresh()

    def can(self, name: str) -> bool:
        return name in self._offered or (name == "undo" and self._operations.can_undo())

    def act(self, name: str) -> None:
        if (act := self._possible().get(name)) is not None:
            act()

    def _possible(self) -> dict[str, Callable[[], object]]:
        can = possible(self._focused) if self._focused is not None and isValid(self._focused) else {}
        if "undo" not in can and self._operations.can_undo():
            can["undo"] = self._operations.undo
        return can

    @Slot()
    def _refresh(self) -> None:
        self._offered = can = self._possible()
        self._actions.refresh()
        if can.get("undo") == self._operations.undo:
            self._actions.qaction("undo").setText(_UNDO_DELETION)


def possible(widget: QWidget) -> dict[str, Callable[[], object]]:
    """Which of `NAMES` are possible for a widget now, and the functions that do them."""
    if isinstance(widget, QAbstractSpinBox | QComboBox):
        edit = widget.lineEdit()
        return {} if edit is None else possible(edit)
    if isinstance(widget, QLineEdit):
        return _of_line(widget)
    if isinstance(widget, QPlainTextEdit | QTextEdit):
        return _of_text(widget)
    if isinstance(widget, QLabel):
        return _of_label(widget)
    if isinstance(widget, QAbstractItemView) and widget.selectionMode() in _MANY:
        return {"select_all": widget.selectAll}
    return {}


_MANY = (QAbstractItemView.SelectionMode.ExtendedSelection, QAbstractItemView.SelectionMode.MultiSelection)


def _of_line(edit: QLineEdit) -> dict[str, Callable[[], object]]:
    is_shown = edit.echoMode() is QLineEdit.EchoMode.Normal  # a password is never copied
    return _only(
        (edit.isUndoAvailable(), "undo", edit.undo),
        (edit.isRedoAvailable(), "redo", edit.redo),
        (edit.hasSelectedText() and is_shown and not edit.isReadOnly(), "cut", edit.cut),
        (edit.hasSelectedText() and is_shown, "copy", edit.copy),
        (not edit.isReadOnly() and _has_text_to_paste(), "paste", edit.paste),
        (bool(edit.text()), "select_all", edit.selectAll),
    )


def _of_text(edit: QPlainTextEdit | QTextEdit) -> dict[str, Callable[[], object]]:
    document, can_write, is_selected = edit.document(), not edit.isReadOnly(), edit.textCursor().hasSelection()
    return _only(
        (can_write and document.isUndoAvailable(), "undo", edit.undo),
        (can_write and document.isRedoAvailable(), "redo", edit.redo),
        (can_write and is_selected, "cut", edit.cut),
        (is_selected, "copy", edit.copy),
        (can_write and edit.canPaste(), "paste", edit.paste),
        (not document.isEmpty(), "select_all", edit.selectAll),
    )


def _of_label(label: QLabel) -> dict[str, Callable[[], object]]:
    text = label.text()
    return _only(
        (label.hasSelectedText(), "copy", lambda: QGuiApplication.clipboard().setText(label.selectedText())),
        (bool(text), "select_all", lambda: label.setSelection(0, len(text))),
    )


def _has_text_to_paste() -> bool:
    return bool(QGuiApplication.clipboard().text())


def _only(*entries: tuple[bool, str, Callable[[], object]]) -> dict[str, Callable[[], object]]:
    return {name: act for is_possible, name, act in entries if is_possible}


SHOWN_MS = 1500
_NOTCH = 120
"""Qt's value for a notch of the wheel."""


class Zoom(QObject):
    """View → Zoom in, Zoom out and Actual size, and Ctrl+wheel over the chat: change the setting and show it."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._settings = ctx.settings
        self._values = ctx.settings.values
        self._turned = 0
        self.sign = ZoomSign(window)
        ReadingPlace(window.transcript.column)
        window.transcript.column.viewport().installEventFilter(self)
        theme.follow_zoom(self, ctx.actions.refresh)

    def percent(self) -> int:
        return self._values.zoom

    def step(self, steps: int) -> None:
        """Zoom by this many steps."""
        self.set(zoom_beside(self._values.zoom, steps))

    def set(self, percent: int) -> None:
        self._values.zoom = percent
        apply(self._values)
        self.sign.say(percent)
        self._settings.save_soon()

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.Wheel or not isinstance(event, QWheelEvent):
            return False
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._turned = 0
            return False
        self._turned += event.angleDelta().y()
        steps = int(self._turned / _NOTCH)
        self._turned -= steps * _NOTCH
        if steps:
            self.step(steps)
        return True


class ZoomSign(QFrame):
    """``125%`` in the corner of a window, for a moment."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        theme.set_role(self, "card")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.text = label(figures=True)
        row(self.text, margins=(3 * SPACING, 2 * SPACING, 3 * SPACING, 2 * SPACING), on=self)
        self._timer = QTimer(self, singleShot=True, interval=SHOWN_MS)
        self._timer.timeout.connect(self.hide)
        self.hide()

    def say(self, percent: int) -> None:
        self.text.setText(f"{percent}%")
        self.text.setAccessibleName(f"Zoom {percent}%")
        self.ensurePolished()
        self.adjustSize()
        below = self._window.top_bar.mapTo(self._window, self._window.top_bar.rect().bottomRight())
        self.move(below.x() - self.width() - 3 * SPACING, below.y() + 3 * SPACING)
        self.show()
        self.raise_()
        announce(self, self.text.accessibleName())
        self._timer.start()
