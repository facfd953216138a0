"""``slipstream models get``: finds the model, downloads it, and shows progress."""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app import system, words
from app.commands.options import saved_settings
from app.commands.output import show_progress, show_result, tell
from app.models.downloads.item import Item, ItemProgress, ItemState, figures
from app.models.downloads.queue import DownloadQueue
from app.models.gguf import ModelFileError
from app.models.hub.api import Hub, HubConnection, network_settings, read_remote_header
from app.models.hub.catalog import CatalogModel, Offer, load_catalog
from app.models.hub.catalog_items import resolve
from app.models.hub.drafts import DraftCandidate, HubModel, choose_projector, find_drafts, in_order, look_at
from app.models.hub.network import Network
from app.models.hub.repository import NoAccessError, RemoteFile, RemoteModel, Repository, without_models
from app.models.library.library import own_folder
from app.models.origins import origins_file
from app.settings import Settings
from app.system import KnownError
from app.words import printable

_ACTIVE = (ItemState.QUEUED, ItemState.RUNNING, ItemState.WAITING)
_REFRESH_SECONDS = 0.25


def run(options: argparse.Namespace) -> int:
    """Run ``slipstream models get``; returns the exit status. Raises `NoAccessError` if a token is needed."""
    values = saved_settings()
    connection = HubConnection(network_settings(values))
    try:
        item = _item(connection.hub, options.wanted, with_draft=options.with_draft, with_images=options.with_images)
        target, beside = _fetch(connection.network, item, values)
    finally:
        show_progress("")
        connection.network.close()
    described = _described(item, target, beside)
    files = [described[part]["path"] for part in ("target", "draft", "head", "projector") if described[part]]
    show_result(options, described, files)
    return 0


def _item(hub: Hub, wanted: str, *, with_draft: bool, with_images: bool) -> Item:
    name, _, file = wanted.partition(":")
    if "/" not in name:
        models = {model.id: model for model in load_catalog().models}
        if name.casefold() not in models:
            raise KnownError(
                f"{printable(name)} is neither a repository (owner/name) nor one of the recommended models: "
                f"{', '.join(models)}."
            )
        return resolve(hub, _offer(models[name.casefold()], file), with_images=with_images)
    show_progress(f"looking up {printable(name)}")
    repository = hub.repository(name)
    target = chosen(repository, file)
    title = f"{name.rpartition('/')[2]} {target.quantization}".strip()
    projector = _projector(hub, repository, target) if with_images else None
    if not with_draft:
        found = _with_head(hub, repository, target)
        title = f"{title} with {found.title}" if found else title
        return Item.of(title, target, None, (repository.license,), found.head if found else None, projector)
    draft = _draft(hub, repository, target)
    licenses = repository.license, draft.license
    return Item.of(f"{title} with draft", target, draft.model, licenses, projector=projector)


def _offer(model: CatalogModel, quantization: str) -> Offer:
    """The file of a recommended model. Raises `KnownError` with the choices if there are several."""
    files = [file for file in model.files if quantization.casefold() in ("", file.quantization.casefold())]
    if len(files) == 1:
        return Offer.of(model, files[0])
    example = f"{model.id}:{model.files[0].quantization}"
    lines = [f"  {one.quantization} ({words.size(one.size)}, for a GPU with {one.gpu} GB)" for one in model.files]
    raise KnownError(
        "\n".join([f'{model.title} comes in these sizes. Choose one, as in "slipstream models get {example}":', *lines])
    )


def _with_head(hub: Hub, repository: Repository, target: RemoteModel) -> HubModel | None:
    """The model with its head in a file beside it, if it has one that this version can use."""
    if not repository.heads or target in repository.heads:
        return None
    show_progress("looking for its head")
    try:
        found = look_at(hub.network, target, repository.heads)
    except ModelFileError:
        return None  # the download will say so
    if found.head is None or not found.can_run:
        return None
    _say(f"Its {found.title} comes with it: {found.head.name} ({words.size(found.head.size)}).")
    return found


def _projector(hub: Hub, repository: Repository, target: RemoteModel) -> RemoteModel:
    """The projector that lets the model see images. Raises `KnownError` if there is none."""
    show_progress("looking for its projector")
    found = choose_projector(hub.network, read_remote_header(hub.network, target), repository.vision)
    if found is None:
        raise KnownError(f"{repository.id} has no file (mmproj) with which {target.name} sees images.")
    _say(f"It sees images with {found.name} ({words.size(found.size)}).")
    return found


# ---------------------------------------------------------------- which of a repository's models


def chosen(repository: Repository, word: str) -> RemoteModel:
    """The only model, or the only one that matches ``word``: a quantization, file name or path, in any case. A head, if
    only a head matches.

    Raises `KnownError` with a list of the models.
    """
    among = (repository.offered, repository.heads) if word else (repository.offered,)
    matching = ([model for model in models if not word or word.casefold() in _names(model)] for models in among)
    found = next(filter(None, matching), [])
    if len(found) == 1:
        return found[0]
    if not repository.offered:
        raise KnownError(without_models(repository))
    if not found:
        problem = f"{repository.id} has no model {printable(word)}, only these"
    else:
        problem = f"{repository.id} has {len(found)} models" + (f" {printable(word)}" if word else "")
    offered = found or repository.offered
    lines = [f"  {_shortest_name(model, offered)} ({words.size(model.size)})" for model in offered]
    example = f"{repository.id}:{_shortest_name(offered[0], offered)}"
    raise KnownError("\n".join([f'{problem}. Choose one, as in "slipstream models get {example}":', *lines]))


def _names(model: RemoteModel) -> set[str]:
    names = {model.quantization}
    for file in model.files:
        names |= {file.path, file.path.rpartition("/")[2]}
    return {name.casefold() for name in names}


def _shortest_name(model: RemoteModel, others: Sequence[RemoteModel]) -> str:
    """The shortest name that distinguishes it from ``others``."""
    for name in (model.quantization, model.name):
        if name and sum(name.casefold() in _names(other) for other in others) == 1:
            return printable(name, 200)
    return printable(model.files[0].path, 500)


# ---------------------------------------------------------------- its draft


def _draft(hub: Hub, repository: Repository, target: RemoteModel) -> DraftCandidate:
    """The best draft that fits; prints which one and why. Raises `KnownError` if there is none."""
    show_progress("looking for a draft")
    header = read_remote_header(hub.network, target)
    candidates = []
    for candidate in find_drafts(hub, header, repository.base_models):
        candidates.append(candidate)
        show_progress(f"looking for a draft: {candidate.repository}")
    best = next((candidate for candidate in in_order(candidates) if candidate.verdict.fits), None)
    if best is None:
        reasons = [f"  {one.repository}: {one.verdict.reason}" for one in candidates]
        raise KnownError(
            "\n".join(["No matching draft was found. Without --with-draft, only the target is downloaded.", *reasons])
        )
    _say(
        f"The draft is {best.model.name} from {best.repository} ({words.size(best.model.size)}, "
        f"{words.share(best.share)} of "
        f"the target). {best.verdict.reason}" + (f" {best.verdict.warning}" if best.verdict.warning else "")
    )
    return best


# ---------------------------------------------------------------- the download


def _fetch(network: Network, item: Item, values: Settings) -> tuple[Path, Path | None]:
    """Download ``item`` into the models folder; returns the paths of its target and of its draft or head.

    Uses its own queue, because the window may be open: nothing in the window's queue is continued, and a file that is
    being downloaded there is refused. Raises `KnownError`.
    """
    changed = threading.Event()
    with tempfile.TemporaryDirectory(prefix="slipstream-", ignore_cleanup_errors=True) as folder:
        queue = DownloadQueue(
            network,
            Path(folder),
            own_folder(values.models_folder),
            parallel=values.parallel_downloads,
            origins=origins_file(system.data_dir()),
            on_change=lambda _: changed.set(),
        )
        try:
            queue.add(item)
            progress = _wait(queue, changed)
        except KeyboardInterrupt:
            _say("Stopped. What was downloaded is kept; run the same command again to continue.")
            raise
        finally:
            queue.close()
            show_progress("")
    if progress.state is not ItemState.DONE:
        # The command line has no Resume button.
        message = progress.message.replace("press Resume", "run the same command again")
        raise NoAccessError(message, progress.page) if progress.page else KnownError(message)
    return queue.paths(item.id)


def _say(text: str) -> None:
    """Print a line that stays, unlike the progress."""
    show_progress("")
    tell(text)


def _wait(queue: DownloadQueue, changed: threading.Event) -> ItemProgress:
    """Show the progress of the queue's only item until it can't continue by itself."""
    told = ""
    while True:
        changed.clear()
        (progress,) = queue.progress()
        if progress.state not in _ACTIVE:
            return progress
        if progress.message not in ("", told):
            told = progress.message
            _say(f"{told} Trying again." if progress.state is ItemState.WAITING else told)
        show_progress(figures(progress))
        changed.wait(_REFRESH_SECONDS)


# ---------------------------------------------------------------- what came


def _described(item: Item, target: Path, beside: Path | None) -> dict[str, Any]:
    return {
        "title": item.title,
        "size": item.size,
        "license": item.license or None,
        "target": _model(item.target, target),
        "draft": _model(item.draft, beside) if item.draft and beside is not None else None,
        "head": _model(item.head, beside) if item.head and beside is not None else None,
        "projector": _model(item.projector, target.parent / item.projector[0].name) if item.projector else None,
    }


def _model(files: Sequence[RemoteFile], path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "repository": files[0].repository,
        "commit": files[0].commit,
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files],
    }
