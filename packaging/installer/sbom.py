"""The software bill of materials of a bundle: CycloneDX 1.6, the same bytes for the same bundle."""

from __future__ import annotations

import hashlib
import re
import uuid
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
    bom = Bom(serial_number=_serial_number(bundle, inventory))
    bom.metadata.timestamp = datetime.fromtimestamp(bundle.commit_time, UTC)
    bom.metadata.component = app = _entry(bundle, inventory.app, inventory.parts.get(inventory.app, []))
    for tool in metadata.distributions(path=[str(bundle.site_packages)]):
        if tool.name.lower() in _TOOLS:
            entry = Entry(type=ComponentType.APPLICATION, name=tool.name, version=tool.version)
            bom.metadata.tools.components.add(entry)
    for part, files in inventory.parts.items():
        if part != inventory.app:
            bom.components.add(_entry(bundle, part, files))
    bom.register_dependency(app, bom.components)
    path.write_text(f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n", "utf-8", newline="\n")


def _entry(bundle: Bundle, part: Component, files: list[str]) -> Entry:
    return Entry(
        type=ComponentType(part.kind),
        name=part.name,
        version=part.version or None,
        purl=PackageURL.from_string(part.purl),
        bom_ref=part.purl,
        licenses=[LicenseExpression(part.license)],
        properties=[Property(name="slipstream:licences", value=f"licences/{part.folder}/")],
        components=[
            *(_file(bundle, part, file) for file in files if _HASHED.search(f"/{file}")),
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


def _file(bundle: Bundle, part: Component, name: str) -> Entry:
    with (bundle.folder / name).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Entry(type=ComponentType.FILE, name=name, bom_ref=f"{part.purl}#{name}", hashes=hashes)


def _serial_number(bundle: Bundle, inventory: Inventory) -> uuid.UUID:
    """One for each commit and what was built of it."""
    parts = [f"{part.purl} {' '.join(files)}" for part, files in inventory.parts.items()]
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([inventory.app.purl, str(bundle.commit_time), *parts]))
