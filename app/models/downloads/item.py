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
    """What is downloaded together: a model, a target with its draft or its MTP head, or a projector for a model that is
    here already.
    """

    id: str
    title: str
    """For display: ``Qwen3 8B Q4_K_M with draft``."""
    target: tuple[RemoteFile, ...]
    draft: tuple[RemoteFile, ...] = ()
    head: tuple[RemoteFile, ...] = ()
    """A file with the target's MTP head, which is stored beside the target, where it is found with it."""
    projector: tuple[RemoteFile, ...] = ()
    """With what the target sees images, stored beside it, too."""
    model: str = ""
    """Without a target: the name of the model's file, in the folder where the other files are to be stored."""
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
        """A model, or a target with what belongs to it. The same content of a repository always gives the same id."""
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
        """A projector for a model on this computer, whose file has the name ``model``."""
        (file,) = projector.files
        id = f"{file.repository}:{file.sha256[:16]} for {model}"
        return cls(id=id, title=title, target=(), projector=(file,), model=model, license=license)

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All of them, the target's first."""
        return self.target + self.draft + self.beside

    @property
    def beside(self) -> tuple[RemoteFile, ...]:
        """Those that are stored in the target's folder."""
        return self.head + self.projector

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
