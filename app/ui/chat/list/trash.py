"""The trash, in the place of the list: what was deleted, when, and how long it can still be brought back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QObject, QPoint, QSize, Qt, Slot
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QMenu,
    QPushButton,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QToolButton,
    QWidget,
)

from app import words
from app.chats.model import Chat
from app.chats.store import TRASH_DAYS
from app.ui.actions import Actions
from app.ui.chat.list.model import AnyIndex, RowsModel, moment_text, title_of_chat
from app.ui.chat.list.view import MARGIN, add_key, draw_background, draw_line, has_keyboard, set_up
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import column, label, plain_tooltip, row, small_button
from app.ui.widgets.questions import ask
from app.ui.widgets.theme import SPACING

_DAY_SECONDS = 86400.0
_Roles = Qt.ItemDataRole


def left_text(deleted_at: float, now: float) -> str:
    """How long a deleted chat can still be brought back: ``30 days left``. Both in seconds since 1970."""
    days = math.ceil(TRASH_DAYS - (now - deleted_at) / _DAY_SECONDS)
    return f"{days} days left" if days > 1 else "1 day left"


class _Deleted(NamedTuple):
    """A row: a chat, and how long it can still be brought back."""

    chat: Chat
    left: str


def _answer(row: _Deleted, role: int) -> object:
    title = title_of_chat(row.chat)
    if role == _Roles.DisplayRole:
        return title
    when = f"Deleted {moment_text(row.chat.deleted_at or 0.0)}, {row.left}"
    if role == _Roles.ToolTipRole:
        return plain_tooltip(f"{title}\n{when}")
    return f"{title}, {when}" if role == _Roles.AccessibleTextRole else None


class _TrashDelegate(QStyledItemDelegate):
    """A title, and below it how long the chat can still be brought back."""

    def __init__(self, model: RowsModel[_Deleted], parent: QObject) -> None:
        super().__init__(parent)
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        return QSize(1, 2 * QFontMetrics(option.font).height() + 3 * SPACING)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        deleted, font, colors = self._model.rows[index.row()], option.font, theme.current()
        painter.save()
        draw_background(painter, option, has_keyboard(option))
        box = option.rect.adjusted(MARGIN, SPACING, -MARGIN, -SPACING)
        half = box.height() // 2
        draw_line(painter, box.adjusted(0, 0, 0, -half), title_of_chat(deleted.chat), font, colors.text)
        small = theme.scaled(font, 0.9)
        draw_line(painter, box.adjusted(0, half, 0, 0), deleted.left, small, colors.quiet)
        painter.restore()


class TrashPanel(QWidget):
    """What was deleted, and what can be done with it."""

    def __init__(self, actions: Actions, leave: Callable[[], object], parent: QWidget | None = None) -> None:
        """``leave`` shows the list of chats again."""
        super().__init__(parent)
        self._actions = actions
        self._leave = leave
        self.model = RowsModel(_answer)
        self.view = QListView(uniformItemSizes=True)
        set_up(self.view, "Deleted chats", self.model, _TrashDelegate(self.model, self.view))
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.view.customContextMenuRequested.connect(self._on_menu_requested)
        self.view.selectionModel().selectionChanged.connect(self._show_state)
        self.back = QToolButton()
        self.back.setAccessibleName("Back to chats")
        self.back.setToolTip("Back to chats")
        icons.set_icon(self.back, "left")
        self.back.clicked.connect(leave)
        self._explanation = label(
            f"Chats stay here for {TRASH_DAYS} days, then they are permanently deleted.", role="quiet", wraps=True
        )
        self._empty_text = label("The trash is empty.", role="quiet", wraps=True)
        self._empty_text.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignHCenter)
        self.restore = self._button("Restore", self._restore)
        self.delete_now = self._button("Delete now…", self._ask_to_delete)
        self.empty = self._button("Empty trash…", self._ask_to_empty)
        column(
            row(self.back, label("Trash", role="heading"), None),
            self._explanation,
            (self._empty_text, 1),
            (self.view, 1),
            row((self.restore, 1), (self.delete_now, 1)),
            self.empty,
            on=self,
        )
        add_key(self.view, "Del", self._ask_to_delete)
        self.set_chats([])

    def set_chats(self, chats: Sequence[Chat], now: float | None = None) -> None:
        """Show what is in the trash, deleted last first. ``now``, in seconds since 1970, is given by tests."""
        selected, position = set(self._selected()), self.view.verticalScrollBar().value()
        place, focused = self.view.currentIndex().row(), self.window().focusWidget()
        now = time.time() if now is None else now
        self.model.set_rows([_Deleted(chat, left_text(chat.deleted_at or now, now)) for chat in chats])
        selection = QItemSelection()
        for at, chat in enumerate(chats):
            if chat.id in selected:
                selection.select(self.model.index(at), self.model.index(at))
        flags = QItemSelectionModel.SelectionFlag
        self.view.selectionModel().select(selection, flags.ClearAndSelect)
        if chats and place >= 0:
            near = self.model.index(min(place, len(chats) - 1))
            self.view.selectionModel().setCurrentIndex(near, flags.NoUpdate)
        self.view.verticalScrollBar().setValue(position)
        was_empty = self.view.isHidden()
        self.view.setVisible(bool(chats))
        self._explanation.setVisible(bool(chats))
        self._empty_text.setVisible(not chats)
        self._show_state()
        # Of the window: also while another one is in front. A button that is disabled gives the keyboard away.
        has_lost_it = focused is not self.window().focusWidget() and self.isAncestorOf(focused or self)
        if has_lost_it or (was_empty and focused is self.back):
            self.begin()

    def begin(self) -> None:
        """The panel has been opened: the keyboard goes to the list, as soon as there is one."""
        (self.view if self.model.rows else self.back).setFocus(Qt.FocusReason.OtherFocusReason)

    def _button(self, text: str, act: Callable[[], object]) -> QPushButton:
        made = small_button(text)
        made.clicked.connect(act)
        return made

    def _selected(self) -> list[str]:
        return [self.model.rows[place].chat.id for place in sorted(one.row() for one in self.view.selectedIndexes())]

    @Slot()
    def _show_state(self) -> None:
        has_selection = self.view.selectionModel().hasSelection()
        self.restore.setEnabled(has_selection)
        self.delete_now.setEnabled(has_selection)
        self.empty.setEnabled(bool(self.model.rows))

    def _restore(self) -> None:
        if ids := self._selected():
            self._actions.run("restore_chats", ids)

    def _ask_to_delete(self) -> None:
        if ids := self._selected():
            self._ask(f"Permanently delete {words.count(len(ids), 'chat')}?", "Delete", ids)

    def _ask_to_empty(self) -> None:
        count = len(self.model.rows)
        self._ask(f"Permanently delete all chats in the trash ({words.count(count, 'chat')})?", "Empty trash", None)

    def _ask(self, question: str, button: str, ids: Sequence[str] | None) -> None:
        ask(
            self,
            "Trash",
            question,
            details="This can't be undone.",
            lossy={button: lambda: self._actions.run("erase_chats", ids)},
        )

    @Slot(QPoint)
    def _on_menu_requested(self, position: QPoint) -> None:
        if not self._selected():
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("&Restore", self._restore)
        menu.addAction("&Delete now…\tDel", self._ask_to_delete)
        menu.popup(self.view.viewport().mapToGlobal(position))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self._leave()
        else:
            super().keyPressEvent(event)
