"""How the window reaches the chat store: questions go to the thread that owns it, answers come back into this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import QObject

from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.errors import Canceled, KnownError
from app.ui import notices
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import Results

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
"""At the end. A backup of a large store takes some seconds."""


class StoredChats(QObject):
    """One for a window; whatever works with the chats shares it."""

    def __init__(self, worker: ChatWorker, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._worker = worker
        self._notice_list = notice_list
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

        Without ``failed`` the user is told. Does nothing after `close`: the last answers may still lead to questions.
        """
        if not self._is_closed:
            self._results.when_done(self._worker.submit(function), done, failed or self.tell)

    def wait_for(self, function: Callable[[ChatStore], T]) -> T:
        """For tasks in other threads: run ``function`` on the store, and wait for what it returns or raises.

        Raises `Canceled` after `close`.
        """
        try:
            return self._worker.submit(function).result()
        except RuntimeError:
            if self._is_closed:
                raise Canceled from None
            raise

    def tell(self, error: KnownError) -> None:
        """Tell the user what the store could not do."""
        self._notice_list.show("store", notices.plain_text(str(error)))

    def close(self, *, wait: bool = True) -> None:
        """Close the store; returns when everything asked so far is done, or the disk does not answer.

        Without ``wait`` at once, and all that is done later.
        """
        self._is_closed = True
        self._worker.close(PATIENCE_SECONDS if wait else 0.0)
