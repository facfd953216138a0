"""The list of chats: which one is shown, and what the user can do with whole chats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

from app.chats.worker import Opened
from app.errors import KnownError
from app.ui import notices
from app.ui.chat.list.model import UNTITLED
from app.ui.chat.model import ChatModel
from app.ui.context import AppContext
from app.ui.shell.main_window import MainWindow

if TYPE_CHECKING:
    from app.ui.chat.printing import Printing
    from app.ui.chat.transfers import ChatTransfers


_DAY_MS = 24 * 60 * 60 * 1000


class Chats(QObject):
    """One for a main window. Chats are named by their ids."""

    def __init__(self, ctx: AppContext, window: MainWindow) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._chats = ctx.chats
        self._operations = operations = ctx.operations
        self._daily = QTimer(self, interval=_DAY_MS)
        self._daily.timeout.connect(operations.tidy)
        ctx.closing.callback(self._daily.stop)
        ctx.chats.opened.connect(self._on_opened)
        ctx.chats.current_changed.connect(self._remember)
        ctx.chats.created.connect(self._on_created)
        operations.chats_restored.connect(self._on_restored)
        operations.deletion_done.connect(window.undo_bar.offer)
        operations.undo_changed.connect(window.undo_bar.withdraw)  # what it offers is not the last one any more
        window.chat_list.begin(operations)
        self._on_opened(ctx.chats.current)

    # ------------------------------------------------------------ which chat is shown

    def begin(self) -> None:
        """Show the chat that was shown last, as soon as the store is open."""
        self._ctx.store.when_open(self._on_store_opened, self._on_store_unavailable)
        self._daily.start()

    def _on_store_opened(self, opened: Opened) -> None:
        if opened.notice:
            self._ctx.notices.show("store", notices.plain_text(opened.notice))
        if opened.may_have_copies:
            self._ctx.engine.forget()
        last = self._ctx.settings.values.last_chat_id
        self._ctx.store.ask(
            lambda store: any(chat.id == last for chat in store.chats()),
            lambda exists: self._chats.begin(last if exists else None),
        )
        self._operations.refresh()

    def _on_store_unavailable(self, error: KnownError) -> None:
        """Continue with a temporary store for this session; the files on the disk are not touched."""
        self._ctx.store.use_temporary()
        self._ctx.notices.show("store", notices.chats_unavailable(str(error)))
        self._ctx.settings.values.last_chat_id = None
        self._chats.save_again()
        self._chats.begin(None)
        self._operations.refresh()

    @Slot(object)
    def _on_opened(self, model: ChatModel) -> None:
        if not model.is_temporary:
            model.stored.connect(self._operations.refresh)

    @Slot(object)
    def _on_created(self, model: ChatModel) -> None:
        if model is self._chats.current:
            self._remember(model)

    @Slot(object)
    def _remember(self, model: ChatModel) -> None:
        chat_id = None if model.is_new or model.is_temporary else model.id
        self._window.chat_list.set_current(chat_id)
        self._ctx.settings.values.last_chat_id = chat_id
        self._ctx.settings.save_soon()
        self._ctx.actions.refresh()

    @Slot(object, object)
    def _on_restored(self, _chat_ids: list[str], shown: str | None) -> None:
        if shown is not None:
            self._chats.open(shown)

    # ------------------------------------------------------------ what is done with chats

    @cached_property
    def _transfers(self) -> ChatTransfers:
        """Made when it is first wanted, as what follows is."""
        from app.ui.chat.transfers import ChatTransfers

        transfers = ChatTransfers(self._ctx.store, self)
        transfers.chats_added.connect(self._operations.refresh)
        self._ctx.closing.callback(transfers.close)
        return transfers

    @cached_property
    def _printing(self) -> Printing:
        from app.ui.chat.printing import Printing

        printing = Printing(self)
        self._ctx.closing.callback(printing.close)
        return printing

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
        from app.ui.chat.transfers import ImportDialog

        dialog = ImportDialog(self._transfers, self._window)
        dialog.shown_requested.connect(self._show_imported)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()
        if paths:
            dialog.read(paths)

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
        from app.ui.chat.transfers import ExportDialog

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
        self._ctx.notices.show("export", notices.exported(path.name))

    def _tell(self, error: KnownError) -> None:
        self._ctx.notices.show("export", notices.plain_text(str(error)))

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
