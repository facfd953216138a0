"""The list of chats as one sees and uses it: by mouse, keyboard and dragging."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import groupby

from PySide6.QtCore import (
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QSignalBlocker,
    Qt,
    QTimer,
    Signal,
    Slot,
)
from PySide6.QtGui import QContextMenuEvent, QDrag, QDropEvent, QKeyEvent, QKeySequence, QMouseEvent, QPixmap, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QApplication,
    QFrame,
    QLineEdit,
    QListView,
    QMenu,
    QWidget,
)

from app.chats.model import Chat, Folder
from app.models.text import shortened
from app.ui.chat.list import menus
from app.ui.chat.list.commands import ListCommands
from app.ui.chat.list.drawing import RowDelegate
from app.ui.chat.list.model import ChatListModel
from app.ui.chat.list.rows import ChatSort, FolderRow, Heading, Row, count_text, key_of, title_of_chat
from app.ui.widgets import theme
from app.ui.widgets.controls import label

_Key = Qt.Key
_Select = QItemSelectionModel.SelectionFlag
_SELECTING = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier


class ChatListView(QListView):
    """A click, Enter and the arrow keys open a chat; with Ctrl or Shift they select.

    Attributes:
        chats: The model.

    Signals:
        arranged: It is sorted otherwise, or a folder was opened or closed.
    """

    arranged = Signal()

    def __init__(self, commands: ListCommands, parent: QWidget | None = None) -> None:
        super().__init__(parent, uniformItemSizes=True)
        self.chats = ChatListModel(commands)
        self._commands = commands
        self._waiting: tuple[Sequence[Chat], Sequence[Folder], date | None] | None = None
        """What came while a title was being typed."""
        self._selects_shown = False
        """Whether the open chat is to be selected when that is done: at once it would end it."""
        self._delegate = RowDelegate(self.chats, self)
        self._delegate.closeEditor.connect(self._on_editor_closed)
        self.setModel(self.chats)
        self.setItemDelegate(self._delegate)
        self.setAccessibleName("Chats")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDragDropOverwriteMode(True)  # onto rows, not between them
        self.clicked.connect(self._on_clicked)
        self.doubleClicked.connect(self._on_double_clicked)
        # On X11 the standard key for deleting is Ctrl+D as well, which is the menu's.
        self._add_key("Del", self._delete)
        self._add_key(menus.PIN_KEYS, self._pin)
        self._add_key(menus.MOVE_KEYS, self._ask_where_to_move)
        theme.follow(self, self.viewport().update)

    # ------------------------------------------------------------ what is shown

    def set_content(self, chats: Sequence[Chat], folders: Sequence[Folder], today: date | None = None) -> None:
        """Show these. While a title is being typed the list stays as it is, and is brought up to date afterwards,
        unless what is being renamed has gone."""
        if self.is_renaming():
            there = {chat.id for chat in chats} | {f"folder {folder.id}" for folder in folders}
            row = self.current_row()
            if row is not None and key_of(row) in there:
                self._waiting = chats, folders, today
                return
            self._revert_renaming()
        self._waiting = None  # out of date by now, if it is still to be shown
        shown = self._delegate.shown
        was_there = shown is not None and self.chats.place(shown) is not None
        with self._in_place():
            self.chats.set_content(chats, folders, today)
        if not was_there and shown is not None and self.chats.place(shown) is not None:
            self.set_shown(shown)

    def arrange(self, order: ChatSort | None = None, collapsed: Collection[str] | None = None) -> None:
        """Sort otherwise, or open and close folders."""
        with self._in_place():
            self.chats.arrange(order, collapsed)
        self.arranged.emit()

    def set_shown(self, chat_id: str | None) -> None:
        """Mark the chat that is open and select it alone; ``None`` for one that is not in the list yet."""
        self._delegate.shown = chat_id
        self.viewport().update()
        self._selects_shown = self.is_renaming()
        if not self._selects_shown:
            self.clearSelection()
            self.select(chat_id or "")

    def select(self, key: str) -> None:
        """Select this row alone (see `key_of`), without opening it."""
        if (place := self.chats.place(key)) is not None:
            self.selectionModel().setCurrentIndex(self.chats.index(place), _Select.ClearAndSelect)

    def selected_chats(self) -> list[Chat]:
        rows = (self.chats.rows[place] for place in sorted(self._selected_places()))
        return [row for row in rows if isinstance(row, Chat)]

    def chosen_chats(self) -> list[Chat]:
        """What a key is for: the selected chats, else the one the keyboard is at."""
        row = self.current_row()
        return self.selected_chats() or ([row] if isinstance(row, Chat) else [])

    def current_row(self) -> Row | None:
        """Where the keyboard is."""
        return self.chats.row(self.currentIndex())

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Keep what is at the top there, unless that is the top of the list, and the keyboard near where it was."""
        bar, top, current = self.verticalScrollBar(), self.indexAt(QPoint(1, 1)), self.currentIndex().row()
        anchor, offset = QPersistentModelIndex(top), self.visualRect(top).top()
        was_at_top = bar.value() == 0
        selected = [key_of(self.chats.rows[place]) for place in self._selected_places()]
        with QSignalBlocker(self.selectionModel()):
            self.clearSelection()  # Qt would follow each row by itself, which takes long when all are selected
        yield
        self._select_places(place for key in selected if (place := self.chats.place(key)) is not None)
        if current >= 0 and not self.currentIndex().isValid():
            near = range(min(current, len(self.chats.rows) - 1), -1, -1)
            place = next((one for one in near if not self._is_heading(one)), None)
            if place is not None:
                self.selectionModel().setCurrentIndex(self.chats.index(place), _Select.NoUpdate)
        if not was_at_top and anchor.isValid():
            moved = self.visualRect(self.chats.index(anchor.row())).top() - offset
            bar.setValue(bar.value() + moved)

    def _is_heading(self, place: int) -> bool:
        return isinstance(self.chats.rows[place], Heading)

    # ------------------------------------------------------------ renaming

    def is_renaming(self) -> bool:
        return self.state() is QAbstractItemView.State.EditingState

    def rename(self, key: str) -> None:
        """Let the user type a title for this row; a closed folder is opened for a chat of it."""
        chat = self.chats.chat(key)
        if chat is not None and chat.folder_id is not None and self.chats.place(key) is None:
            self.open_folder(chat.folder_id, True)
        if (place := self.chats.place(key)) is not None:
            self.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.select(key)
            self.edit(self.chats.index(place))

    def rename_current(self) -> None:
        """The row the keyboard is at, otherwise the chat that is open."""
        row = self.current_row() if self.hasFocus() else None
        self.rename(key_of(row) if row is not None else self._delegate.shown or "")

    def _revert_renaming(self) -> None:
        if (editor := self.viewport().findChild(QLineEdit)) is not None:
            self.closeEditor(editor, QAbstractItemDelegate.EndEditHint.RevertModelCache)

    @Slot()
    def _on_editor_closed(self) -> None:
        QTimer.singleShot(0, self, self._catch_up)  # later: the list still counts as being edited

    def _catch_up(self) -> None:
        if self._waiting is not None and not self.is_renaming():
            content, self._waiting = self._waiting, None
            self.set_content(*content)
        if self._selects_shown:
            self.set_shown(self._delegate.shown)

    # ------------------------------------------------------------ what the user does

    def open_folder(self, folder_id: str, is_open: bool) -> None:
        """Show the chats of a folder, or hide them."""
        self.arrange(collapsed=self.chats.collapsed - {folder_id} if is_open else self.chats.collapsed | {folder_id})

    def selectAll(self) -> None:  # noqa: N802
        """All chats; folders are no part of what is deleted or moved then."""
        self._select_places(place for place, row in enumerate(self.chats.rows) if isinstance(row, Chat))

    def _select_places(self, places: Iterable[int]) -> None:
        selection = QItemSelection()
        for _, run in groupby(enumerate(sorted(places)), lambda pair: pair[1] - pair[0]):
            in_a_row = [place for _, place in run]
            selection.select(self.chats.index(in_a_row[0]), self.chats.index(in_a_row[-1]))
        self.selectionModel().select(selection, _Select.ClearAndSelect)

    def _selected_places(self) -> list[int]:
        ranges = self.selectionModel().selection().toList()
        places = (place for one in ranges for place in range(one.top(), one.bottom() + 1))
        return [place for place in places if not self._is_heading(place)]

    def _add_key(self, keys: str, act: Callable[[], object]) -> None:
        made = QShortcut(QKeySequence(keys), self, context=Qt.ShortcutContext.WidgetShortcut)
        made.activated.connect(act)

    def _delete(self) -> None:
        row = self.current_row()
        if chats := self.chosen_chats():
            self._commands.delete_chats([chat.id for chat in chats])
        elif isinstance(row, FolderRow):
            self._commands.delete_folder(row.folder.id)

    def _pin(self) -> None:
        if chats := self.chosen_chats():
            pins = any(chat.pinned_at is None for chat in chats)
            self._commands.pin_chats([chat.id for chat in chats], pins)

    def _ask_where_to_move(self) -> None:
        if chats := self.chosen_chats():
            menu = self._menu()
            menus.fill_move_menu(menu, chats, self.chats.folders(), self._commands, self)
            menu.popup(self._place_of_menu())

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return menu

    def _place_of_menu(self) -> QPoint:
        """On screen, at the row the keyboard is at."""
        return self.viewport().mapToGlobal(self.visualRect(self.currentIndex()).center())

    @Slot(QModelIndex)
    def _on_clicked(self, index: QModelIndex) -> None:
        if not QApplication.keyboardModifiers() & _SELECTING:
            self._open(self.chats.row(index))

    @Slot(QModelIndex)
    def _on_double_clicked(self, index: QModelIndex) -> None:
        if isinstance(self.chats.row(index), Chat):
            self.edit(index)

    def _open(self, row: Row | None) -> None:
        if isinstance(row, Chat):
            self._commands.open_chat(row.id)
        elif isinstance(row, FolderRow):
            self.open_folder(row.folder.id, not row.is_open)

    # ------------------------------------------------------------ Qt

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row, key = self.current_row(), event.key()
        # Enter in the editor of a title comes here, too.
        if self.is_renaming() or event.modifiers() & (_SELECTING | Qt.KeyboardModifier.AltModifier):
            super().keyPressEvent(event)
        elif key in (_Key.Key_Return, _Key.Key_Enter, _Key.Key_Space) and row is not None:
            self.select(key_of(row))
            self._open(row)
        elif key in (_Key.Key_Left, _Key.Key_Right) and isinstance(row, FolderRow):
            self.open_folder(row.folder.id, key == _Key.Key_Right)
        elif key == _Key.Key_Left and isinstance(row, Chat) and row.folder_id is not None:
            self.select(f"folder {row.folder_id}")
        else:
            before = self.currentIndex()
            super().keyPressEvent(event)
            now = self.current_row()
            if self.currentIndex() != before and isinstance(now, Chat):
                self._open(now)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        is_keyboard = event.reason() is QContextMenuEvent.Reason.Keyboard
        row = self.current_row() if is_keyboard else self.chats.row(self.indexAt(event.pos()))
        place = self._place_of_menu() if is_keyboard and row is not None else event.globalPos()
        menu = self._menu()
        if isinstance(row, Chat):
            chats = self.selected_chats()
            if row.id not in {chat.id for chat in chats}:
                chats = [row]
            chat_id, folders = row.id, self.chats.folders()
            menus.fill_chats_menu(menu, chats, folders, self._commands, lambda: self.rename(chat_id), self)
        elif isinstance(row, FolderRow):
            folder_id = row.folder.id
            menus.fill_folder_menu(
                menu,
                row,
                self._commands,
                lambda: self.rename(f"folder {folder_id}"),
                lambda is_open: self.open_folder(folder_id, is_open),
            )
        else:
            menus.fill_list_menu(menu, self.chats.order, self._commands, self.arrange, self)
        menu.popup(place)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        # The other button asks for the menu; a selection of several stays for it.
        if event.button() is not Qt.MouseButton.RightButton:
            super().mousePressEvent(event)

    def startDrag(self, _actions: Qt.DropAction) -> None:  # noqa: N802
        """Not Qt's own, which removes rows that were moved: the store says where chats are."""
        if chats := self.selected_chats():
            drag = QDrag(self)
            drag.setMimeData(self.chats.mimeData(self.selectedIndexes()))
            drag.setPixmap(_drag_picture(title_of_chat(chats[0]) if len(chats) == 1 else count_text(len(chats))))
            drag.exec(Qt.DropAction.MoveAction)

    def dropEvent(self, event: QDropEvent) -> None:
        target = self.indexAt(event.position().toPoint())
        if self.chats.dropMimeData(event.mimeData(), Qt.DropAction.MoveAction, -1, -1, target):
            event.setDropAction(Qt.DropAction.MoveAction)
            event.accept()
        self.stopAutoScroll()
        self.setState(QAbstractItemView.State.NoState)
        self.viewport().update()


def _drag_picture(text: str) -> QPixmap:
    """What the pointer drags along."""
    picture = label(shortened(text, 30), role="card")
    picture.setMargin(theme.SPACING)
    return picture.grab()
