"""Which rows the list of chats has, in which order: pinned chats, folders, and the others by date or title."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias

from PySide6.QtCore import QDate, QDateTime, QLocale

from app.chats.model import Chat, Folder
from app.models.text import visible
from app.ui.widgets import units

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


def count_text(count: int) -> str:
    """``1 chat``, ``3 chats``."""
    return "1 chat" if count == 1 else f"{count:,} chats"


def title_of_chat(chat: Chat) -> str:
    """What to call it on screen: one line, and nothing in it that a label obeys."""
    return visible(chat.title) or UNTITLED


def moment_text(seconds: float) -> str:
    """The date and time of a moment in seconds since 1970."""
    return units.LOCALE.toString(QDateTime.fromSecsSinceEpoch(int(seconds)), QLocale.FormatType.ShortFormat)


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
    return units.LOCALE.toString(QDate(first.year, first.month, 1), "MMMM yyyy"), _start(first)


def _start(day: date) -> float:
    """When a day begins here, in seconds since 1970."""
    return datetime(day.year, day.month, day.day).timestamp()
