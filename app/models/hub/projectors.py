"""Projectors (``mmproj``) on the hub: which one of a repository a model sees images with, told by the headers."""

from __future__ import annotations

from collections.abc import Iterable

from app.models.gguf import ModelFacts, ModelFileError
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


def _rank(file: RemoteModel) -> int:
    return _PREFERRED.index(file.quantization) if file.quantization in _PREFERRED else len(_PREFERRED)
