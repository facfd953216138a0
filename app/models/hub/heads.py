"""MTP heads on the hub: inside a model's file or in a file beside it, told by the headers, never by the names.

Names only determine which files to look into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from app.models.gguf import GgufHeader, ModelFileError, check_loadable
from app.models.hub.network import Network
from app.models.hub.projectors import choose_projector
from app.models.hub.remote_header import read_remote_header
from app.models.hub.repository import RemoteModel
from app.models.mtp import has_head, head_problem, is_head_only, mismatch

_MAX_CHECKED = 3
"""How many files beside a model are looked into, up to some megabytes each."""


@dataclass(frozen=True)
class HubModel:
    """What the headers say about a model that hasn't been downloaded."""

    header: GgufHeader
    place: Literal["none", "inside", "beside", "alone"] = "none"
    """Where its MTP head is; ``alone``: the file is only a head, nothing to chat with."""
    head: RemoteModel | None = None
    """The file of a head beside it."""
    can_run: bool = True
    """Whether this version can use the head."""
    projector: RemoteModel | None = None
    """The file beside it with which it sees images."""


def look_at(
    network: Network,
    model: RemoteModel,
    heads: Iterable[RemoteModel],
    is_canceled: Callable[[], bool] = lambda: False,
    vision: Iterable[RemoteModel] = (),
) -> HubModel:
    """Read the header of ``model``, of ``heads`` beside it if it has none inside, and of ``vision``, which may be
    projectors.

    Raises as `read_remote_header`; only for the model itself.
    """
    header = read_remote_header(network, model, is_canceled, any_kind=True)
    if is_head_only(header):
        return HubModel(header, "alone", can_run=head_problem(header) is None)
    check_loadable(header)
    found = _with_head(network, header, heads, is_canceled)
    return replace(found, projector=choose_projector(network, header, vision))


def _with_head(
    network: Network, header: GgufHeader, heads: Iterable[RemoteModel], is_canceled: Callable[[], bool]
) -> HubModel:
    if has_head(header):
        return HubModel(header, "inside", can_run=head_problem(header) is None)
    for head in list(heads)[:_MAX_CHECKED]:
        try:
            found = read_remote_header(network, head, is_canceled, any_kind=True)
        except ModelFileError:
            continue
        if not is_head_only(found):
            continue
        if mismatch(header, found) is None:
            return HubModel(header, "beside", head)
        if head_problem(found) is not None and found.architecture == header.architecture:
            return HubModel(header, "beside", head, can_run=False)
    return HubModel(header)
