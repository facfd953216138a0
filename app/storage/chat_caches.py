"""The names of files with KV caches of chats, so that those of a deleted chat can be found without reading any."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

ENDING, PART_ENDING = ".kept", ".part"
_NO_CHAT = "0"


def name_begins(owner: str, chat: str) -> str:
    """``owner``: what the cache depends on but for its tokens; ``chat``: an id, empty for what is of no stored chat."""
    return f"{owner}-{chat or _NO_CHAT}-"


def new_name(owner: str, chat: str) -> str:
    import secrets  # what it imports is not for the first picture

    return f"{name_begins(owner, chat)}{secrets.token_hex(8)}{ENDING}"


def chat_of(path: Path) -> str:
    """The id of the chat; empty where that is unknown, as in names of earlier versions."""
    _owner, *parts = path.name.split("-")
    return parts[0] if len(parts) == 2 and parts[0] != _NO_CHAT else ""


def is_of(chat: str, chats: Collection[str]) -> bool:
    """Whether a copy of ``chat`` is erased along with ``chats``. It always is if either is empty: unknown, or all."""
    return not chats or not chat or chat in chats


def erase_chat_caches(folder: Path, chats: Collection[str]) -> None:
    """Delete the files of these chats, finished or not, as far as possible; without ``chats`` all files."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if is_of(chat_of(path), chats):
                with contextlib.suppress(OSError):
                    path.unlink()
