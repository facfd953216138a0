"""The API key in a file that only its owner can read."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from app.errors import KnownError
from app.storage.files import write_whole

_KEY = re.compile(r"[!-~]{16,512}")
_MOST_BYTES = 4096


def key_from(path: Path) -> tuple[str, bool]:
    """The key in ``path``, and whether it was made just now because there was no such file. Raises `KnownError`."""
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()))
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return _made(path), True
    except OSError as error:
        raise KnownError(f"The key file {path} can't be read: {error.strerror or error}.") from error
    key = data.decode("utf-8", "replace").strip()
    if not _KEY.fullmatch(key):
        raise KnownError(
            f"{path} contains no API key. It has to be one line of 16 to 512 letters, digits and signs without spaces. "
            "Delete the file, and Slipstream makes a new one."
        )
    return key, False


def _made(path: Path) -> str:
    key = secrets.token_urlsafe(32)
    try:
        write_whole(path, f"{key}\n".encode())
    except OSError as error:
        raise KnownError(f"The key file {path} can't be written: {error.strerror or error}.") from error
    return key


def _check_mode(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise KnownError(f"The key file {path} isn't a file.")
    if os.name == "posix" and found.st_mode & 0o077:
        raise KnownError(f"Other users can read or change the key file {path}. Run chmod 600 on it.")
