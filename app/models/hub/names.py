"""What names and commits from a repository may look like. A mirror may send anything."""

from __future__ import annotations

import re

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_PATH_CHARS = 512
_MAX_NAME_BYTES = 200
"""Shorter than file systems allow, to leave room for the extensions of unfinished downloads."""
_NOT_ON_WINDOWS = re.compile(r'[<>:"\\|?*\x00-\x1f\x7f]')
_RESERVED_ON_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?", re.IGNORECASE
)


def is_repository_id(text: str) -> bool:
    """Whether this can name a model repository: ``owner/name``."""
    # The hub allows none of these, and some would have another meaning in an address or a path.
    forbidden = ".." in text or "--" in text or text.endswith((".", "-", ".git"))
    return _REPOSITORY.fullmatch(text) is not None and not forbidden


def is_commit(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


def is_safe_path(path: str) -> bool:
    """Whether a file with this path can be written below a folder, on every system, and not outside it."""
    return 0 < len(path) <= _MAX_PATH_CHARS and all(map(is_safe_name, path.split("/")))


def is_safe_name(name: str) -> bool:
    """Whether every system accepts this as the name of one file or folder, without another meaning."""
    if not name or not name.isprintable() or name.startswith("~") or name[-1] in ". " or name[0] == " ":
        return False
    if _NOT_ON_WINDOWS.search(name) or _RESERVED_ON_WINDOWS.fullmatch(name):
        return False
    return len(name.encode()) <= _MAX_NAME_BYTES
