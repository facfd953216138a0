"""Puts the licenses of everything inside a bundle into it, with an index."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from installer.bundle import Bundle, Unclear
from installer.component import Component
from installer.inventory import Inventory, take

_INDEX = """\
Slipstream {version}: what is inside, and under which license

Slipstream itself is under the MIT license. Below is every part that is packaged with it, with its license as an SPDX
expression (https://spdx.org/licenses/) and the folder next to this file that has the texts. {sbom} is
the same list in machine-readable form, with checksums (CycloneDX).

- Qt and PySide6 are used under the LGPL: qt/replacing.txt says how to replace them and where their source is.
- Parts of Debian (or Ubuntu) are unchanged; their source is in its archive under the name and version given here;
  Debian keeps it permanently at https://snapshot.debian.org.
- Rust packages that are compiled into Python packages are listed, with their licenses, in the "sboms" folders of those.

{table}
"""
_COMMON = Path("/usr/share/common-licenses")


def write(bundle: Bundle, inventory: Inventory | None = None) -> None:
    """Make ``licenses/`` in ``bundle`` anew; raises `Unclear` if a file has no owner or a part has no license."""
    inventory = inventory or take(bundle)
    shutil.rmtree(bundle.licenses, ignore_errors=True)
    folders: dict[str, Component] = {}
    for part in inventory.parts:
        if (other := folders.setdefault(part.folder, part)) != part:
            raise Unclear(f"{part.name} {part.version} and {other.name} {other.version} share one folder for licenses")
        _copy_texts(part, bundle.licenses / part.folder)
    _copy_common_licenses(bundle.licenses)
    index = _INDEX.format(version=bundle.version, sbom=f"../{bundle.sbom.name}", table=_table(list(inventory.parts)))
    (bundle.licenses / "README.txt").write_text(index, "utf-8", newline="\n")
    _link_for_macos(bundle)


def _copy_texts(part: Component, folder: Path) -> None:
    for name, text in part.text_names().items():
        if not text.is_file():
            raise Unclear(f"the license of {part.name} is not where it should be: {text}")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(text, folder / name)


def _copy_common_licenses(folder: Path) -> None:
    """Debian's copyright files point to the licenses that it has once for all."""
    named: set[str] = set()
    for text in folder.glob("*/copyright"):
        named.update(re.findall(rf"{_COMMON}/([\w.-]*\w)", text.read_text("utf-8", errors="replace")))
    for name in sorted(named):
        if (_COMMON / name).is_file():
            (folder / _COMMON.name).mkdir(exist_ok=True)
            shutil.copyfile(_COMMON / name, folder / _COMMON.name / name)


def _table(parts: list[Component]) -> str:
    rows = [("Part", "Version", "License", "Folder")]
    rows += [(part.name, part.version or "-", part.license, f"{part.folder}/") for part in parts]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _link_for_macos(bundle: Bundle) -> None:
    """The app looks where its libraries are; what is no code has to be in Resources."""
    frameworks = bundle.folder / "Contents" / "Frameworks"
    if frameworks.is_dir() and not (frameworks / "licences").is_symlink():
        (frameworks / "licences").symlink_to(Path("..", "Resources", "licences"))
