"""What is in the data folder, and what shouldn't be."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

_KNOWN = re.compile(
    "|".join(
        (
            r"chats\.sqlite(\.search)?(-wal|-shm)?",
            r"backups/chats-[0-9-]+\.sqlite",
            r"(backups/)?attachments/[0-9a-f]{2}/[0-9a-f]{64}",
            r"(cache/)?[a-z-]+\.json(\.lock)?",
            r"cache/chats/[0-9a-f-]+\.kept",
            r"logs/slipstream(\.log(\.\d)?|-crash\.txt)",
            r"lock|run/(address|socket)",
        )
    )
)


_WRITING_SECONDS = 20
"""A file is written by then, also on a busy machine."""


def files(home: Path) -> Iterator[Path]:
    return (path for path in home.rglob("*") if path.is_file() or path.is_symlink() or path.is_socket())


def strays(home: Path) -> list[str]:
    """Files that no running app needs and no user put there."""
    names = (path.relative_to(home).as_posix() for path in files(home))
    return sorted(name for name in names if not _KNOWN.fullmatch(name))


def lasting_strays(home: Path) -> list[str]:
    """Those of a running app that don't go by themselves, as what it is writing does."""
    left, deadline = set(strays(home)), time.monotonic() + _WRITING_SECONDS
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left &= set(strays(home))
    return sorted(left)


def size(home: Path) -> int:
    """Bytes of all files."""
    total = 0
    for path in files(home):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def bugs(home: Path) -> list[str]:
    """What the logs tell of bugs."""
    found = []
    for path in sorted((home / "logs").glob("slipstream*")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [text] if "crash" in path.name and text.strip() else []
        found += [line for line in text.splitlines() if " CRITICAL" in line or " ERROR" in line]
    return found
