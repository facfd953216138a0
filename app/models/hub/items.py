"""From models of repositories to one entry of the download queue."""

from __future__ import annotations

from app.models.downloads.item import Item
from app.models.hub.repository import RemoteModel


def item_of(title: str, target: RemoteModel, draft: RemoteModel | None = None, licences: tuple[str, ...] = ()) -> Item:
    """A model, or a target with its draft, as one item. The same content of a repository always gives the same id."""
    models = (target,) if draft is None else (target, draft)
    return Item(
        id=" ".join(f"{model.files[0].repository}:{model.files[0].sha256[:16]}" for model in models),
        title=title,
        target=target.files,
        draft=draft.files if draft is not None else (),
        licence=", ".join(dict.fromkeys(licence for licence in licences if licence)),
    )
