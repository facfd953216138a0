"""The chats on the left: new, search, groups by day, rename in place, delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QSignalBlocker, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QIcon, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QFrame,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QMessageBox,
    QPushButton,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.chats.model import Chat
from app.models.text import visible
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import label, plain_tooltip
from app.ui.widgets.layouts import column

SEARCH_DELAY_MS = 150
UNTITLED = "New chat"
_ID = Qt.ItemDataRole.UserRole
_ROW_HEIGHT = 32


def group_of(updated_at: float, today: date) -> str:
    """``Today``, ``Yesterday`` or ``Earlier``, for seconds since 1970 in local time."""
    day = datetime.fromtimestamp(updated_at).date()
    if day >= today:
        return "Today"
    return "Yesterday" if day == today - timedelta(days=1) else "Earlier"


class _TitleDelegate(QStyledItemDelegate):
    """Rows of one height; a heading has no hover and stands lower."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        hint = super().sizeHint(option, index)
        return QSize(hint.width(), max(hint.height(), _ROW_HEIGHT))


class ChatList(QFrame):
    """Shows chats and tells what the user wants done with them. `new_button` is for a new chat.

    Signals:
        chat_chosen: Id of the chat to show.
        chat_renamed: Id and new title.
        chat_deletion_requested: Id of the chat to delete.
        search_changed: What to search for, a moment after typing; empty for everything.
    """

    chat_chosen = Signal(str)
    chat_renamed = Signal(str, str)
    chat_deletion_requested = Signal(str)
    search_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        theme.set_role(self, "side")
        self.setAccessibleName("Chats")
        self._current: str | None = None
        self._chats: list[Chat] = []
        self._today: date | None = None
        self._hidden: set[str] = set()
        self.new_button = QPushButton(UNTITLED)
        self.new_button.setAccessibleName("New chat")
        self.new_button.setToolTip("Start a new chat (Ctrl+N)")
        icons.set_icon(self.new_button, "new-chat")
        self._search = QLineEdit(placeholderText="Search", clearButtonEnabled=True)
        self._search.setAccessibleName("Search chats")
        magnifier = self._search.addAction(QIcon(), QLineEdit.ActionPosition.LeadingPosition)
        icons.set_icon(magnifier, "search")
        self._search_timer = QTimer(self, singleShot=True, interval=SEARCH_DELAY_MS)
        self._search_timer.timeout.connect(lambda: self.search_changed.emit(self.search()))
        self._search.textChanged.connect(lambda _text: self._search_timer.start())
        self._list = self._make_list()
        self._nothing = label(role="quiet", wraps=True)
        self._nothing.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignHCenter)
        gap = theme.SPACING
        margins = (3 * gap, 3 * gap, 3 * gap, 2 * gap)
        column(self.new_button, self._search, (self._nothing, 1), (self._list, 1), margins=margins, on=self)
        self.set_chats([])
        theme.follow(self, self._dress_headings)

    # ------------------------------------------------------------ what is shown

    def set_chats(self, chats: Sequence[Chat], today: date | None = None) -> None:
        """Show these, newest first. While a title is being typed the list stays as it is, and is brought up to date
        when that is done."""
        self._chats, self._today = list(chats), today
        if self._is_renaming():
            return
        position = self._list.verticalScrollBar().value()
        with QSignalBlocker(self._list):
            self._fill(self._rows())
            self._dress_headings()
        self._list.verticalScrollBar().setValue(position)
        self._nothing.setText("No chat has these words." if self.search() else "Chats appear here.")
        self._nothing.setVisible(not self._list.count())
        self._list.setVisible(bool(self._list.count()))
        self.set_current(self._current)

    def set_current(self, chat_id: str | None) -> None:
        """Mark the chat that is shown; ``None`` for one that is not in the list yet."""
        self._current = chat_id
        if self._is_renaming():
            return  # it would end the renaming
        with QSignalBlocker(self._list):
            if (item := self._item(chat_id)) is not None:
                self._list.setCurrentItem(item)
            else:
                self._list.setCurrentRow(-1)
                self._list.clearSelection()

    def hide_chat(self, chat_id: str) -> None:
        """Leave out a chat that is being deleted, until `show_chat`."""
        self._hidden.add(chat_id)
        editor, item = self._list.findChild(QLineEdit), self._list.currentItem()
        if self._is_renaming() and editor is not None and item is not None and item.data(_ID) == chat_id:
            self._list.closeEditor(editor, QAbstractItemDelegate.EndEditHint.RevertModelCache)
        self.set_chats(self._chats, self._today)

    def show_chat(self, chat_id: str) -> None:
        """The list may have this chat again: it was deleted, so that the store leaves it out, or could not be."""
        self._hidden.discard(chat_id)

    def search(self) -> str:
        return self._search.text().strip()

    def focus_search(self) -> None:
        self._search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self._search.selectAll()

    def rename_current(self) -> None:
        """Let the user type a title for the current chat."""
        self._rename(self._current)

    # ------------------------------------------------------------ inside

    def _make_list(self) -> QListWidget:
        made = QListWidget()
        made.setAccessibleName("Chats, newest first")
        delegate = _TitleDelegate(made)
        delegate.closeEditor.connect(self._on_editor_closed)
        made.setItemDelegate(delegate)
        made.setFrameShape(QFrame.Shape.NoFrame)
        made.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        made.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked | QAbstractItemView.EditTrigger.EditKeyPressed)
        made.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        made.currentItemChanged.connect(self._on_current_changed)
        made.itemChanged.connect(self._on_item_changed)
        made.customContextMenuRequested.connect(self._on_menu_requested)
        # On X11 the standard key is Ctrl+D as well, which is the menu's.
        delete = QShortcut(QKeySequence(Qt.Key.Key_Delete), made, context=Qt.ShortcutContext.WidgetShortcut)
        delete.activated.connect(self._on_delete_pressed)
        return made

    def _rows(self) -> list[tuple[str, str]]:
        """What the list has to show: the id of a chat, empty for a heading, and the text."""
        rows: list[tuple[str, str]] = []
        today = self._today or date.today()
        chats = (chat for chat in self._chats if chat.id not in self._hidden)
        for group, of_the_group in groupby(chats, lambda chat: group_of(chat.updated_at, today)):
            rows.append(("", group))
            rows += [(chat.id, visible(chat.title) or UNTITLED) for chat in of_the_group]
        return rows

    def _fill(self, rows: list[tuple[str, str]]) -> None:
        """Replace only the rows that differ, which are few also in a long list."""
        shown = [(str(item.data(_ID) or ""), item.text()) for item in self._items()]
        first, shortest = 0, min(len(rows), len(shown))
        while first < shortest and rows[first] == shown[first]:
            first += 1
        last = 0
        while last < shortest - first and rows[-1 - last] == shown[-1 - last]:
            last += 1
        for row in range(len(shown) - last - 1, first - 1, -1):
            self._list.takeItem(row)
        for place, (chat_id, text) in enumerate(rows[first : len(rows) - last], first):
            self._list.insertItem(place, self._chat_item(chat_id, text) if chat_id else self._heading(text))

    def _heading(self, text: str) -> QListWidgetItem:
        item = QListWidgetItem(text)
        item.setFlags(Qt.ItemFlag.NoItemFlags)
        item.setData(Qt.ItemDataRole.AccessibleTextRole, text)
        item.setFont(theme.scaled(self.font(), 0.9))
        item.setTextAlignment(Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft)
        return item

    def _dress_headings(self) -> None:
        for item in self._items():
            if not item.data(_ID):
                item.setForeground(theme.current().quiet)

    def _chat_item(self, chat_id: str, title: str) -> QListWidgetItem:
        item = QListWidgetItem(title)
        item.setData(_ID, chat_id)
        item.setToolTip(plain_tooltip(title))
        item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable)
        return item

    def _is_renaming(self) -> bool:
        return self._list.state() is QAbstractItemView.State.EditingState

    @Slot()
    def _on_editor_closed(self) -> None:
        # Later: the list still counts as being edited.
        QTimer.singleShot(0, self, lambda: self.set_chats(self._chats, self._today))

    def _rename(self, chat_id: str | None) -> None:
        if (item := self._item(chat_id)) is not None:
            self._list.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self._list.editItem(item)

    def _items(self) -> Iterator[QListWidgetItem]:
        return (self._list.item(row) for row in range(self._list.count()))

    def _item(self, chat_id: str | None) -> QListWidgetItem | None:
        return next((item for item in self._items() if chat_id is not None and item.data(_ID) == chat_id), None)

    @Slot(QListWidgetItem, QListWidgetItem)
    def _on_current_changed(self, item: QListWidgetItem | None, _before: QListWidgetItem | None) -> None:
        if item is not None and item.data(_ID) and item.data(_ID) not in self._hidden:
            self._current = item.data(_ID)
            self.chat_chosen.emit(self._current)

    @Slot(QListWidgetItem)
    def _on_item_changed(self, item: QListWidgetItem) -> None:
        if item.data(_ID):
            self.chat_renamed.emit(item.data(_ID), item.text())

    @Slot()
    def _on_delete_pressed(self) -> None:
        """Ask first: whoever presses this key may believe they are in a text field."""
        chat_id, item = self._current, self._item(self._current)
        if chat_id is None or item is None:
            return
        box = QMessageBox(QMessageBox.Icon.NoIcon, "Delete chat", f"Delete “{item.text()}”?", parent=self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setTextFormat(Qt.TextFormat.PlainText)
        delete = box.addButton("Delete", QMessageBox.ButtonRole.AcceptRole)
        box.setDefaultButton(box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole))
        box.buttonClicked.connect(lambda button: self.chat_deletion_requested.emit(chat_id) if button is delete else 0)
        box.open()

    @Slot(QPoint)
    def _on_menu_requested(self, position: QPoint) -> None:
        item = self._list.itemAt(position)
        if item is None or not item.data(_ID):
            return
        chat_id = item.data(_ID)  # the list may be filled anew while the menu is open
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Rename…", lambda: self._rename(chat_id))
        menu.addAction("Delete", lambda: self.chat_deletion_requested.emit(chat_id))
        menu.popup(self._list.viewport().mapToGlobal(position))
