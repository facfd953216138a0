"""Imports, exports and prints chats, one after another, in a thread of its own. No widgets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, Signal

from app.chats.exporting import Export
from app.chats.formats.html_page import for_paper
from app.chats.formats.records import ChatRecord
from app.chats.importing import Import, Imported, Summary
from app.errors import KnownError
from app.helper import Helper
from app.ui.chat.writer import StoredChats
from app.ui.widgets.tasks import Lane

_PATIENCE_SECONDS = 5.0

T = TypeVar("T")
Progress = Callable[[float], None]
"""Gets the share that is done, 0 to 1."""
Failed = Callable[[KnownError], None]


class _Job:
    """A task, as whoever started it sees it."""

    def __init__(self) -> None:
        self.canceled = threading.Event()
        self.is_wanted = True
        """Whether somebody still wants to hear of it."""

    def only(self, call: Callable[[T], None]) -> Callable[[T], None]:
        """``call``, as long as it is wanted."""
        return lambda value: call(value) if self.is_wanted else None


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
        self._job = _Job()
        """The latest."""
        self._helper = Helper()
        """Renders Markdown."""

    def summarize(
        self, paths: Sequence[Path], progress: Progress, done: Callable[[Summary], None], failed: Failed
    ) -> None:
        """Say what is in files and folders."""
        job = self._begin()
        self._submit(job, self._reading(job, paths, progress).summary, done, failed)

    def import_chats(
        self,
        paths: Sequence[Path],
        folder: str,
        progress: Progress,
        done: Callable[[Imported], None],
        failed: Failed,
    ) -> None:
        """Add their chats, to ``folder`` if they bring none. If it is canceled, what was added stays."""
        job = self._begin()
        reading = self._reading(job, paths, progress)

        def run() -> Imported:
            try:
                return reading.run(
                    lambda chats: self._chat_store.wait_for(lambda store: store.add_records(chats, folder))
                )[0]
            finally:
                self._lane.post(self.chats_added.emit)

        self._submit(job, run, done, failed)

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
        job = self._begin()
        export = self._export(job, lambda count: self._tell(job, progress, count / len(chat_ids)))

        def run() -> Path:
            if path.is_dir():
                export.to_folder(chat_ids, format_name, path)
            else:
                export.to_file(chat_ids, format_name, path)
            return path

        self._submit(job, run, done, failed)

    def for_paper(self, chat_id: str, done: Callable[[str], None], failed: Failed) -> None:
        """A chat as HTML for Qt's rich text."""
        job = self._begin()
        export = self._export(job, lambda _count: None)
        self._submit(
            job,
            lambda: for_paper(self._chat_store.wait_for(lambda store: store.record(chat_id)), export.render),
            done,
            failed,
        )

    def cancel(self) -> None:
        """Stop what was started last. An import is done then; anything else has failed."""
        self._job.canceled.set()

    def leave(self) -> None:
        """Stop what was started last, and call nothing more for it."""
        self._job.is_wanted = False
        self._job.canceled.set()

    def close(self) -> None:
        """Stop what is running and accept nothing more."""
        self._job.canceled.set()
        self._helper.stop()
        self._lane.close(_PATIENCE_SECONDS)

    def _begin(self) -> _Job:
        self._job = _Job()
        return self._job

    def _submit(self, job: _Job, run: Callable[[], T], done: Callable[[T], None], failed: Failed) -> None:
        self._lane.submit(run, job.only(done), job.only(failed))

    def _tell(self, job: _Job, progress: Progress, share: float) -> None:
        """From any thread."""
        self._lane.post(lambda: job.only(progress)(share))

    def _reading(self, job: _Job, paths: Sequence[Path], progress: Progress) -> Import:
        return Import(paths, job.canceled.is_set, lambda share: self._tell(job, progress, share))

    def _export(self, job: _Job, on_progress: Callable[[int], None]) -> Export:
        def read(chat_id: str) -> ChatRecord:
            return self._chat_store.wait_for(lambda store: store.record(chat_id))

        return Export(read, self._helper, job.canceled.is_set, on_progress)
