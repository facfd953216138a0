"""The software bill of materials of a bundle: CycloneDX 1.6, the same bytes for the same bundle."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Entry
from cyclonedx.model.component import ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from installer.bundle import Bundle
from installer.component import Compiled, Component
from installer.inventory import Inventory, take

_HASHED = re.compile(r"(\.(so|dylib|dll|pyd|exe|gguf)|\.so\.[\d.]+|/slipstream(-cli)?)$", re.IGNORECASE)
_TOOLS = ("cyclonedx-python-lib", "pyinstaller")


def write(bundle: Bundle, path: Path, inventory: Inventory | None = None) -> None:
    """Write ``bundle``'s parts to ``path``; raises `Unclear` as `inventory.take` does."""
    inventory = inventory or take(bundle)
    of_app = inventory.parts.get(inventory.app, [])
    app = _entry(bundle.folder, inventory.app, of_app, f"licences/{inventory.app.folder}/")
    parts = [
        _entry(bundle.folder, part, files, f"licences/{part.folder}/")
        for part, files in inventory.parts.items()
        if part != inventory.app
    ]
    listed = [f"{part.purl} {' '.join(files)}" for part, files in inventory.parts.items()]
    serial_number = _serial_number([inventory.app.purl, str(bundle.commit_time), *listed])
    tools = metadata.distributions(path=[str(bundle.site_packages)])
    _write(Bom(serial_number=serial_number, components=parts), app, bundle.commit_time, tools, path)


def write_one(part: Component, folder: Path, files: list[str], path: Path, commit_time: int) -> None:
    """Write to ``path`` a part that is packaged by itself: ``files`` in ``folder``, with its license beside them."""
    bom = Bom(serial_number=_serial_number([part.purl, str(commit_time), *files]))
    _write(bom, _entry(folder, part, files, "./"), commit_time, [metadata.distribution(_TOOLS[0])], path)


def _write(bom: Bom, whole: Entry, time: int, tools: Iterable[metadata.Distribution], path: Path) -> None:
    bom.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    bom.metadata.component = whole
    for tool in tools:
        if tool.name.lower() in _TOOLS:
            entry = Entry(type=ComponentType.APPLICATION, name=tool.name, version=tool.version)
            bom.metadata.tools.components.add(entry)
    bom.register_dependency(whole, bom.components)
    path.write_text(f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n", "utf-8", newline="\n")


def _entry(folder: Path, part: Component, files: list[str], licenses: str) -> Entry:
    return Entry(
        type=ComponentType(part.kind),
        name=part.name,
        version=part.version or None,
        purl=PackageURL.from_string(part.purl),
        bom_ref=part.purl,
        licenses=[LicenseExpression(part.license)],
        properties=[Property(name="slipstream:licences", value=licenses)],
        components=[
            *(_file(folder, part, file) for file in files if _HASHED.search(f"/{file}")),
            *(_compiled(part, package) for package in part.contains),
        ],
    )


def _compiled(part: Component, package: Compiled) -> Entry:
    return Entry(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        purl=PackageURL.from_string(package.purl),
        bom_ref=f"{part.purl}#{package.purl}",
        licenses=[LicenseExpression(package.license)],
    )


def _file(folder: Path, part: Component, name: str) -> Entry:
    with (folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Entry(type=ComponentType.FILE, name=name, bom_ref=f"{part.purl}#{name}", hashes=hashes)


def _serial_number(parts: list[str]) -> uuid.UUID:
    """One for each commit and what was built of it."""
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(parts))
