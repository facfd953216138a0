"""The Edit menu: its actions act on the text field or view that has the focus. Where that has nothing to undo, Undo
takes back the last deletion.

The keys are those that fields and views have for themselves, and they get them first. So the actions only have to be
right while the menu is open; at other times they are disabled, and no widget misses a key. But Undo stays enabled while
there is a deletion to take back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
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

NAMES = ("undo", "redo", "cut", "copy", "paste", "select_all")
_UNDO, _UNDO_DELETION = "&Undo", "&Undo delete"


class EditMenu(QObject):
    """What the actions called `NAMES` do."""

    def __init__(self, ctx: AppContext, menu: QMenu) -> None:
        super().__init__(menu)
        self._actions = actions = ctx.actions
        self._operations = ctx.operations
        self._focused: QWidget | None = None
        self._offered: Collection[str] = ()
        """What can be done, since the menu was opened."""
        menu.aboutToShow.connect(self._refresh)
        menu.aboutToHide.connect(lambda: actions.qaction("undo").setText(_UNDO))
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        application.focusChanged.connect(self._on_focus_changed)
        ctx.operations.undo_changed.connect(self.reset)

    @Slot("QWidget*", "QWidget*")
    def _on_focus_changed(self, _old: QWidget | None, now: QWidget | None) -> None:
        # A menu that was opened with the keyboard takes the focus, and none is there while another app is in front.
        if now is not None and not isinstance(now, QMenu | QMenuBar):
            self._focused = now
            self.reset()

    @Slot()
    def reset(self) -> None:
        """The menu is closed, or there is another deletion to take back, or none any more."""
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
    """Which of `NAMES` can be done to a widget now, and the functions that do it."""
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
