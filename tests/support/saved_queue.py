"""A list of downloads as an earlier run leaves it."""

from __future__ import annotations

from pathlib import Path

from app.models.downloads.item import SavedItem
from app.storage.files import write_whole
from app.storage.json_file import encode


def write_queue(path: Path, items: list[SavedItem]) -> None:
    """Keep ``items`` in the file."""
    write_whole(path, encode({"version": 1, "items": items}))
