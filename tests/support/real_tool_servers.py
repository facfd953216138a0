"""MCP servers that other people made, by version, in the user's cache folder.

``python -m tests.support.real_tool_servers`` installs them once, from the Python registry and npm's: 220 MB.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.real_models import cache

PYTHON = {
    "new": ["mcp-server-time==2026.10.19", "mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19"],
    "old": ["mcp-server-sqlite==2025.4.25", "mcp<2"],  # it was written for the library before
}
NPM = [f"@modelcontextprotocol/server-{name}@2026.8.31" for name in ("everything", "filesystem", "memory")]


def folder() -> Path:
    return cache() / "tool-servers-1"


def program(name: str) -> Path:
    """The path of ``mcp-server-NAME``; it may not be there."""
    if name in ("everything", "filesystem", "memory"):
        return folder() / "npm" / "node_modules" / ".bin" / f"mcp-server-{name}"
    return folder() / ("old" if name == "sqlite" else "new") / "bin" / f"mcp-server-{name}"


def install() -> None:
    """Raises `OSError` or `subprocess.CalledProcessError` where one can't be had."""
    done = folder() / "complete"
    if done.exists():
        return
    shutil.rmtree(folder(), ignore_errors=True)
    for name, packages in PYTHON.items():
        subprocess.run([sys.executable, "-m", "venv", folder() / name], check=True)
        pip = [str(folder() / name / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *packages], check=True)
    subprocess.run(["npm", "install", "--silent", "--prefix", folder() / "npm", *NPM], check=True)
    done.touch()


if __name__ == "__main__":
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"The servers of tools can't be installed here: {error}")
