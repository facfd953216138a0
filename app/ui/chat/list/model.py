"""The rows of the list of chats for a view; a refresh keeps selection and current row, which Qt tracks by index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import date

from PySide6.QtCore import QMimeData, QModelIndex, QPersistentModelIndex, QSignalBlocker, QStringListModel, Qt

from app.chats.model import Chat, Folder
from app.models.text import visible
from app.ui.chat.list.commands import ListCommands
from app.ui.chat.list.rows import (
    PINNED,
    ChatSort,
    FolderRow,
    Heading,
    Row,
    count_text,
    key_of,
    moment_text,
    rows_of,
    title_of_chat,
)
from app.ui.widgets.controls import plain_tooltip

AnyIndex = QModelIndex | QPersistentModelIndex

MIME_TYPE = "application/x-slipstream-chats"
"""Ids of chats that are dragged, one a line. Only this list understands them."""
_Flag = Qt.ItemFlag
_Roles = Qt.ItemDataRole


class ChatListModel(QStringListModel):
    """Qt's list of strings, all of them empty, only counts the rows: a count asked of Python for every row would make
    laying out ten thousand take ten times as long. Everything else about a row is answered here.

    Attributes:
    rows: What is shown, top to bottom.
    order, collapsed: How; changed by `arrange`.
    """

    def __init__(self, commands: ListCommands) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.order: ChatSort = "newest"
        self.collapsed: frozenset[str] = frozenset()
        self._commands = commands
        self._chats: Sequence[Chat] = ()
        self._folders: Sequence[Folder] = ()
        self._today: date | None = None
        self._places: dict[str, int] = {}
        self.answering = ""
        """Id of the chat whose answer is being written."""

    # ------------------------------------------------------------ content

    def set_content(self, chats: Sequence[Chat], folders: Sequence[Folder], today: date | None = None) -> None:
        """Show these chats, which come newest first, in these folders. ``today`` is given by tests."""
        gone = {folder.id for folder in self._folders} - {folder.id for folder in folders}
        self.collapsed -= gone
        self._chats, self._folders, self._today = chats, folders, today
        self._refresh()

    def arrange(self, order: ChatSort | None = None, collapsed: Collection[str] | None = None) -> None:
        """Sort otherwise, or show the chats of other folders: not those of ``collapsed``, named by their ids."""
        self.order = self.order if order is None else order
        self.collapsed = self.collapsed if collapsed is None else frozenset(collapsed)
        self._refresh()

    def set_answering(self, chat_id: str) -> None:
        """An answer is being written in this chat; empty for none. Its row has a mark, and screen readers say so."""
        before, self.answering = self.answering, chat_id
        for key in (before, chat_id):
            if (place := self.place(key)) is not None:
                self.dataChanged.emit(self.index(place), self.index(place))

    def folders(self) -> Sequence[Folder]:
        return self._folders

    def chat(self, chat_id: str) -> Chat | None:
        """A chat, also one that no row shows."""
        return next((chat for chat in self._chats if chat.id == chat_id), None)

    def place(self, key: str) -> int | None:
        """The row with this key (see `key_of`); a chat's is its id."""
        return self._places.get(key)

    def row(self, index: AnyIndex) -> Row | None:
        return self.rows[index.row()] if index.isValid() else None

    def chats_at(self, indexes: Iterable[AnyIndex]) -> list[Chat]:
        """The chats among these rows, top to bottom."""
        rows = (self.rows[place] for place in sorted(index.row() for index in indexes))
        return [row for row in rows if isinstance(row, Chat)]

    def _refresh(self) -> None:
        rows = rows_of(self._chats, self._folders, sort=self.order, collapsed=self.collapsed, today=self._today)
        if rows == self.rows:
            return
        self.layoutAboutToBeChanged.emit()
        kept = self.persistentIndexList()
        keys = [key_of(self.rows[index.row()]) for index in kept]
        self.rows, self._places = rows, {key_of(row): place for place, row in enumerate(rows)}
        places = [self._places.get(key) for key in keys]
        more = len(rows) - self.rowCount()
        with QSignalBlocker(self):  # the change of layout tells about these, too
            if more > 0:
                self.insertRows(self.rowCount(), more)
            self.changePersistentIndexList(kept, [QModelIndex() if at is None else self.index(at) for at in places])
            if more < 0:
                self.removeRows(len(rows), -more)
        self.layoutChanged.emit()

    # ------------------------------------------------------------ Qt

    def data(self, index: AnyIndex, role: int = _Roles.DisplayRole) -> object:
        row = self.rows[index.row()]
        if role == _Roles.DisplayRole:
            return _text(row)
        if role == _Roles.EditRole:
            return row.title if isinstance(row, Chat) else row.folder.name if isinstance(row, FolderRow) else None
        if role == _Roles.ToolTipRole and isinstance(row, Chat):
            return plain_tooltip(f"{title_of_chat(row)}\n{moment_text(row.updated_at)}")
        if role == _Roles.ToolTipRole and isinstance(row, FolderRow):
            return plain_tooltip(_text(row))
        if role == _Roles.AccessibleTextRole:
            return self._spoken(row)
        return None

    def setData(self, index: AnyIndex, value: object, role: int = _Roles.EditRole) -> bool:  # noqa: N802
        """What the user typed is shown at once, until the store has it."""
        row, name = self.rows[index.row()], " ".join(str(value).split())
        if role != _Roles.EditRole or isinstance(row, Heading) or not name:
            return False
        if isinstance(row, Chat):
            if name == row.title:
                return False
            self.rows[index.row()] = replace(row, title=name)
            self._commands.rename_chat(row.id, name)
        else:
            if name == row.folder.name:
                return False
            self.rows[index.row()] = replace(row, folder=replace(row.folder, name=name))
            self._commands.rename_folder(row.folder.id, name)
        self.dataChanged.emit(self.index(index.row()), self.index(index.row()))
        return True

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        row = self.row(index)
        if row is None or isinstance(row, Heading):
            return _Flag.ItemIsDropEnabled
        flags = _Flag.ItemIsEnabled | _Flag.ItemIsSelectable | _Flag.ItemIsEditable | _Flag.ItemIsDropEnabled
        return flags | _Flag.ItemIsDragEnabled if isinstance(row, Chat) else flags

    def _spoken(self, row: Row) -> str:
        """What a screen reader says; where a chat is can only be seen otherwise."""
        if isinstance(row, FolderRow):
            return f"{_text(row)}, folder, {count_text(row.count)}, {'expanded' if row.is_open else 'collapsed'}"
        if isinstance(row, Heading):
            return row.text
        name = next((visible(one.name) for one in self._folders if one.id == row.folder_id), None)
        parts = (
            title_of_chat(row),
            "answering now" if row.id == self.answering else "",
            "pinned" if row.pinned_at is not None else f"in {name}" if name is not None else "",
            moment_text(row.updated_at),
        )
        return ", ".join(part for part in parts if part)

    # ------------------------------------------------------------ dragging

    def supportedDragActions(self) -> Qt.DropAction:  # noqa: N802
        return Qt.DropAction.MoveAction

    def supportedDropActions(self) -> Qt.DropAction:  # noqa: N802
        return Qt.DropAction.MoveAction

    def mimeTypes(self) -> list[str]:  # noqa: N802
        return [MIME_TYPE]

    def mimeData(self, indexes: Sequence[QModelIndex]) -> QMimeData:  # noqa: N802
        data = QMimeData()
        data.setData(MIME_TYPE, "\n".join(chat.id for chat in self.chats_at(indexes)).encode())
        return data

    def dropMimeData(  # noqa: N802
        self, data: QMimeData, action: Qt.DropAction, row: int, _column: int, parent: AnyIndex
    ) -> bool:
        """Onto a folder or a chat in it: into the folder. Onto pinned chats: pinned, too. Anywhere else: neither."""
        ids = bytes(data.data(MIME_TYPE).data()).decode().splitlines()
        chats = [chat for chat_id in ids if (chat := self.chat(chat_id)) is not None]
        if action != Qt.DropAction.MoveAction or not chats:
            return False
        place = parent.row() if parent.isValid() else row
        target = self.rows[place] if 0 <= place < len(self.rows) else None
        if target == Heading(PINNED) or (isinstance(target, Chat) and target.pinned_at is not None):
            if ids := [chat.id for chat in chats if chat.pinned_at is None]:
                self._commands.pin_chats(ids, True)
            return True
        folder_id = target.folder.id if isinstance(target, FolderRow) else None
        if isinstance(target, Chat) and target.folder_id in {folder.id for folder in self._folders}:
            folder_id = target.folder_id
        if moved := [chat.id for chat in chats if chat.folder_id != folder_id]:
            self._commands.move_chats(moved, folder_id)
        if ids := [chat.id for chat in chats if chat.pinned_at is not None]:
            self._commands.pin_chats(ids, False)
        return True


def _text(row: Row) -> str:
    if isinstance(row, Chat):
        return title_of_chat(row)
    return row.text if isinstance(row, Heading) else visible(row.folder.name)
