"""``slipstream models get``: download a model from Hugging Face, alone or with a draft that fits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.models import choosing
from app.commands.output import show_progress, show_result
from app.errors import KnownError
from app.models.downloads.item import Item
from app.models.hub.errors import NoAccessError
from app.models.hub.repository import RemoteFile, RemoteModel, Repository
from app.models.text import printable, size_text

if TYPE_CHECKING:
    from app.models.hub.api import Hub
    from app.models.hub.catalog import CatalogPair
    from app.models.hub.drafts import DraftCandidate

_TOKEN = (
    "The token comes from the system's keyring, where Slipstream's window puts it, or from the variable HF_TOKEN; "
    "a mirror gets it only if the settings allow that."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.epilog = "What was stopped goes on with the same command. " + _TOKEN
    parser.add_argument(
        "wanted",
        metavar="REPO[:FILE]",
        help="a repository, as Qwen/Qwen3-8B-GGUF, with a quantization or a file's name where it has several models; "
        "or a recommended pair, as qwen3-8b",
    )
    parser.add_argument("--with-draft", action="store_true", help="find the best draft that fits and get it too")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status."""
    from app.commands.models.fetching import fetch
    from app.models.hub.api import HubConnection, network_settings

    values = choosing.settings()
    connection = HubConnection(network_settings(values))
    try:
        item = _item(connection.hub, options.wanted, with_draft=options.with_draft)
        target, draft = fetch(connection.network, item, values)
    except NoAccessError as error:
        raise KnownError(f"{error} Its page: {error.page}\n{_TOKEN}") from None
    finally:
        show_progress("")
        connection.network.close()
    paths = [str(path) for path in (target, draft) if path is not None]
    show_result(options, _described(item, target, draft), paths)
    return 0


def _item(hub: Hub, wanted: str, *, with_draft: bool) -> Item:
    from app.models.hub.catalog import resolve

    name, _, file = wanted.partition(":")
    if "/" not in name:
        return resolve(hub, _pair(wanted))
    show_progress(f"looking {printable(name)} up")
    repository = hub.repository(name)
    target = chosen(repository, file)
    title = f"{name.rpartition('/')[2]} {target.quantization}".strip()
    if not with_draft:
        return Item.of(title, target, None, (repository.licence,))
    draft = _draft(hub, repository, target)
    return Item.of(f"{title} with draft", target, draft.model, (repository.licence, draft.licence))


def _pair(id: str) -> CatalogPair:
    from app.models.hub.catalog import load_catalog

    pairs = {pair.id: pair for pair in load_catalog().pairs}
    if id.casefold() not in pairs:
        raise KnownError(
            f"{printable(id)} is neither a repository, as owner/name, nor one of the recommended pairs: "
            f"{', '.join(pairs)}."
        )
    return pairs[id.casefold()]


# ---------------------------------------------------------------- which of a repository's models


def chosen(repository: Repository, word: str) -> RemoteModel:
    """The only model, or the only one ``word`` names: a quantization, a file's name or its path, in any case.

    Raises `KnownError` that lists what there is.
    """
    found = [model for model in repository.models if not word or word.casefold() in _names(model)]
    if len(found) == 1:
        return found[0]
    if not repository.models:
        raise KnownError(f"{repository.id} has no GGUF models that can be downloaded.")
    if not found:
        problem = f"{repository.id} has no model {printable(word)}, but these"
    else:
        problem = f"{repository.id} has {len(found)} models" + (f" {printable(word)}" if word else "")
    offered = found or repository.models
    lines = [f"  {_shortest_name(model, offered)} ({size_text(model.size)})" for model in offered]
    example = f"{repository.id}:{_shortest_name(offered[0], offered)}"
    raise KnownError("\n".join([f'{problem}. Choose one, as in "slipstream models get {example}":', *lines]))


def _names(model: RemoteModel) -> set[str]:
    names = {model.quantization}
    for file in model.files:
        names |= {file.path, file.path.rpartition("/")[2]}
    return {name.casefold() for name in names}


def _shortest_name(model: RemoteModel, others: Sequence[RemoteModel]) -> str:
    """That no other of ``others`` has."""
    for name in (model.quantization, model.name):
        if name and sum(name.casefold() in _names(other) for other in others) == 1:
            return printable(name, 200)
    return printable(model.files[0].path, 500)


# ---------------------------------------------------------------- its draft


def _draft(hub: Hub, repository: Repository, target: RemoteModel) -> DraftCandidate:
    """The best that fits, after saying which and why. Raises `KnownError` when there is none."""
    from app.commands.models.fetching import say
    from app.models.hub.drafts import find_drafts, in_order
    from app.models.hub.remote_header import read_remote_header

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
            "\n".join(["No draft was found that fits. Without --with-draft the target is downloaded alone.", *reasons])
        )
    say(
        f"The draft is {best.model.name} of {best.repository} ({size_text(best.model.size)}, {best.share:.0%} of the "
        f"target). {best.verdict.reason}" + (f" {best.verdict.warning}" if best.verdict.warning else "")
    )
    return best


# ---------------------------------------------------------------- what came


def _described(item: Item, target: Path, draft: Path | None) -> dict[str, Any]:
    return {
        "title": item.title,
        "size": item.size,
        "licence": item.licence or None,
        "target": _model(item.target, target),
        "draft": _model(item.draft, draft) if draft is not None else None,
    }


def _model(files: Sequence[RemoteFile], path: Path) -> dict[str, Any]:
    return {
        "path": str(path),
        "repository": files[0].repository,
        "commit": files[0].commit,
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in files],
    }
