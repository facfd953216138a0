"""Items of the download queue made of models."""

from __future__ import annotations

from app.models.downloads.item import Item
from app.models.hub.repository import RemoteFile, RemoteModel


def model(repository: str, commit: str = "1" * 40) -> RemoteModel:
    file = RemoteFile(repository=repository, commit=commit, path="a.gguf", size=1, sha256="a" * 64)
    return RemoteModel(files=(file,), quantization="")


def test_an_id_for_each_repository() -> None:
    mine = Item.of("A", model("me/a"))
    assert Item.of("B", model("me/a", commit="2" * 40)).id == mine.id
    assert Item.of("A", model("other/a")).id != mine.id
