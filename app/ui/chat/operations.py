"""What can be done with whole chats and their folders: list, search, rename, move, pin, delete with undo, the
trash. No widgets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from PySide6.QtCore import QObject, Signal, Slot

from app import words
from app.chats.model import Chat, Folder, Found
from app.chats.store import ChatStore
from app.system import KnownError
from app.ui.chat.list.model import SEARCH_LIMIT, UNTITLED
from app.ui.chat.writer import StoredChats
from app.words import shortened

_LONGEST_TITLE = 60
T = TypeVar("T")
TakeBack = Callable[[Callable[[str], None]], None]
"""Takes a deletion back. If that can't be done now, it calls its argument with a reason, which may be empty; the
deletion can then be undone later."""


@dataclass(eq=False)
class _Deletion:
    """What can be undone."""

    take_back: TakeBack
    chat_ids: set[str]
    """When all of these are gone there is nothing to take back; empty where it depends on none."""
    in_trash: bool = False
    """Whether it is these chats that were deleted, and not something in them."""


class ChatOperations(QObject):
    """The list of chats and what changes it. Chats and folders are named by their ids.

    Signals:
        chats_listed: The chats, newest first, and the folders, by name.
        chats_found: What was searched for, and the chats that have it (a list of `Found`).
        trash_listed: The chats in the trash, deleted last first.
        chats_deleted: Ids of chats that are in the trash now.
        copies_unwanted: Ids of chats whose copies in the engine have to go; none: all copies.
        deletion_done: What was deleted, as a sentence; `undo` takes it back.
        chats_restored: Ids of chats that were brought back, and the one that was open when it was deleted, or ``None``.
        undo_changed: Something can be undone, or nothing any more.
    """

    chats_listed = Signal(object, object)
    chats_found = Signal(str, object)
    trash_listed = Signal(object)
    chats_deleted = Signal(object)
    copies_unwanted = Signal(object)
    deletion_done = Signal(str)
    chats_restored = Signal(object, object)
    undo_changed = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store
        self._search = ""
        self._chats: list[Chat] = []
        self._folders: list[Folder] = []
        self._deleting: set[str] = set()
        """On their way to the trash: no longer shown."""
        self._deletions: list[_Deletion] = []
        """The last one last."""
        self._is_trash_watched = False
        self._is_listing = self._is_outdated = False

    def title(self, chat_id: str | None) -> str:
        return next((chat.title for chat in self._chats if chat.id == chat_id), "")

    def folder_id(self, chat_id: str) -> str | None:
        """The folder that a listed chat is in."""
        return next((chat.folder_id for chat in self._chats if chat.id == chat_id), None)

    def chat_ids(self) -> list[str]:
        """All chats that are listed, newest first."""
        return [chat.id for chat in self._chats if chat.id not in self._deleting]

    # ------------------------------------------------------------ listing

    @Slot()
    def refresh(self) -> None:
        """List the chats again, and what else is shown of them; at most one list is on its way, and one to follow."""
        if self._is_listing:
            self._is_outdated = True
            return
        self._is_listing, self._is_outdated = True, False
        self._chat_store.ask(lambda store: (store.chats(), store.folders()), self._on_listed, self._on_not_listed)
        if self._search:
            self._find(self._search)
        if self._is_trash_watched:
            self._list_trash()

    @Slot(str)
    def search(self, text: str) -> None:
        """Find chats; with an empty text no search is kept up to date any more."""
        self._search = text.strip()
        if self._search:
            self._find(self._search)

    def watch_trash(self, watched: bool) -> None:
        """Whether to list the trash, now and after each change."""
        self._is_trash_watched = watched
        if watched:
            self._list_trash()

    def _list_trash(self) -> None:
        self._chat_store.ask(ChatStore.trash, self.trash_listed.emit)

    def _find(self, text: str) -> None:
        def found(results: list[Found]) -> None:
            if text == self._search:
                self.chats_found.emit(text, [one for one in results if one.chat.id not in self._deleting])

        # What was typed meanwhile is what counts: a search that is out of date when its turn comes is left out.
        self._chat_store.ask(lambda store: store.search(text, SEARCH_LIMIT) if text == self._search else [], found)

    def _on_listed(self, listed: tuple[list[Chat], list[Folder]]) -> None:
        self._chats, self._folders = listed
        self._tell_listed()
        self._is_listing = False
        if self._is_outdated:
            self.refresh()

    def _on_not_listed(self, error: KnownError) -> None:
        self._is_listing = False
        self._chat_store.tell(error)

    def _tell_listed(self) -> None:
        self.chats_listed.emit([chat for chat in self._chats if chat.id not in self._deleting], self._folders)

    def _change(
        self,
        change: Callable[[ChatStore], T],
        done: Callable[[T], None] | None = None,
        not_done: Callable[[], None] | None = None,
    ) -> None:
        """Change something and list the chats again, also where that failed: the list may show it as done."""

        def changed(result: T) -> None:
            if done is not None:
                done(result)
            self.refresh()

        def failed(error: KnownError) -> None:
            if not_done is not None:
                not_done()
            self._chat_store.tell(error)
            self.refresh()

        self._chat_store.ask(change, changed, failed)

    # ------------------------------------------------------------ chats and folders

    def rename(self, chat_id: str, title: str) -> None:
        self._change(lambda store: store.rename_chat(chat_id, title))

    def pin(self, chat_ids: Sequence[str], pinned: bool) -> None:
        self._change(lambda store: store.pin_chats(chat_ids, pinned))

    def move(self, chat_ids: Sequence[str], folder_id: str | None) -> None:
        """Into a folder, or with ``None`` out of theirs."""
        self._change(lambda store: store.move_chats(chat_ids, folder_id))

    def create_folder(
        self, name: str, chat_ids: Sequence[str] = (), not_done: Callable[[], None] | None = None
    ) -> None:
        """A new folder with these chats in it."""
        self._change(lambda store: store.move_chats(chat_ids, store.create_folder(name).id), not_done=not_done)

    def rename_folder(self, folder_id: str, name: str) -> None:
        self._change(lambda store: store.rename_folder(folder_id, name))

    def delete_folder(self, folder_id: str) -> None:
        """Its chats stay; `undo` makes it again."""
        name = next((folder.name for folder in self._folders if folder.id == folder_id), "")

        def delete(store: ChatStore) -> list[str]:
            inside = [chat.id for chat in [*store.chats(), *store.trash()] if chat.folder_id == folder_id]
            store.delete_folder(folder_id)
            return inside

        def deleted(inside: list[str]) -> None:
            self._add(_Deletion(lambda put_back: self.create_folder(name, inside, partial(put_back, "")), set()))
            self.deletion_done.emit(f"The folder “{shortened(name, _LONGEST_TITLE)}” was deleted. Its chats were kept.")

        self._change(delete, deleted)

    # ------------------------------------------------------------ deleting

    def delete(self, chat_ids: Collection[str], shown: str | None = None) -> None:
        """Move chats to the trash. ``shown``: the one that is open, which `undo` opens again."""
        ids = list(chat_ids)
        self._deleting.update(ids)
        self._tell_listed()
        deletion = _Deletion(lambda put_back: self.restore(ids, shown, partial(put_back, "")), set(ids), in_trash=True)
        self._add(deletion)
        titled = f"“{shortened(self.title(ids[0]) or UNTITLED, _LONGEST_TITLE)}”" if len(ids) == 1 else ""

        def deleted(is_all: bool) -> None:
            self._deleting.difference_update(ids)
            self.chats_deleted.emit(ids)
            self.copies_unwanted.emit(ids if is_all else [])
            was = "was" if len(ids) == 1 else "were"
            if deletion in self._deletions:  # else it was taken back already
                self.deletion_done.emit(f"{titled or words.count(len(ids), 'chat')} {was} moved to the trash.")
            self.refresh()

        def failed(error: KnownError) -> None:
            self._deleting.difference_update(ids)
            self._remove([deletion])
            self._chat_store.tell(error)
            self.refresh()

        self._chat_store.ask(lambda store: store.delete_chats(ids), deleted, failed)

    def offer_undo(self, take_back: TakeBack, text: str, chat_id: str) -> None:
        """Something else was deleted, such as a message of this chat; `undo` calls ``take_back``."""
        self._add(_Deletion(take_back, {chat_id}))
        self.deletion_done.emit(text)

    def can_undo(self) -> bool:
        return bool(self._deletions)

    def _add(self, deletion: _Deletion) -> None:
        self._deletions.append(deletion)
        self.undo_changed.emit()

    def _remove(self, deletions: Iterable[_Deletion]) -> None:
        if gone := [one for one in deletions if one in self._deletions]:
            self._deletions = [one for one in self._deletions if one not in gone]
            self.undo_changed.emit()

    @Slot()
    def undo(self) -> None:
        """Take back the last deletion that was not taken back yet."""
        if self._deletions:
            deletion = self._deletions.pop()
            self.undo_changed.emit()

            def put_back(text: str) -> None:
                self._add(deletion)
                if text:
                    self.deletion_done.emit(text)

            deletion.take_back(put_back)

    def forget(self, chat_ids: Collection[str]) -> None:
        """These chats are gone for good, so their deletions can't be undone."""
        self._leave_out(chat_ids, self._deletions)

    def _leave_out(self, chat_ids: Collection[str], deletions: Sequence[_Deletion]) -> None:
        """Drop these chats from these deletions."""
        concerned = [one for one in deletions if not one.chat_ids.isdisjoint(chat_ids)]
        for deletion in concerned:
            deletion.chat_ids.difference_update(chat_ids)
        self._remove([one for one in concerned if not one.chat_ids])

    def restore(
        self, chat_ids: Sequence[str], shown: str | None = None, not_done: Callable[[], None] | None = None
    ) -> None:
        """Bring chats back from the trash; nothing happens to those that were erased."""

        def restore(store: ChatStore) -> list[str]:
            there = {chat.id for chat in store.trash()}
            restored = [chat_id for chat_id in chat_ids if chat_id in there]
            store.restore_chats(restored)
            return restored

        def restored(ids: list[str]) -> None:
            self._leave_out(ids, [one for one in self._deletions if one.in_trash])
            self.chats_restored.emit(ids, shown if shown in ids else None)

        self._change(restore, restored, not_done)

    def erase(self, chat_ids: Collection[str] | None = None) -> None:
        """Erase chats from the trash, by default all that are in it."""

        def erase(store: ChatStore) -> tuple[list[str], bool]:
            erased = [chat.id for chat in store.trash() if chat_ids is None or chat.id in chat_ids]
            return erased, store.erase_deleted(erased) and bool(erased)

        def done(result: tuple[list[str], bool]) -> None:
            erased, is_all = result
            self.forget(erased)
            self.copies_unwanted.emit(erased if is_all else [])

        self._change(erase, done)

    @Slot()
    def tidy(self) -> None:
        """Erase what was in the trash for long enough; to be called once a day."""

        def done(erased: bool) -> None:
            if erased:
                self.copies_unwanted.emit([])

        self._change(ChatStore.tidy, done)

    @Slot()
    def finish_erasing(self) -> None:
        """The engine has no copies of deleted chats any more."""
        self._chat_store.ask(ChatStore.finish_erasing)
