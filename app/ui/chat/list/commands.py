"""What the list of chats can have done. Whoever owns the list fills it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


def _nothing(*_values: object) -> None:
    pass


@dataclass
class ListCommands:
    """Called by the views. Chats and folders are named by their ids."""

    open_chat: Callable[[str], object] = _nothing
    open_message: Callable[[str, str], object] = _nothing
    """A chat, and the message of it to go to."""
    rename_chat: Callable[[str, str], object] = _nothing
    delete_chats: Callable[[Sequence[str]], object] = _nothing
    """To the trash."""
    pin_chats: Callable[[Sequence[str], bool], object] = _nothing
    move_chats: Callable[[Sequence[str], str | None], object] = _nothing
    """To a folder, or with ``None`` out of theirs."""
    export_chats: Callable[[Sequence[str]], object] = _nothing
    create_folder: Callable[[str, Sequence[str]], object] = _nothing
    """With this name, and these chats in it."""
    rename_folder: Callable[[str, str], object] = _nothing
    delete_folder: Callable[[str], object] = _nothing
    """Its chats stay."""
    search: Callable[[str], object] = _nothing
    """Empty for no search any more."""
    watch_trash: Callable[[bool], object] = _nothing
    """Whether the trash is shown, and is to be kept up to date."""
    restore_chats: Callable[[Sequence[str]], object] = _nothing
    erase_chats: Callable[[Sequence[str] | None], object] = _nothing
    """From the trash, for good; ``None`` for all that is in it."""
