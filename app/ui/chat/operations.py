"""What can be done with whole chats: list, search, rename, delete with undo, export. No widgets."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import Chat
from app.chats.store import ChatStore
from app.errors import KnownError
from app.storage.files import write_export
from app.ui.chat.stored_chats import StoredChats

UNDO_MS = 8000


class ChatOperations(QObject):
    """The list of chats and what changes it.

    Signals:
        chats_listed: The chats that match the search, newest first.
        chat_deleted: Id and title; it can be brought back until `undo_ended`.
        deletion_failed: Id of a chat that could not be deleted.
        chat_restored: Id of a chat that was brought back.
        undo_ended: The chat deleted last was brought back or can no longer be.
        deleted_for_good: A deleted chat can no longer be brought back.
        exported: The file that was written.
    """

    chats_listed = Signal(list)
    chat_deleted = Signal(str, str)
    deletion_failed = Signal(str)
    chat_restored = Signal(str)
    undo_ended = Signal()
    deleted_for_good = Signal()
    exported = Signal(object)

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store
        self._search = ""
        self._chats: list[Chat] = []
        self._deleted: str | None = None
        self._undo_timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._undo_timer.timeout.connect(self._on_undo_over)

    def title(self, chat_id: str | None) -> str:
        return next((chat.title for chat in self._chats if chat.id == chat_id), "")

    @Slot()
    def refresh(self) -> None:
        """List the chats again."""
        search = self._search
        self._chat_store.ask(
            lambda store: [one.chat for one in store.search(search)] if search.strip() else store.chats(),
            self._on_listed,
        )

    @Slot(str)
    def search(self, text: str) -> None:
        self._search = text
        self.refresh()

    @Slot(str, str)
    def rename(self, chat_id: str, title: str) -> None:
        self._chat_store.ask(lambda store: store.rename_chat(chat_id, title), lambda _: self.refresh())

    @Slot(str)
    def delete(self, chat_id: str) -> None:
        title = self.title(chat_id)

        def deleted(_: None) -> None:
            self._erase()  # only the last one can be brought back
            self._deleted = chat_id
            self._undo_timer.start()
            self.chat_deleted.emit(chat_id, title)
            self.refresh()

        def failed(error: KnownError) -> None:
            self.deletion_failed.emit(chat_id)
            self._chat_store.tell(error)
            self.refresh()

        self._chat_store.ask(lambda store: store.delete_chats([chat_id]), deleted, failed)

    @Slot()
    def undo_delete(self) -> None:
        """Bring back the chat deleted last."""
        if self._deleted is None:
            return
        chat_id, self._deleted = self._deleted, None
        self._undo_timer.stop()
        self.undo_ended.emit()

        def restored(_: None) -> None:
            self.chat_restored.emit(chat_id)
            self.refresh()

        self._chat_store.ask(lambda store: store.restore_chats([chat_id]), restored)

    def export(self, chat_id: str, path: Path) -> None:
        """Write a chat to a Markdown file."""

        def write(store: ChatStore) -> Path:
            text = store.export_markdown(chat_id)
            try:
                write_export(path, text.encode("utf-8", "replace"))
            except OSError as error:
                raise KnownError(f"The chat could not be exported: {error.strerror or error}.") from error
            return path

        self._chat_store.ask(write, self.exported.emit)

    @Slot()
    def finish_erasing(self) -> None:
        """The engine has no copies of deleted chats any more."""
        self._chat_store.ask(ChatStore.finish_erasing)

    @Slot()
    def _on_undo_over(self) -> None:
        self.undo_ended.emit()
        self._erase()

    def _erase(self) -> None:
        """The chat deleted last stays in the trash, if there is one that could be brought back."""
        chat_id, self._deleted = self._deleted, None
        if chat_id is not None:
            self.deleted_for_good.emit()

    def end_undo(self) -> None:
        """The window closes: what is deleted now stays deleted."""
        self._undo_timer.stop()
        if self._deleted is not None:
            self._on_undo_over()

    def _on_listed(self, chats: list[Chat]) -> None:
        self._chats = chats
        self.chats_listed.emit(chats)
