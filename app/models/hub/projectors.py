"""Projectors (``mmproj``) on the hub: which one of a repository a model sees images with, told by the headers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from app.errors import KnownError
from app.models.downloads.item import Item
from app.models.gguf import ModelFacts, ModelFileError, read_header
from app.models.hub.api import Hub
from app.models.hub.catalog import CatalogModel
from app.models.hub.errors import NotFoundError
from app.models.hub.network import Network
from app.models.hub.remote_header import read_remote_header
from app.models.hub.repository import RemoteModel
from app.models.projectors import fits

_MAX_CHECKED = 3
"""How many files are looked into."""
_PREFERRED = ("F16", "BF16", "Q8_0")


def choose_projector(network: Network, target: ModelFacts, files: Iterable[RemoteModel]) -> RemoteModel | None:
    """The one of ``files`` that ``target`` sees with: in the usual precision if there is one. Raises `KnownError`."""
    for file in sorted(files, key=_rank)[:_MAX_CHECKED]:
        try:
            header = read_remote_header(network, file, any_kind=True)
        except ModelFileError:
            continue
        if fits(target, header):
            return file
    return None


def projector_for(hub: Hub, model: CatalogModel, path: Path) -> Item:
    """What the file ``path``, of a model of the catalog, needs to see images, as a download into its folder.

    Raises `KnownError`, also if no repository has any.
    """
    header = read_header(path)
    for name in dict.fromkeys(file.repository for file in model.files):
        try:
            repository = hub.repository(name)
        except NotFoundError:
            continue
        if (found := choose_projector(hub.network, header, repository.vision)) is not None:
            return Item.for_model(
                f"{model.title}: projector for images", path.name, found, repository.license or model.license
            )
    raise KnownError(f"No file (mmproj) with which {model.title} sees images was found.")


def _rank(file: RemoteModel) -> int:
    return _PREFERRED.index(file.quantization) if file.quantization in _PREFERRED else len(_PREFERRED)
