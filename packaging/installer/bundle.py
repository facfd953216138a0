"""A frozen app, as the inventory of its parts sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class Unclear(Exception):  # noqa: N818 - the build ends with its text
    """Something is in the bundle and nobody knows whose it is, or under which license. One line for each such thing."""


@dataclass(frozen=True)
class Bundle:
    """What PyInstaller made, and of what."""

    folder: Path
    """The onedir folder with the program and ``_internal``; on macOS ``Slipstream.app``."""
    site_packages: Path
    """Of the environment that was frozen."""
    work: Path
    """PyInstaller's work folder of the spec: with ``COLLECT-00.toc``, ``PYZ-00.toc`` and others."""
    llama_source: Path
    """llama-cpp-python's unpacked source distribution, with llama.cpp's source in ``vendor/``."""
    version: str
    commit_time: int
    """Seconds since 1970: the time that the SBOM bears."""

    @property
    def contents(self) -> Path:
        """Where everything but the program is, and where licenses and SBOM go."""
        resources = self.folder / "Contents" / "Resources"
        return resources if resources.is_dir() else self.folder / "_internal"

    @property
    def licenses(self) -> Path:
        return self.contents / "licences"

    @property
    def sbom(self) -> Path:
        return self.contents / "sbom.cdx.json"
