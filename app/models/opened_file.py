"""A model file named by something else: a file manager, a terminal, the system."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from app.errors import KnownError
from app.models.text import printable

SUFFIX = ".gguf"
_SCHEME = "file:"


def names_file(argument: str) -> bool:
    """Whether an argument means a file rather than a command; one named like a command is written ``./name``."""
    if argument.startswith("-"):
        return False
    lower = argument.lower()
    return lower.startswith(_SCHEME) or lower.endswith(SUFFIX) or os.sep in argument


def path_of(argument: str) -> Path:
    """The absolute path that a path or a ``file:`` address means; nothing is looked up.

    Raises `KnownError` if it can't be the name of a model.
    """
    path = Path(_from_address(argument) if argument.lower().startswith(_SCHEME) else argument)
    name = printable(path.name)
    try:
        path = path.absolute()
    except FileNotFoundError:
        raise KnownError(f"“{name}” can't be found: the folder Slipstream was started in no longer exists.") from None
    if path.suffix.lower() != SUFFIX:
        raise KnownError(f"“{name}” is not a GGUF model: the file name should end in {SUFFIX}.")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise KnownError(f"“{name}” can't be opened: its path is not valid text. Rename it.") from None
    return path


def _from_address(address: str) -> str:
    from urllib.request import url2pathname  # would import half of the network

    try:
        parts = urlsplit(address)
    except ValueError:
        raise KnownError(f"“{printable(address)}” is not the address of a file.") from None
    if parts.netloc not in ("", "localhost"):
        raise KnownError(f"“{printable(address)}” is on another computer. Copy it to this one first.")
    return url2pathname(parts.path)
