"""The download queue on disk."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from app.errors import KnownError
from app.files import broken_name, write_whole
from app.models.downloads.item import Item, ItemState

FILE_NAME = "downloads.json"
_VERSION = 1
_STOPPED = (ItemState.PAUSED, ItemState.CANCELLED, ItemState.FAILED, ItemState.DONE)

_log = logging.getLogger(__name__)


class SavedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item with what outlives the process."""

    item: Item
    folder: str
    """The models folder when it was added: its parts are there."""
    state: ItemState
    message: str = ""
    page: str = ""


class _File(msgspec.Struct):
    version: int
    items: list[SavedItem]


def read_queue(path: Path) -> tuple[list[SavedItem], str | None]:
    """The items of a file, and what the user should know about it; what ran is `ItemState.QUEUED`.

    A file that cannot be understood is put aside. Raises `KnownError` if it cannot be read or put aside.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
        if content.version == _VERSION:
            return [_as_queued(saved) for saved in content.items], None
    except FileNotFoundError:
        return [], None
    except OSError as error:
        raise KnownError(f"The list of downloads cannot be read: {error.strerror or error}.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        _log.info("%s could not be understood: %s", path.name, error)
    aside = broken_name(path)
    try:
        path.rename(aside)
    except OSError as error:
        raise KnownError(f"{path} cannot be used and not be put aside: {error.strerror or error}.") from error
    return [], (
        f"The list of downloads could not be read. It is kept as {aside.name}; what was downloaded so far is kept too. "
        "Add the downloads again, and they go on where they were."
    )


def has_work(path: Path) -> bool:
    """Whether anything of a queue goes on at the next start; also true of a file that cannot be understood."""
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return False
    except (OSError, msgspec.MsgspecError, RecursionError):
        return True
    return any(saved.state not in _STOPPED for saved in content.items)


def write_queue(path: Path, items: list[SavedItem]) -> None:
    """Keep the items. Raises `OSError`."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(_File(_VERSION, items)), indent=1))


def _as_queued(saved: SavedItem) -> SavedItem:
    return saved if saved.state in _STOPPED else msgspec.structs.replace(saved, state=ItemState.QUEUED, message="")
