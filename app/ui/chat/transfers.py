"""Imports, exports and prints chats, one after another, in a thread of its own. No widgets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.chats.exporting import Export
from app.chats.formats.html_page import for_paper
from app.chats.formats.records import ChatRecord
from app.chats.importing import Import, Imported, Summary
from app.errors import KnownError
from app.helper import Helper
from app.ui.chat.stored_chats import StoredChats
from app.ui.widgets.tasks import Lane

_PATIENCE_SECONDS = 5.0

Progress = Callable[[float], None]
"""Gets the share that is done, 0 to 1."""
Failed = Callable[[KnownError], None]


class ChatTransfers(QObject):
    """One for a window. Every function that is passed in is called in the window's thread.

    Signals:
        chats_added: An import has added chats; it may still be running.
    """

    chats_added = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._chat_store = chat_store
        self._lane = Lane(self, "chats in and out")
        self._canceled = threading.Event()
        self._helper = Helper()
        """Renders Markdown."""

    def summarize(
        self, paths: Sequence[Path], progress: Progress, done: Callable[[Summary], None], failed: Failed
    ) -> None:
        """Say what is in files and folders."""
        reading = self._reading(paths, progress)
        self._lane.submit(reading.summary, done, failed)

    def import_chats(
        self,
        paths: Sequence[Path],
        folder: str,
        progress: Progress,
        done: Callable[[Imported], None],
        failed: Failed,
    ) -> None:
        """Add their chats, to ``folder`` if they bring none. If it is canceled, what was added stays."""
        reading = self._reading(paths, progress)

        def run() -> Imported:
            try:
                return reading.run(
                    lambda chats: self._chat_store.wait_for(lambda store: store.add_records(chats, folder))
                )[0]
            finally:
                self._lane.post(self.chats_added.emit)

        self._lane.submit(run, done, failed)

    def export(
        self,
        chat_ids: Sequence[str],
        format_name: str,
        path: Path,
        progress: Progress,
        done: Callable[[Path], None],
        failed: Failed,
    ) -> None:
        """Write chats to a file or, if ``path`` is one, into a folder, each to a file of its own."""
        canceled = self._begin()
        export = self._export(canceled, lambda count: self._lane.post(lambda: progress(count / len(chat_ids))))

        def run() -> Path:
            if path.is_dir():
                export.to_folder(chat_ids, format_name, path)
            else:
                export.to_file(chat_ids, format_name, path)
            return path

        self._lane.submit(run, done, failed)

    def for_paper(self, chat_id: str, done: Callable[[str], None], failed: Failed) -> None:
        """A chat as HTML for Qt's rich text."""
        export = self._export(self._begin(), lambda _count: None)
        self._lane.submit(
            lambda: for_paper(self._chat_store.wait_for(lambda store: store.record(chat_id)), export.render),
            done,
            failed,
        )

    def cancel(self) -> None:
        """Stop what is running. An import is done then; whatever else, has failed."""
        self._canceled.set()

    def close(self) -> None:
        """Stop what is running and accept nothing more."""
        self._canceled.set()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    def _begin(self) -> threading.Event:
        """What cancels the next task."""
        self._canceled = threading.Event()
        return self._canceled

    def _reading(self, paths: Sequence[Path], progress: Progress) -> Import:
        return Import(paths, self._begin().is_set, lambda share: self._lane.post(lambda: progress(share)))

    def _export(self, canceled: threading.Event, on_progress: Callable[[int], None]) -> Export:
        def read(chat_id: str) -> ChatRecord:
            return self._chat_store.wait_for(lambda store: store.record(chat_id))

        return Export(read, self._helper, canceled.is_set, on_progress)
