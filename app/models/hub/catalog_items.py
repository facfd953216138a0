"""Makes a download of a recommended model and its accelerators, with their current files on the hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase

from app.models.downloads.item import Item
from app.models.gguf import ModelFileError
from app.models.heads import head_title, is_head_only
from app.models.hub.api import Hub, read_remote_header
from app.models.hub.catalog import Alternate, CatalogFile, DraftModel, Offer, Sidecar
from app.models.hub.repository import NotFoundError, RemoteModel, Repository
from app.system import KnownError


def resolve(hub: Hub, offer: Offer, *, with_images: bool = False, metal: bool = sys.platform == "darwin") -> Item:
    """Look up an offer and make a download of it.

    Uses the first place that has the model: on a Mac the faster file, then the usual one, then other spellings. A model
    whose head is gone comes without it, and its title says so. Raises `KnownError` if the model or its draft is gone.
    ``with_images`` adds its projector.
    """
    repository, target = _first(hub, offer, metal)
    # The repositories' current information takes precedence over the catalog.
    licenses = [repository.license or offer.model.license]
    title, accelerator = f"{offer.model.title} {target.quantization}", offer.accelerator
    projector = _projector(repository, offer) if with_images else None
    if isinstance(accelerator, DraftModel):
        beside = hub.repository(accelerator.repository)
        draft = _chosen(beside.models, accelerator.file, accelerator.quantization)
        if draft is None:
            raise _gone(accelerator)
        licenses.append(beside.license or accelerator.license)
        return Item.of(f"{title} with draft", target, draft, tuple(licenses), projector=projector)
    head = _head(hub, repository, accelerator) if isinstance(accelerator, Sidecar) else None
    if head is not None and isinstance(accelerator, Sidecar):
        title = f"{title} with {head_title(accelerator.architecture)}"
    return Item.of(title, target, None, tuple(licenses), head, projector)


def places(offer: Offer, *, metal: bool) -> Iterator[CatalogFile | Alternate]:
    """Places of the model, best first."""
    alternates = offer.file.alternates
    if metal:
        yield from (one for one in alternates if one.metal)
    yield offer.file
    yield from (one for one in alternates if not one.metal)


def _first(hub: Hub, offer: Offer, metal: bool) -> tuple[Repository, RemoteModel]:
    error: KnownError | None = None
    for place in places(offer, metal=metal):
        try:
            repository = hub.repository(place.repository)
        except NotFoundError as not_found:
            error = error or not_found
            continue
        if (model := _chosen(repository.models, place.file, place.quantization)) is not None:
            return repository, model
        error = error or _gone(place)
    assert error is not None
    raise error


def _chosen(models: tuple[RemoteModel, ...], file: str, quantization: str = "") -> RemoteModel | None:
    for model in models:
        is_quantization = not quantization or model.quantization == quantization
        if is_quantization and fnmatchcase(model.name.lower(), file.lower()):
            return model
    return None


def _head(hub: Hub, repository: Repository, wanted: Sidecar) -> RemoteModel | None:
    """The head, if it exists and its header confirms it; the model is worth getting without it, too."""
    try:
        if wanted.repository not in (None, repository.id):
            repository = hub.repository(wanted.repository or "")
        head = _chosen(repository.heads, wanted.file)
        if head is None:
            return None
        header = read_remote_header(hub.network, head, any_kind=True)
    except (NotFoundError, ModelFileError):
        return None
    return head if is_head_only(header) and header.architecture == wanted.architecture else None


def _projector(repository: Repository, offer: Offer) -> RemoteModel:
    """Raises `KnownError` if there is none."""
    wanted = offer.model.mmproj
    found = _chosen(repository.vision, wanted.file) if wanted else None
    if found is None:
        raise KnownError(f"{repository.id} has no file (mmproj) with which {offer.model.title} sees images.")
    return found


def _gone(wanted: CatalogFile | Alternate | DraftModel) -> KnownError:
    return KnownError(f"{wanted.repository} no longer offers {wanted.file}. Look for another file of this model.")
