"""Looks up every file of the catalog on the hub and reports what is no longer as the catalog says.

    scripts/check-catalog [--endpoint URL] [--catalog FILE] [ID …]

Of each file: whether the repository has it, its size, its license, and from its header the architecture, the MTP head,
and what a token of context and a recurrent state take. Of a vision file (mmproj): whether it is there, is one, and its
size. Of the repositories of EAGLE-3 heads: whether one is there. Headers are some megabytes each; no model is
downloaded. Exit status: 0 if everything is as listed, 1 if something has changed, 2 if the hub can't be asked.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec

from app import words
from app.models.gguf import GgufHeader, ModelFileError
from app.models.heads import has_head, head_kind, is_head_only, mismatch
from app.models.hub.api import Hub, read_remote_header
from app.models.hub.catalog import (
    Catalog,
    CatalogFile,
    CatalogModel,
    DraftModel,
    Inside,
    NGrams,
    PublishedHead,
    Sidecar,
    load_catalog,
)
from app.models.hub.network import Network, NetworkSettings
from app.models.hub.repository import NoAccessError, NotFoundError, RemoteModel, Repository
from app.models.memory_shape import shape_of
from app.models.pairing import compare
from app.system import KnownError
from app.words import printable

_SIZE_TOLERANCE = 0.01
"""Sizes are advisory, and some are listed as read off a page."""
_BATCH = 512


class _ChangedError(Exception):
    """A file can't be looked at any further."""


class CatalogCheck:
    """One look at the hub.

    Attributes:
        notes: What is worth knowing, and no change.
    """

    def __init__(self, hub: Hub) -> None:
        self._network = hub.network
        self._repository = cache(hub.repository)
        self.notes: list[str] = []

    def changes(self, model: CatalogModel, file: CatalogFile) -> list[str]:
        """What is not as listed, a line each. Raises `KnownError` if the hub can't be asked."""
        self.notes = []
        return list(self._changes(model, file))

    def _changes(self, model: CatalogModel, file: CatalogFile) -> Iterator[str]:
        for alternate in file.alternates:
            try:
                self._found(alternate.repository, alternate.file, alternate.quantization)
            except _ChangedError as changed:
                yield f"alternate: {changed}"
        try:
            repository, remote = self._found(file.repository, file.file, file.quantization)
            header = self._header(remote)
        except _ChangedError as changed:
            yield str(changed)
            return
        self.notes.append(
            f"{words.size(remote.size)}, {printable(header.architecture)}, commit {repository.commit[:8]}"
        )
        yield from _other_size(file.file, remote.size, file.size)
        if repository.license != model.license:
            yield f"license: {printable(repository.license) or 'none'}, listed as {model.license}"
        yield from _other_memory(model, header)
        for changes in (self._accelerator_changes(file, header), self._vision_changes(model, file)):
            try:
                yield from changes
            except _ChangedError as changed:
                yield str(changed)

    def _accelerator_changes(self, file: CatalogFile, header: GgufHeader) -> Iterator[str]:
        match file.accelerator:
            case Inside() as inside:
                if not has_head(header):
                    yield "no MTP head inside"
                elif header.architecture != inside.architecture:
                    yield f"architecture: {printable(header.architecture)}, listed as {inside.architecture}"
            case Sidecar() as sidecar:
                _, remote = self._found(sidecar.repository or file.repository, sidecar.file)
                yield from _other_size(sidecar.file, remote.size, sidecar.size)
                head = self._header(remote)
                if not is_head_only(head) or head.architecture != sidecar.architecture:
                    yield f"{sidecar.file} is no MTP head of the architecture {sidecar.architecture}"
                elif problem := mismatch(header, head):
                    yield problem
            case DraftModel() as listed:
                yield from self._draft_changes(listed, header)
            case NGrams():
                if has_head(header):
                    self.notes.append("has an MTP head inside that the catalog doesn't use")

    def head_changes(self, listed: PublishedHead) -> list[str]:
        """What is not as listed. Raises `KnownError` if the hub can't be asked."""
        try:
            repository, _ = self._found(listed.repository, "*.gguf")
            kinds = [head_kind(self._header(remote)) for remote in repository.heads or repository.models[:1]]
        except _ChangedError as changed:
            return [str(changed)]
        return [] if "eagle3" in kinds else [f"{listed.repository} has no EAGLE-3 head"]

    def _vision_changes(self, model: CatalogModel, file: CatalogFile) -> Iterator[str]:
        """Once for each repository."""
        listed = model.mmproj
        if listed is None or file is not next(one for one in model.files if one.repository == file.repository):
            return
        _, remote = self._found(file.repository, listed.file)
        if listed.size is None:
            self.notes.append(f"{listed.file}: {remote.size:,} bytes, not listed")
        else:
            yield from _other_size(listed.file, remote.size, listed.size)
        if self._header(remote).architecture != "clip":
            yield f"{listed.file} is no vision file"

    def _draft_changes(self, listed: DraftModel, target: GgufHeader) -> Iterator[str]:
        repository, remote = self._found(listed.repository, listed.file, listed.quantization)
        yield from _other_size(listed.file, remote.size, listed.size)
        if repository.license != listed.license:
            yield f"license of the draft: {printable(repository.license) or 'none'}, listed as {listed.license}"
        draft = self._header(remote)
        if not (verdict := compare(target, draft)).fits:
            yield f"the draft doesn't fit: {verdict.reason}"
        yield from _other_number("KV cache of the draft", _per_token(draft), listed.kv_per_token)

    def _found(self, repository: str, file: str, quantization: str = "") -> tuple[Repository, RemoteModel]:
        try:
            found = self._repository(repository)
        except NotFoundError:
            raise _ChangedError(f"{repository} is gone") from None
        except NoAccessError:
            raise _ChangedError(f"{repository} can't be read without an access token") from None
        if found.gated != "no":
            raise _ChangedError(f"{repository} is gated now")
        models = (*found.models, *found.heads, *found.vision)
        for model in models:
            is_quantization = quantization in ("", model.quantization)
            if is_quantization and fnmatchcase(model.name.lower(), file.lower()):
                return found, model
        offered = ", ".join(printable(model.name) for model in models[:20]) or "no GGUF file"
        raise _ChangedError(f"{repository} no longer has {file}; it has {offered}")

    def _header(self, model: RemoteModel) -> GgufHeader:
        try:
            return read_remote_header(self._network, model, any_kind=True)
        except (ModelFileError, NoAccessError, NotFoundError) as error:
            raise _ChangedError(f"{printable(model.name)} can't be read: {error}") from None


def _other_size(name: str, found: int, listed: int) -> Iterator[str]:
    if abs(found - listed) > _SIZE_TOLERANCE * listed:
        yield f"size of {name}: {found:,} bytes, listed as {listed:,}"


def _other_memory(model: CatalogModel, header: GgufHeader) -> Iterator[str]:
    layers = shape_of(header).layers
    windows = sum(
        2 * (layer.keys + layer.values) * -(-(layer.window + _BATCH) // 256) * 256 for layer in layers if layer.window
    )
    yield from _other_number("KV cache", _per_token(header), model.kv_per_token)
    yield from _other_number("sliding windows", windows, model.window)
    yield from _other_number("state", sum(layer.state for layer in layers), model.state)


def _per_token(header: GgufHeader) -> int:
    return 2 * sum(layer.keys + layer.values for layer in shape_of(header).layers if not layer.window)


def _other_number(what: str, found: int, listed: int) -> Iterator[str]:
    if found != listed:
        yield f"{what}: {found:,} bytes, listed as {listed:,}"


def report(hub: Hub, models: Sequence[CatalogModel], heads: Sequence[PublishedHead] = ()) -> int:
    """Print a line for each file, head and change; returns the number of changes. Raises `KnownError`."""
    check, files, changes = CatalogCheck(hub), 0, 0
    for model in models:
        for file in model.files:
            found = check.changes(model, file)
            files, changes = files + 1, changes + len(found)
            print(f"{model.id} {file.quantization}: {'CHANGED' if found else 'as listed'}", flush=True)
            for line in (*(f"  - {line}" for line in found), *(f"    {note}" for note in check.notes)):
                print(line)
    for head in heads:
        found = check.head_changes(head)
        files, changes = files + 1, changes + len(found)
        print(f"{head.repository}: {'CHANGED' if found else 'as listed'}", flush=True)
        for line in found:
            print(f"  - {line}")
    print(
        f"{files} {'file' if files == 1 else 'files'} looked up, {changes} {'change' if changes == 1 else 'changes'}."
    )
    return changes


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="check-catalog", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these models")
    parser.add_argument("--endpoint", default="https://huggingface.co", help="the hub or a mirror")
    parser.add_argument("--catalog", type=Path, help="another file than resources/catalog.json")
    options = parser.parse_args()
    catalog = msgspec.json.decode(options.catalog.read_bytes(), type=Catalog) if options.catalog else load_catalog()
    models = [model for model in catalog.models if not options.ids or model.id in options.ids]
    if len(models) < len(options.ids):
        parser.error(f"the catalog has only {', '.join(model.id for model in catalog.models)}")
    network = Network(NetworkSettings(endpoint=options.endpoint), lambda: os.environ.get("HF_TOKEN"))
    try:
        return 1 if report(Hub(network), models, () if options.ids else catalog.heads) else 0
    except KnownError as error:
        print(f"check-catalog: {error}", file=sys.stderr)
        return 2
    finally:
        network.close()
