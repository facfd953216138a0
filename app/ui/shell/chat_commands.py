"""What the user can do with whole chats, from the menus and in the list of chats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Slot

from app.ui.chat.open_chats import OpenChats
from app.ui.chat.operations import ChatOperations
from app.ui.shell.main_window import MainWindow
from app.ui.widgets.questions import ask_where_to_save, choose_folder


class ChatCommands(QObject):
    """One for a main window. Chats are named by their ids."""

    def __init__(
        self,
        window: MainWindow,
        chats: OpenChats,
        operations: ChatOperations,
        open_message: Callable[[str, str], object],
        parent: QObject | None = None,
    ) -> None:
        """``open_message`` gets a chat and the message of it to go to, from the results of a search."""
        super().__init__(parent)
        self._window = window
        self._chats = chats
        self._operations = operations
        for name, act in self._actions().items():
            window.menus.connect_action(name, act)
        window.undo_bar.undo.clicked.connect(self._operations.undo)
        self._connect_list(open_message)

    def _actions(self) -> dict[str, Callable[[], object]]:
        return {
            "new_chat": self.new_chat,
            "new_temporary_chat": self.new_temporary_chat,
            "export_chat": self._export_shown_chat,
            "search_chats": self._search_chats,
            "rename_chat": self._rename_chat,
            "delete_chat": self._delete_shown_chat,
            "undo_chat": self._operations.undo,
            "show_trash": self.show_trash,
        }

    def _connect_list(self, open_message: Callable[[str, str], object]) -> None:
        chat_list, operations = self._window.chat_list, self._operations
        chat_list.new_button.clicked.connect(self.new_chat)
        operations.chats_listed.connect(chat_list.set_chats)
        operations.chats_found.connect(chat_list.set_found)
        operations.trash_listed.connect(chat_list.set_trash)
        asked = chat_list.commands
        asked.open_chat = self._chats.open
        asked.open_message = open_message
        asked.rename_chat = operations.rename
        asked.delete_chats = self.delete_chats
        asked.pin_chats = operations.pin
        asked.move_chats = operations.move
        asked.export_chats = self.export_chats
        asked.create_folder = operations.create_folder
        asked.rename_folder = operations.rename_folder
        asked.delete_folder = operations.delete_folder
        asked.search = operations.search
        asked.watch_trash = operations.watch_trash
        asked.restore_chats = operations.restore
        asked.erase_chats = operations.erase

    @Slot()
    def new_chat(self) -> None:
        self._chats.new()
        self._window.composer.setFocus()

    def new_temporary_chat(self) -> None:
        """Show a chat that is never stored."""
        self._chats.new_temporary()
        self._window.composer.setFocus()

    def delete_chats(self, chat_ids: Sequence[str]) -> None:
        """Move chats to the trash, whichever is shown; `ChatOperations.undo` brings them back.

        They are left at once, so that nothing can be written to them while the store is at it.
        """
        shown = self._chats.current.id
        self._chats.forget(chat_ids)
        if shown in chat_ids and not self._window.chat_list.view.hasFocus():
            self._window.composer.setFocus()
        self._operations.delete(chat_ids, shown if shown in chat_ids else None)

    def export_chats(self, chat_ids: Sequence[str]) -> None:
        """Ask for a file, or for several chats a folder, and write them to it as Markdown."""
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        names = [(chat_id, file_name(self._operations.title(chat_id))) for chat_id in chat_ids]
        if len(names) == 1:
            [(chat_id, name)] = names
            ask_where_to_save(
                self._window,
                "Export chat",
                Path(documents) / name,
                "Markdown",
                lambda path: self._operations.export(chat_id, path),
            )
        elif names:
            title = f"Export {len(names):,} chats"
            choose_folder(
                self._window, title, documents, lambda folder: self._operations.export_all(names, Path(folder))
            )

    def _export_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.export_chats([self._chats.current.id])

    def show_trash(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.show_trash()

    def _search_chats(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.focus_search()

    def _rename_chat(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.rename_current()

    def _delete_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.delete_chats([self._chats.current.id])


def file_name(title: str) -> str:
    """A name for a Markdown file that every system accepts."""
    allowed = "".join(character if character.isalnum() or character in " -_" else " " for character in title)
    return f"{' '.join(allowed.split())[:60] or 'chat'}.md"
