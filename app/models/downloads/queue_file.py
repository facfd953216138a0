"""The download queue on disk."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from app.errors import KnownError
from app.models.downloads.item import Item, ItemState
from app.storage.json_file import NOT_UNDERSTOOD, JsonFile, OtherVersionError, Versioned, decode, version_of
from app.storage.lock import BusyError

FILE_NAME = "downloads.json"
_STOPPED = (ItemState.PAUSED, ItemState.CANCELED, ItemState.FAILED, ItemState.DONE)


class SavedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item with everything that is stored about it."""

    item: Item
    folder: str
    """The models folder when it was added: its parts are there."""
    state: ItemState
    message: str = ""
    page: str = ""


class _File(Versioned):
    items: list[SavedItem]


class QueueFile:
    """The queue of one folder, for one process at a time: others are locked out until `release`."""

    def __init__(self, folder: Path) -> None:
        """Raises `KnownError` if another process has the queue."""
        path = folder / FILE_NAME
        self._file = JsonFile(path, _File(items=[]), what="The list of downloads", log_level=logging.INFO)
        try:
            self._file.lock.acquire()
        except BusyError:
            raise KnownError(
                "Another Slipstream window is using the downloads. Use that one, or close it first."
            ) from None
        except OSError as error:
            raise KnownError(f"The list of downloads can't be used: {error.strerror or error}.") from error

    def read(self) -> tuple[list[SavedItem], str | None]:
        """The items, and what to tell the user about the file; items that were running are `ItemState.QUEUED`.

        A file that can't be understood is renamed. Raises `KnownError` if it can't be read or renamed, and if it is of
        a newer version.
        """
        try:
            items = self._file.load().items
        except OtherVersionError:
            raise KnownError(
                "The list of downloads was written by a newer version of Slipstream, so it is left as it is and "
                "nothing can be downloaded here. Use the newer version."
            ) from None
        except OSError as error:
            raise KnownError(f"The list of downloads can't be used: {error.strerror or error}.") from error
        notice: str | None = None
        if self._file.aside is not None:
            notice = (
                f"The list of downloads couldn't be read. It was saved as {self._file.aside.name}, and everything "
                "downloaded so far is kept. Add the downloads again, and they continue where they stopped."
            )
        return [_as_queued(saved) for saved in items], notice

    def write(self, items: list[SavedItem]) -> None:
        """Store the items. Raises `NotSavedError`."""
        self._file.update(lambda _: _File(items=items))

    def release(self) -> None:
        """Let other processes use it."""
        self._file.lock.release()


def has_work(path: Path) -> bool:
    """Whether anything continues at the next start; also true for a file that can't be used, so that this gets
    reported.
    """
    try:
        data = path.read_bytes()
        items = decode(data, _File).items
        return version_of(data) != 1 or any(saved.state not in _STOPPED for saved in items)
    except FileNotFoundError:
        return False
    except (OSError, *NOT_UNDERSTOOD):
        return True


def _as_queued(saved: SavedItem) -> SavedItem:
    return saved if saved.state in _STOPPED else msgspec.structs.replace(saved, state=ItemState.QUEUED, message="")
