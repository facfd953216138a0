"""How the window reaches the chat store: questions go to the thread that owns it, answers come back into this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject

from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.errors import KnownError
from app.ui.widgets.tasks import Results

T = TypeVar("T")


PATIENCE_SECONDS = 20.0
"""At the end. A backup of a large store takes some seconds."""


class StoredChats(QObject):
    """One for a window; whatever works with the chats shares it."""

    def __init__(self, worker: ChatWorker, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._worker = worker
        self._results = Results(self)
        self._is_closed = False

    def use(self, worker: ChatWorker) -> None:
        """Use another store from now on; the one before is closed."""
        self._worker.close()
        self._worker = worker

    def ask(
        self,
        function: Callable[[ChatStore], T],
        done: Callable[[T], None] | None = None,
        failed: Callable[[KnownError], None] | None = None,
    ) -> None:
        """Run ``function`` on the store, then ``done`` with its result or ``failed`` in this thread.

        Does nothing after `close`: the last answers may still lead to questions.
        """
        if not self._is_closed:
            self._results.when_done(self._worker.submit(function), done, failed)

    def close(self) -> None:
        """Close the store; returns when everything asked so far is done, or the disk does not answer."""
        self._is_closed = True
        self._worker.close(PATIENCE_SECONDS)
