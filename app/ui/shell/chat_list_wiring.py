"""Connects the list of chats with what carries out what it asks for."""

from __future__ import annotations

from collections.abc import Callable

from app.ui.chat.chat_list import ChatList
from app.ui.chat.operations import ChatOperations
from app.ui.shell.commands import AppCommands


def connect_chat_list(
    chat_list: ChatList,
    operations: ChatOperations,
    commands: AppCommands,
    open_chat: Callable[[str], object],
    open_message: Callable[[str, str], object],
) -> None:
    """``open_message`` gets a chat and the message of it to go to, from the results of a search."""
    chat_list.new_button.clicked.connect(commands.new_chat)
    operations.chats_listed.connect(chat_list.set_chats)
    operations.chats_found.connect(chat_list.set_found)
    operations.trash_listed.connect(chat_list.trash.set_chats)
    asked = chat_list.commands
    asked.open_chat = open_chat
    asked.open_message = open_message
    asked.rename_chat = operations.rename
    asked.delete_chats = commands.delete_chats
    asked.pin_chats = operations.pin
    asked.move_chats = operations.move
    asked.export_chats = commands.export_chats
    asked.create_folder = operations.create_folder
    asked.rename_folder = operations.rename_folder
    asked.delete_folder = operations.delete_folder
    asked.search = operations.search
    asked.watch_trash = operations.watch_trash
    asked.restore_chats = operations.restore
    asked.erase_chats = operations.erase
