"""What the user can do with whole chats, from the menus and in the list of chats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.errors import KnownError
from app.ui import notices
from app.ui.chat.list.rows import UNTITLED
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.operations import ChatOperations
from app.ui.chat.writer import StoredChats
from app.ui.notices import NoticeList
from app.ui.shell.main_window import MainWindow

if TYPE_CHECKING:
    from app.ui.chat.printing import Printing
    from app.ui.chat.transfers import ChatTransfers


class ChatCommands(QObject):
    """One for a main window. Chats are named by their ids."""

    def __init__(
        self,
        window: MainWindow,
        chats: OpenChats,
        operations: ChatOperations,
        chat_store: StoredChats,
        notice_list: NoticeList,
        open_message: Callable[[str, str], object],
        parent: QObject | None = None,
    ) -> None:
        """``open_message`` gets a chat and the message of it to go to, from the results of a search."""
        super().__init__(parent)
        self._window = window
        self._chats = chats
        self._operations = operations
        self._chat_store = chat_store
        self._notice_list = notice_list
        self._to_close: list[ChatTransfers | Printing] = []
        self._connect_list(open_message)

    @cached_property
    def _transfers(self) -> ChatTransfers:
        """Made when it is first wanted, as what follows is."""
        from app.ui.chat.transfers import ChatTransfers

        transfers = ChatTransfers(self._chat_store, self)
        transfers.chats_added.connect(self._operations.refresh)
        self._to_close.append(transfers)
        return transfers

    @cached_property
    def _printing(self) -> Printing:
        from app.ui.chat.printing import Printing

        printing = Printing(self)
        self._to_close.append(printing)
        return printing

    def close(self) -> None:
        """Stop imports, exports and printing."""
        for one in self._to_close:
            one.close()

    def _connect_list(self, open_message: Callable[[str, str], object]) -> None:
        chat_list, operations = self._window.chat_list, self._operations
        chat_list.new_button.clicked.connect(self.new_chat)
        chat_list.files_dropped.connect(self._on_files_dropped)
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

    def import_chats(self, paths: Sequence[Path] = ()) -> None:
        """Add the chats of these files of other apps; without any, ask for some."""
        from app.ui.chat.import_dialog import ImportDialog

        dialog = ImportDialog(self._transfers, self._window)
        dialog.shown_requested.connect(self._show_imported)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        if paths:
            dialog.read(paths)

    @Slot(list)
    def _on_files_dropped(self, paths: Sequence[str]) -> None:
        self.import_chats([Path(path) for path in paths])

    def _show_imported(self, chat_ids: Sequence[str]) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.show_chats()
        if (folder_id := self._operations.folder_id(chat_ids[0])) is not None:
            self._window.chat_list.view.open_folder(folder_id, True)
        self._chats.open(chat_ids[0])

    def export_chats(self, chat_ids: Sequence[str]) -> None:
        """Ask as what and where to, and write them."""
        if not chat_ids:
            return
        from app.ui.chat.export_dialog import ExportDialog

        chats = [(chat_id, self._operations.title(chat_id)) for chat_id in chat_ids]
        dialog = ExportDialog(self._transfers, chats, self._window)
        dialog.exported.connect(self._on_exported)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def export_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.export_chats([self._chats.current.id])

    def export_all_chats(self) -> None:
        self.export_chats(self._operations.chat_ids())

    def print_shown_chat(self) -> None:
        if self._chats.current.is_new:
            return
        chat_id, printing = self._chats.current.id, self._printing
        title = self._operations.title(chat_id) or UNTITLED
        self._transfers.for_paper(chat_id, lambda html: printing.ask(html, title, self._window), self._tell)

    def _on_exported(self, path: Path) -> None:
        self._notice_list.show("export", notices.exported(path.name))

    def _tell(self, error: KnownError) -> None:
        self._notice_list.show("export", notices.plain_text(str(error)))

    def show_trash(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.show_trash()

    def search_chats(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.focus_search()

    def rename_chat(self) -> None:
        self._window.show_panel("chats")
        self._window.chat_list.rename_current()

    def delete_shown_chat(self) -> None:
        if not self._chats.current.is_new:
            self.delete_chats([self._chats.current.id])
