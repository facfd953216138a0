"""One part of the package that has a name, a version and a license."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Compiled:
    """A package that another one was compiled with."""

    name: str
    version: str
    license: str
    """An SPDX expression."""
    purl: str


@dataclass(frozen=True)
class Component:
    """Compared by name and version alone."""

    name: str
    version: str
    license: str = field(compare=False)
    """An SPDX expression."""
    texts: tuple[Path, ...] = field(compare=False)
    """The files that say it: at least one."""
    purl: str = field(compare=False)
    kind: str = field(default="library", compare=False)
    """A component type of CycloneDX."""
    contains: tuple[Compiled, ...] = field(default=(), compare=False)
    """What was compiled into it. Their licenses are among `texts`."""

    @property
    def folder(self) -> str:
        """The name of its folder in ``licenses/``."""
        return re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-.")

    def text_names(self) -> dict[str, Path]:
        """The texts by their paths in `folder`: as in the wheel they are from, below its metadata, else by name."""
        return {re.sub(r".*\.dist-info/(licenses/)?|.*/", "", text.as_posix(), count=1): text for text in self.texts}
