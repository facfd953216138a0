"""Where downloaded files came from, in one small JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec

from app.storage.json_file import BACKGROUND_SECONDS, KeyedFile


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of one file."""

    repository: str
    commit: str
    path: str
    """The path in the repository."""
    sha256: str
    size: int
    """Bytes."""
    license: str = msgspec.field(default="", name="licence")
    downloaded_at: int = 0
    """Seconds since 1970, UTC."""


Origins: TypeAlias = KeyedFile[Origin]
"""By the files' absolute paths."""


def origins_file(folder: Path) -> Origins:
    return KeyedFile(
        folder / "origins.json",
        Origin,
        inside="origins",
        most=100_000,
        what="Where a file came from",
        patience=BACKGROUND_SECONDS,
    )
