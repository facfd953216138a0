"""One entry of the download queue and its progress."""

from __future__ import annotations

from enum import Enum

import msgspec

from app.models.hub.repository import RemoteFile, RemoteModel


class ItemState(Enum):
    """The state of an item."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """It will try again after a network failure."""
    PAUSED = "paused"
    """Paused by the user, or because the disk is full (then with a message)."""
    CANCELED = "cancelled"
    """Canceled by the user; the downloaded parts are kept until they are discarded."""
    FAILED = "failed"
    """Trying again automatically would not help."""
    DONE = "done"


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What is downloaded together: a model, or a target with its draft."""

    id: str
    title: str
    """For display: ``Qwen3 8B Q4_K_M with draft``."""
    target: tuple[RemoteFile, ...]
    draft: tuple[RemoteFile, ...] = ()
    license: str = msgspec.field(default="", name="licence")

    @classmethod
    def of(
        cls, title: str, target: RemoteModel, draft: RemoteModel | None = None, licenses: tuple[str, ...] = ()
    ) -> Item:
        """A model, or a target with its draft. The same content of a repository always gives the same id."""
        models = (target,) if draft is None else (target, draft)
        return cls(
            id=" ".join(f"{model.files[0].repository}:{model.files[0].sha256[:16]}" for model in models),
            title=title,
            target=target.files,
            draft=draft.files if draft is not None else (),
            license=", ".join(dict.fromkeys(license for license in licenses if license)),
        )

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All of them, the draft's last."""
        return self.target + self.draft

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class ItemProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an item. Bytes, seconds."""

    item: Item
    state: ItemState
    done: int = 0
    """Bytes on disk, including those of finished files."""
    speed: float | None = None
    """Bytes per second over the last seconds; ``None`` while nothing arrives."""
    seconds_left: float | None = None
    attempt: int = 0
    """Failures in a row so far, while ``WAITING``."""
    retry_in: float | None = None
    message: str = ""
    """Why it is waiting, paused or failed: a sentence for the user."""
    page: str = ""
    """A page where the user can do something about it, such as accepting a gated repository's terms; or empty."""
