"""Owners of what no Python distribution brings: llama.cpp, CPython and the system's libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from installer.bundle import Bundle, Unclear
from installer.component import Component
from installer.owners import table
from installer.places import ROOT

_TEXTS = ROOT / "packaging" / "licences"


class LlamaCpp:
    """llama.cpp's libraries, which are built apart from their Python package."""

    _LIBRARY = re.compile(r"^llama_cpp/lib/(lib)?(ggml|llama|mtmd)[\w.-]*$")

    def __init__(self, bundle: Bundle) -> None:
        self._source = bundle.llama_source / "vendor" / "llama.cpp"
        self._head = bundle.llama_source / ".git" / "modules" / "vendor" / "llama.cpp" / "HEAD"

    def component(self, place: str, _source: Path) -> Component | None:
        return self._whole if self._LIBRARY.match(place) else None

    @cached_property
    def _whole(self) -> Component:
        version, commit = self._version(), self._commit()
        return Component(
            name="llama.cpp",
            version=f"{version}+{commit[:9]}" if commit else version,
            license="MIT AND MIT-0",
            texts=(self._source / "LICENSE", _TEXTS / "llama.cpp" / "notices.txt"),
            purl=f"pkg:github/ggml-org/llama.cpp@{commit or version}",
        )

    def _version(self) -> str:
        said = (self._source / "CMakeLists.txt").read_text("utf-8")
        return ".".join(re.findall(r"^set\(LLAMA_VERSION_(?:MAJOR|MINOR|PATCH)\s+(\d+)\)", said, re.MULTILINE))

    def _commit(self) -> str:
        """As the source distribution's leftovers of Git have it, or nothing."""
        said = self._head.read_text("utf-8").strip() if self._head.is_file() else ""
        return said if re.fullmatch(r"[0-9a-f]{40}", said) else ""


class CPython:
    """The interpreter and its standard library; the system's own interpreter is, but for the library, `Debian`'s."""

    def __init__(self, bundle: Bundle) -> None:
        said = _settings(_environment(bundle.site_packages) / "pyvenv.cfg")
        home = Path(said["home"])
        self._prefix = home if sys.platform == "win32" else home.parent
        self._version = said["version"]
        self._library = self._prefix / "lib" / f"python{self._version.rpartition('.')[0]}"
        self._base_library = bundle.work / "base_library.zip"

    def component(self, _place: str, source: Path) -> Component | None:
        folder = self._library if self._prefix == Path("/usr") else self._prefix
        inside = source.is_relative_to(folder) or source.resolve().is_relative_to(folder.resolve())
        return self._whole if source == self._base_library or inside else None

    @cached_property
    def _whole(self) -> Component:
        own = [self._library / "LICENSE.txt", self._prefix / "LICENSE.txt"]
        license = next((text for text in own if text.is_file()), _TEXTS / "cpython" / "LICENSE.txt")
        return Component(
            name="CPython",
            version=self._version,
            license="PSF-2.0",
            texts=(license, _TEXTS / "cpython" / "incorporated-software.txt"),
            purl=f"pkg:github/python/cpython@v{self._version}",
        )


class Debian:
    """Libraries of the system that builds, where that is Debian or one of its family. One part a source package."""

    def __init__(self) -> None:
        self._known: dict[str, str] = table()["debian"]
        self._components: dict[str, Component] = {}
        self._here = shutil.which("dpkg-query") is not None

    def component(self, _place: str, source: Path) -> Component | None:
        package = self._package(source) if self._here and source.is_file() else ""
        if package and package not in self._components:
            self._components[package] = self._made(package)
        return self._components.get(package)

    @staticmethod
    def _package(source: Path) -> str:
        """The package that ``source`` is of, or nothing; dpkg may know it by its place before /usr was merged."""
        for path in {str(source), str(source.resolve())}:
            for known in (path, f"/usr{path}", path.removeprefix("/usr")):
                if said := _dpkg("--search", known):
                    return said.rpartition(": ")[0].partition(", ")[0]
        return ""

    def _made(self, package: str) -> Component:
        name, version = _dpkg("--show", "-f=${source:Package} ${source:Version}", package).split()
        if name not in self._known:
            raise Unclear(
                f"{name} of the system: keep it out, or name its license in packaging/licences/components.toml"
            )
        text = Path("/usr/share/doc", package.partition(":")[0], "copyright").resolve()
        system = _settings(Path("/etc/os-release"))
        distribution = f"{system['ID']}-{system.get('VERSION_ID', '')}".strip("-")
        return Component(
            name=f"{name} ({system['ID'].capitalize()})",
            version=version,
            license=self._known[name],
            texts=(text,),
            purl=f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version)}?arch=source&distro={distribution}",
        )


def _dpkg(*arguments: str) -> str:
    """What dpkg-query says, its first line; nothing if it fails."""
    said = subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0] if said.returncode == 0 else ""


def _environment(site_packages: Path) -> Path:
    return next(folder for folder in site_packages.parents if (folder / "pyvenv.cfg").is_file())


def _settings(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in file.read_text("utf-8").splitlines())
    return {name.strip(): value.strip().strip('"') for name, separator, value in lines if separator}
