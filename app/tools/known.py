"""Well-known servers that are easy to add, and where to find the programs that start servers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import system

PROGRAMS = {"uvx": "uv, from docs.astral.sh/uv", "npx": "Node.js, from nodejs.org", "docker": "Docker, from docker.com"}
"""The programs that start most servers: what each one comes with, and where to get it."""
_USUAL = (
    "~/.local/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin", "~/.volta/bin", "~/.asdf/shims",
    "~/.local/share/mise/shims", "~/.local/share/fnm/aliases/default/bin", "~/.nvm/versions/node/*/bin",
    "/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin",
)  # fmt: skip
"""Where installers put programs that only a terminal finds: apps started from a desktop have a shorter PATH."""


def find_program(name: str, path: str | None = None) -> Path | None:
    """The program, if it is on this computer. A name without a folder is looked up in ``path`` (``None``: PATH), then
    where installers put programs. A result without a folder means that the name alone finds it."""
    if not name:
        return None
    if shutil.which(name, path=path):
        return Path(name)
    if Path(name).name != name:
        return None
    home, root = Path.home(), Path("/")
    for usual in _USUAL:
        base, pattern = (home, usual[2:]) if usual.startswith("~/") else (root, usual[1:])
        for folder in sorted(base.glob(pattern), key=_version, reverse=True):
            if found := shutil.which(name, path=str(folder)):
                return Path(found)
    return None


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", str(folder))]


@dataclass(frozen=True)
class KnownServer:
    """A server that the settings offer to add."""

    title: str
    about: str
    config: dict[str, Any]
    """JSON that `app.tools.config_files.find_servers` reads."""

    @property
    def program(self) -> str:
        """The program that starts it."""
        (server,) = self.config["servers"].values()
        return str(server["command"])


def known_servers() -> list[KnownServer]:
    """Those in ``resources/tool-servers.json``."""
    return [KnownServer(**row) for row in json.loads(system.resource("tool-servers.json").read_text(encoding="utf-8"))]
