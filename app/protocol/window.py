"""How another process of the same user reaches the window that is running."""

from __future__ import annotations

from pathlib import Path

CHATS = b"chats\n"
"""Asks for the chats: frames (`app.protocol.frames`) with requests and answers of `app.chats.requests` follow."""


def address_file(data_dir: Path) -> Path:
    """The file with the address of the window's socket, in a folder that only its user can enter."""
    return data_dir / "run" / "address"
