"""Whose a file of the bundle is. Each owner answers for what it knows, and returns None for the rest."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from installer.bundle import Bundle
from installer.component import Compiled, Component
from installer.places import ROOT
from installer.python_licenses import expression, normalized, texts


def table() -> dict[str, Any]:
    """``packaging/licences/components.toml``."""
    return tomllib.loads((ROOT / "packaging" / "licences" / "components.toml").read_text("utf-8"))


def rust_packages(file: Path) -> tuple[Compiled, ...]:
    """The lines of ``file`` that look like ``name 1.2.3, 1.3.0, name 1.0.0   license``."""
    found = []
    for line in file.read_text("utf-8").splitlines():
        names, _, license_ = line.partition("  ")
        name = ""
        for words in (part.split() for part in names.split(",") if license_):
            name = words[0] if len(words) == 2 else name
            found.append(Compiled(name, words[-1], license_.strip(), f"pkg:cargo/{name}@{words[-1]}"))
    return tuple(found)


class Owner(Protocol):
    def component(self, place: str, source: Path, /) -> Component | None:
        """The part that a file belongs to; ``place`` is its path below ``_internal``, ``source`` what it is a copy of.

        Raises `Unclear` if it is known whose the file is, but not its license.
        """


class PythonPackages:
    """The distributions of the environment that was frozen."""

    def __init__(self, site_packages: Path) -> None:
        self._site_packages = site_packages.resolve()
        self._known: dict[str, dict[str, Any]] = table()["python"]
        self._components: dict[str, Component] = {}

    def component(self, _place: str, source: Path) -> Component | None:
        found = self._by_file.get(source.resolve())
        return self.named(found) if found else None

    def named(self, name: str) -> Component:
        """The part that is the distribution ``name``; raises `Unclear` without license, `KeyError` if there is none."""
        if name not in self._components:
            self._components[name] = self._made(name)
        return self._components[name]

    @cached_property
    def _by_name(self) -> dict[str, metadata.Distribution]:
        found = metadata.distributions(path=[str(self._site_packages)])
        return {normalized(distribution.name): distribution for distribution in found}

    @cached_property
    def _by_file(self) -> dict[Path, str]:
        return {
            Path(str(distribution.locate_file(file))).resolve(): name
            for name, distribution in self._by_name.items()
            for file in distribution.files or ()
        }

    def _made(self, name: str) -> Component:
        distribution, known = self._by_name[name], self._known.get(name, {})
        return Component(
            name=distribution.name,
            version=distribution.version,
            license=known.get("licence") or expression(distribution),
            texts=tuple(ROOT / text for text in known.get("texts", ())) or texts(distribution),
            purl=f"pkg:pypi/{name}@{distribution.version}",
            contains=rust_packages(ROOT / known["rust_packages"]) if "rust_packages" in known else (),
        )


class Slipstream:
    """The app itself."""

    def __init__(self, bundle: Bundle) -> None:
        purl = f"pkg:generic/slipstream@{bundle.version}"
        self.whole = Component("Slipstream", bundle.version, "MIT", (ROOT / "LICENSE",), purl, "application")

    def component(self, place: str, source: Path) -> Component | None:
        of_macos = re.match(r"Contents/(Info\.plist|PkgInfo|_CodeSignature/|CodeResources$)|slipstream\.icns$", place)
        ours = any(source.is_relative_to(ROOT / folder) for folder in ("app", "resources", "packaging"))
        return self.whole if of_macos or ours else None


class Tabled:
    """The parts that ``components.toml`` knows by their places: they come inside another package."""

    def __init__(self, python: PythonPackages, version: str) -> None:
        self._python = python
        self._version = version
        self._entries: list[dict[str, Any]] = table()["component"]

    def component(self, place: str, _source: Path) -> Component | None:
        for entry in self._entries:
            if any(fnmatch(place.lower(), pattern.lower()) for pattern in entry["files"]):
                return self._made(entry, place)
        return None

    def _made(self, entry: dict[str, Any], place: str) -> Component:
        version = self._version_of(entry, place)
        purl = entry.get("purl") or f"pkg:generic/{quote(entry['name'].lower().replace(' ', '-'), safe='')}"
        return Component(
            name=entry["name"],
            version=version,
            license=entry["licence"],
            texts=tuple(ROOT / text for text in entry["texts"]),
            purl=f"{purl}@{version}" if version else purl,
            kind=entry.get("kind", "library"),
        )

    def _version_of(self, entry: dict[str, Any], place: str) -> str:
        if pattern := entry.get("version_pattern"):
            found = re.search(pattern, place)
            return found[1] if found else ""
        distribution = entry.get("version_of")
        if distribution == "slipstream":
            return self._version
        return self._python.named(distribution).version if distribution else ""
