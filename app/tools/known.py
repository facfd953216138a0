"""Servers that are easily added, and where the programs that start servers are."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app import system

PROGRAMS = {"uvx": "uv, from docs.astral.sh/uv", "npx": "Node.js, from nodejs.org", "docker": "Docker, from docker.com"}
"""What the programs belong to that most servers are started with, and where that is."""
_USUAL = (
    "~/.local/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin", "~/.volta/bin", "~/.asdf/shims",
    "~/.local/share/mise/shims", "~/.local/share/fnm/aliases/default/bin", "~/.nvm/versions/node/*/bin",
    "/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin",
)  # fmt: skip
"""Where installers put programs that only a terminal finds: what is started from a desktop has a shorter PATH."""


def find_program(name: str, path: str | None = None) -> Path | None:
    """The program, if it is on this computer; a name without a folder is looked for in ``path`` (``None``: PATH) and
    then where installers put it. Without a folder in the result, it is found by its name."""
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
    """A server to add by one click."""

    title: str
    about: str
    config: dict[str, Any]
    """As `app.tools.config_files.find_servers` reads its JSON."""

    @property
    def program(self) -> str:
        """What starts it."""
        (server,) = self.config["servers"].values()
        return str(server["command"])


def known_servers() -> list[KnownServer]:
    """Those in ``resources/tool-servers.json``."""
    return [KnownServer(**row) for row in json.loads(system.resource("tool-servers.json").read_text(encoding="utf-8"))]
