"""Which rows the list of chats has, in which order: pinned chats, folders, and the others by date or title."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Literal, TypeAlias

from PySide6.QtCore import QDate, QDateTime, QLocale

from app.chats.model import Chat, Folder
from app.models.text import visible

UNTITLED = "New chat"
ChatSort = Literal["newest", "oldest", "title"]
SORTS: dict[ChatSort, str] = {"newest": "Newest first", "oldest": "Oldest first", "title": "By title"}
PINNED = "Pinned"


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


def title_of_chat(chat: Chat) -> str:
    """What to call it on screen: one line, and nothing in it that a label obeys."""
    return visible(chat.title) or UNTITLED


def moment_text(seconds: float) -> str:
    """A time in seconds since 1970, as the system writes date and time."""
    return QLocale().toString(QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat)


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
    rows += _by_title(top, bool(rows)) if sort == "title" else _by_date(top, today or date.today())
    return rows


def _sorted(chats: list[Chat], sort: ChatSort) -> list[Chat]:
    if sort == "title":
        return sorted(chats, key=lambda chat: title_of_chat(chat).casefold())
    return chats[::-1] if sort == "oldest" else chats


def _by_title(chats: list[Chat], has_more: bool) -> list[Row]:
    return [Heading("Chats"), *chats] if chats and has_more else list(chats)


def _by_date(chats: list[Chat], today: date) -> Iterator[Row]:
    groups = _Groups(today)
    for group, of_the_group in groupby(chats, lambda chat: groups.of(chat.updated_at)):
        yield Heading(group)
        yield from of_the_group


class _Groups:
    """Names of spans of days; worked out once each, because a list may have ten thousand chats."""

    def __init__(self, today: date) -> None:
        self._days = [today - timedelta(days=days) for days in (30, 7, 1, 0)]
        self._starts = [_start(day) for day in self._days]
        self._names = ("Previous 30 days", "Previous 7 days", "Yesterday", "Today")
        self._month: tuple[float, float, str] = (0.0, 0.0, "")

    def of(self, moment: float) -> str:
        """The group of a time in seconds since 1970."""
        place = bisect_right(self._starts, moment) - 1
        if place >= 0:
            return self._names[place]
        start, end, name = self._month
        if not start <= moment < end:
            self._month = start, end, name = _month_of(moment)
        return name


def group_of(moment: float, today: date) -> str:
    """``Today``, ``Yesterday``, ``Previous 7 days``, ``Previous 30 days`` or a month, for seconds since 1970."""
    return _Groups(today).of(moment)


def _start(day: date) -> float:
    """When a day begins here, in seconds since 1970."""
    return datetime(day.year, day.month, day.day).timestamp()


def _month_of(moment: float) -> tuple[float, float, str]:
    """When the month of a moment begins and ends, and its name."""
    first = datetime.fromtimestamp(moment).date().replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    name = QLocale().toString(QDate(first.year, first.month, 1), "MMMM yyyy")
    return _start(first), _start(following), name
