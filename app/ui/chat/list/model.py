"""What the list of chats shows: pinned chats, folders, and the others by date or title, as rows for a view."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Generic, Literal, TypeAlias, TypeVar

from PySide6.QtCore import (
    QAbstractListModel,
    QDate,
    QDateTime,
    QLocale,
    QMimeData,
    QModelIndex,
    QPersistentModelIndex,
    QSignalBlocker,
    QStringListModel,
    Qt,
)

from app import words
from app.chats.model import Chat, Folder
from app.ui.actions import Actions
from app.ui.widgets.controls import LOCALE, plain_tooltip
from app.words import visible

T = TypeVar("T")
AnyIndex = QModelIndex | QPersistentModelIndex

MIME_TYPE = "application/x-slipstream-chats"
"""Ids of chats that are dragged, one a line. Only this list understands them."""
_Flag = Qt.ItemFlag
_Roles = Qt.ItemDataRole


UNTITLED = "New chat"
ChatSort = Literal["newest", "oldest", "title"]
SORTS: dict[ChatSort, str] = {"newest": "Newest first", "oldest": "Oldest first", "title": "By title"}
PINNED = "Pinned"
SEARCH_LIMIT = 100
"""The highest number of chats that a search returns."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above a group of chats."""

    text: str


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A folder, and what can be seen of it."""

    folder: Folder
    count: int
    """The chats in it, pinned ones included."""
    is_open: bool


Row: TypeAlias = Chat | Heading | FolderRow


class RowsModel(QAbstractListModel, Generic[T]):
    """Any rows, of which a function says what the view asks for. ``rows``: top to bottom."""

    def __init__(self, answer: Callable[[T, int], object]) -> None:
        """``answer`` gets a row and a role of Qt's."""
        super().__init__()
        self.rows: list[T] = []
        self._answer = answer

    def set_rows(self, rows: Sequence[T]) -> None:
        self.beginResetModel()
        self.rows = list(rows)
        self.endResetModel()

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own default
        return 0 if parent.isValid() else len(self.rows)

    def data(self, index: AnyIndex, role: int = _Roles.DisplayRole) -> object:
        return self._answer(self.rows[index.row()], role)


def title_of_chat(chat: Chat) -> str:
    """What to call it on screen: one line, and nothing in it that a label obeys."""
    return visible(chat.title) or UNTITLED


def moment_text(seconds: float) -> str:
    """The date and time of a moment in seconds since 1970."""
    return LOCALE.toString(QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat)


def key_of(row: Row) -> str:
    """The same row has the same key after a refresh."""
    if isinstance(row, Chat):
        return row.id
    return f"folder {row.folder.id}" if isinstance(row, FolderRow) else f"heading {row.text}"


def rows_of(
    chats: Sequence[Chat],
    folders: Sequence[Folder],
    *,
    sort: ChatSort = "newest",
    collapsed: Collection[str] = (),
    today: date | None = None,
) -> list[Row]:
    """The rows for these chats, which come newest first. ``collapsed``: ids of folders whose chats are not shown."""
    known = {folder.id for folder in folders}
    rows: list[Row] = []
    pinned = [chat for chat in chats if chat.pinned_at is not None]
    if pinned:
        rows += [Heading(PINNED), *sorted(pinned, key=lambda chat: chat.pinned_at or 0.0)]
    others = _sorted([chat for chat in chats if chat.pinned_at is None], sort)
    inside: dict[str, list[Chat]] = {folder.id: [] for folder in folders}
    counts = dict.fromkeys(inside, 0)
    for chat in pinned:
        if chat.folder_id in known:
            counts[chat.folder_id or ""] += 1
    top: list[Chat] = []
    for chat in others:
        inside.get(chat.folder_id or "", top).append(chat)
    for folder in folders:
        of_it, is_open = inside[folder.id], folder.id not in collapsed
        rows.append(FolderRow(folder, counts[folder.id] + len(of_it), is_open))
        rows += of_it if is_open else []
    if sort == "title":
        rows += [Heading("Chats")] if rows and top else []
        return rows + top
    groups = list(_by_date(top[::-1] if sort == "oldest" else top, today or date.today()))
    if sort == "oldest":
        groups = [[heading, *reversed(of_it)] for heading, *of_it in reversed(groups)]
    return rows + [row for group in groups for row in group]


def _sorted(chats: list[Chat], sort: ChatSort) -> list[Chat]:
    if sort == "title":
        return sorted(chats, key=lambda chat: title_of_chat(chat).casefold())
    return chats[::-1] if sort == "oldest" else chats


def _by_date(chats: Sequence[Chat], today: date) -> Iterator[list[Row]]:
    """A heading and its chats, for each span of days. Few chats are looked at: a list may have ten thousand."""
    place = 0
    while place < len(chats):
        name, start = _group_and_start(chats[place].updated_at, today)
        end = bisect_right(chats, -start, place + 1, key=lambda chat: -chat.updated_at)
        yield [Heading(name), *chats[place:end]]
        place = end


def _group_and_start(moment: float, today: date) -> tuple[str, float]:
    """The name of a span of days, and when it begins."""
    for name, days in (("Today", 0), ("Yesterday", 1), ("Previous 7 days", 7), ("Previous 30 days", 30)):
        if moment >= (start := _start(today - timedelta(days=days))):
            return name, start
    first = datetime.fromtimestamp(moment).date().replace(day=1)
    return LOCALE.toString(QDate(first.year, first.month, 1), "MMMM yyyy"), _start(first)


def _start(day: date) -> float:
    """When a day begins here, in seconds since 1970."""
    return datetime(day.year, day.month, day.day).timestamp()


class ChatListModel(QStringListModel):
    """The rows for a view; a refresh keeps selection and current row, which Qt tracks by index.

    Qt's list of strings, all of them empty, only counts the rows: a count asked of Python for every row would make
    laying out ten thousand take ten times as long. Everything else about a row is answered here.

    ``rows``: what is shown, top to bottom; ``order``, ``collapsed``: how, changed by `arrange`.
    """

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.order: ChatSort = "newest"
        self.collapsed: frozenset[str] = frozenset()
        self._actions = actions
        self._chats: Sequence[Chat] = ()
        self._folders: Sequence[Folder] = ()
        self._today: date | None = None
        self._places: dict[str, int] = {}
        self.answering: set[str] = set()
        """Ids of the chats where an answer is being written."""
        self.asking: set[str] = set()
        """Those where it waits for the user."""

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

    def set_answering(self, chat_id: str, is_answering: bool, *, asks: bool = False) -> None:
        """Whether an answer is being written in this chat, or waits for the user. Its row has a mark then, and screen
        readers say so."""
        (self.answering.add if is_answering else self.answering.discard)(chat_id)
        (self.asking.add if asks else self.asking.discard)(chat_id)
        if (place := self.place(chat_id)) is not None:
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
            self._actions.run("name_chat", row.id, name)
        else:
            if name == row.folder.name:
                return False
            self.rows[index.row()] = replace(row, folder=replace(row.folder, name=name))
            self._actions.run("name_folder", row.folder.id, name)
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
            return (
                f"{_text(row)}, folder, {words.count(row.count, 'chat')}, {'expanded' if row.is_open else 'collapsed'}"
            )
        if isinstance(row, Heading):
            return row.text
        name = next((visible(one.name) for one in self._folders if one.id == row.folder_id), None)
        parts = (
            title_of_chat(row),
            "waiting for you" if row.id in self.asking else "answering now" if row.id in self.answering else "",
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
                self._actions.run("pin_chats", ids, True)
            return True
        folder_id = target.folder.id if isinstance(target, FolderRow) else None
        if isinstance(target, Chat) and target.folder_id in {folder.id for folder in self._folders}:
            folder_id = target.folder_id
        if moved := [chat.id for chat in chats if chat.folder_id != folder_id]:
            self._actions.run("move_chats", moved, folder_id)
        if ids := [chat.id for chat in chats if chat.pinned_at is not None]:
            self._actions.run("pin_chats", ids, False)
        return True


def _text(row: Row) -> str:
    if isinstance(row, Chat):
        return title_of_chat(row)
    return row.text if isinstance(row, Heading) else visible(row.folder.name)
