"""The download queue's entries, their progress and its wording, and the queue's file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import msgspec

from app import words
from app.models.hub.repository import RemoteFile, RemoteModel
from app.storage.files import BusyError
from app.storage.json_file import NOT_UNDERSTOOD, JsonFile, OtherVersionError, Versioned, decode, version_of
from app.system import KnownError


class ItemState(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """It will try again after a network failure."""
    PAUSED = "paused"
    """Paused by the user, or because the disk is full (with a message)."""
    CANCELED = "cancelled"
    """Canceled by the user; the downloaded parts are kept until they are discarded."""
    FAILED = "failed"
    """Retrying automatically would not help."""
    DONE = "done"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A download: a model, a target with its draft or MTP head, or a projector for an existing model."""

    id: str
    title: str
    """For display: ``Qwen3 8B Q4_K_M with draft``."""
    target: tuple[RemoteFile, ...]
    draft: tuple[RemoteFile, ...] = ()
    head: tuple[RemoteFile, ...] = ()
    """A file with the target's MTP head; stored beside the target, where it is found."""
    projector: tuple[RemoteFile, ...] = ()
    """Lets the target see images; also stored beside it."""
    model: str = ""
    """Without a target: the file name of the existing model, in whose folder the other files are stored."""
    license: str = msgspec.field(default="", name="licence")

    @classmethod
    def of(
        cls,
        title: str,
        target: RemoteModel,
        draft: RemoteModel | None = None,
        licenses: tuple[str, ...] = (),
        head: RemoteModel | None = None,
        projector: RemoteModel | None = None,
    ) -> Item:
        """A model, or a target with its extras. The same content of a repository always gives the same id."""
        models = [model for model in (target, draft, head, projector) if model is not None]
        return cls(
            id=" ".join(f"{model.files[0].repository}:{model.files[0].sha256[:16]}" for model in models),
            title=title,
            target=target.files,
            draft=draft.files if draft is not None else (),
            head=head.files if head is not None else (),
            projector=projector.files if projector is not None else (),
            license=", ".join(dict.fromkeys(license for license in licenses if license)),
        )

    @classmethod
    def for_model(cls, title: str, model: str, projector: RemoteModel, license: str = "") -> Item:
        """A projector for a model on this computer, whose file name is ``model``."""
        (file,) = projector.files
        id = f"{file.repository}:{file.sha256[:16]} for {model}"
        return cls(id=id, title=title, target=(), projector=(file,), model=model, license=license)

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All files, the target's first."""
        return self.target + self.draft + self.beside

    @property
    def beside(self) -> tuple[RemoteFile, ...]:
        """The files stored in the target's folder."""
        return self.head + self.projector

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(file.size for file in self.files)


class ItemProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an item. Bytes, seconds."""

    item: Item
    state: ItemState
    done: int = 0
    """Bytes on disk, including those of finished files."""
    speed: float | None = None
    """Speed over the last seconds, in bytes per second; ``None`` while nothing arrives."""
    seconds_left: float | None = None
    attempt: int = 0
    """Consecutive failures, while ``WAITING``."""
    retry_in: float | None = None
    message: str = ""
    """Why it is waiting, paused or failed: a sentence for the user."""
    page: str = ""
    """A page where the user can help, for example accept a gated repository's terms; or empty."""


FILE_NAME = "downloads.json"
_STOPPED = (ItemState.PAUSED, ItemState.CANCELED, ItemState.FAILED, ItemState.DONE)


class SavedItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item with its stored state."""

    item: Item
    folder: str
    """The models folder when it was added, which contains its parts."""
    state: ItemState
    message: str = ""
    page: str = ""


class _File(Versioned):
    items: list[SavedItem]


class QueueFile:
    """The queue of one folder, locked for other processes until `release`."""

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
        """The items, and a notice about the file for the user; items that were running become `ItemState.QUEUED`.

        An unreadable file is renamed. Raises `KnownError` if it can't be read or renamed, or is of a newer version.
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
        """Unlock the queue for other processes."""
        self._file.lock.release()


def has_work(path: Path) -> bool:
    """Whether anything continues at the next start; also true for an unusable file, so that it gets reported."""
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


# Texts about downloads, for the window and the command line.

_STATES = {
    ItemState.QUEUED: "waiting",
    ItemState.PAUSED: "paused",
    ItemState.CANCELED: "canceled; downloaded parts are kept",
    ItemState.FAILED: "stopped",
    ItemState.DONE: "Complete · checksum verified",
}


def figures(progress: ItemProgress) -> str:
    """``1.2 of 5 GB · 34 MB/s · 2 min left``, ``5 GB · Complete · checksum verified``."""
    total = words.size(progress.item.size)
    parts = [total if progress.state is ItemState.DONE else f"{words.size(progress.done)} of {total}"]
    if progress.state is ItemState.RUNNING:
        if progress.speed is not None:
            parts.append(f"{words.size(progress.speed)}/s")
        if progress.seconds_left is not None:
            parts.append(f"{words.coarse(progress.seconds_left)} left")
    elif progress.state is ItemState.WAITING:
        when = "" if progress.retry_in is None else f" in {words.coarse(progress.retry_in)}"
        parts.append(f"retrying{when} (attempt {progress.attempt + 1})")
    else:
        parts.append(_STATES[progress.state])
    return " · ".join(parts)


def summary(items: Sequence[ItemProgress]) -> str:
    """``2 running, 1 paused · 34 MB/s``."""
    counted = (
        ("running", (ItemState.RUNNING, ItemState.WAITING)),
        ("waiting", (ItemState.QUEUED,)),
        ("paused", (ItemState.PAUSED, ItemState.CANCELED)),
        ("stopped", (ItemState.FAILED,)),
        ("done", (ItemState.DONE,)),
    )
    numbers = [(sum(one.state in states for one in items), word) for word, states in counted]
    parts = [", ".join(f"{number} {word}" for number, word in numbers if number)]
    speed = sum(one.speed or 0.0 for one in items if one.state is ItemState.RUNNING)
    if speed:
        parts.append(f"{words.size(speed)}/s")
    return " · ".join(part for part in parts if part)
