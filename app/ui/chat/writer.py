"""How the window reads and writes what is stored: chats through the thread that owns their store, each open chat in
order; presets in a lane of their own."""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.presets import Presets
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker, Opened
from app.errors import Canceled, KnownError
from app.ui import notices
from app.ui.chat.live_answer import LiveAnswer
from app.ui.notices import NoticeList
from app.ui.widgets.tasks import Lane, Results

T = TypeVar("T")

PATIENCE_SECONDS = 20.0
"""At the end. A backup of a large store takes some seconds."""
_PRESETS_PATIENCE_SECONDS = 5.0
SAVE_INTERVAL_MS = 1000
TOKENS_PER_INTERVAL = 5000
"""A long answer is saved less often, as all of it is written each time: every two seconds from so many tokens on, …"""
MOST_INTERVALS = 5


class StoredChats(QObject):
    """The chat store; one for a window, and one for each temporary chat."""

    def __init__(self, worker: ChatWorker, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._worker = worker
        self._notice_list = notice_list
        self._results = Results(self)
        self._is_closed = False
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def use_temporary(self) -> None:
        """Use an empty store from now on, which is gone after `close`; the one before is closed."""
        self._worker.close()
        self._temporary = tempfile.TemporaryDirectory(prefix="slipstream-")
        self._worker = ChatWorker(Path(self._temporary.name) / "chats.sqlite")

    def when_open(self, done: Callable[[Opened], None], failed: Callable[[KnownError], None]) -> None:
        self._results.when_done(self._worker.opened, done, failed)

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
        if self._temporary is not None:
            self._temporary.cleanup()


class ChatWriter(QObject):
    """Writes what happens in an open chat, in order, and its answer from time to time while that is being written. What
    the store refuses is kept and tried again with what comes next.

    Attributes:
        failure: Why the last try to write failed; ``None`` where it did not.

    Signals:
        changed: Everything is written now, or the store refused something.
    """

    changed = Signal()

    def __init__(self, chat_store: StoredChats, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.failure: KnownError | None = None
        self._chat_store = chat_store
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[ChatStore], object], str]] = deque()
        """What was not begun, with the name of what may take its place."""
        self._is_refused = False
        """Whether the last write that was tried failed."""
        self._open = 0
        """Answers of the store that are still to come."""
        self._live: LiveAnswer | None = None
        self._intervals = 0
        """Since the answer was saved last."""
        self._timer = QTimer(self, interval=SAVE_INTERVAL_MS)
        self._timer.timeout.connect(self._save_answer)

    def is_idle(self) -> bool:
        """Whether everything was written, or refused, and nothing is being read."""
        return self._open == 0

    def is_saved(self) -> bool:
        """Whether the store has everything."""
        return self._open == 0 and not self._waiting

    def write(
        self, operation: Callable[[ChatStore], object], done: Callable[[], None] | None = None, *, replaces: str = ""
    ) -> None:
        """Have the store do this after everything before; ``done`` is called when that was tried, well or badly.

        It takes the place of the write before it that ``replaces`` names, if that has not begun.
        """
        with self._lock:
            if replaces and self._waiting and self._waiting[-1][1] == replaces:
                self._waiting.pop()
            self._waiting.append((operation, replaces))

        def tried(_result: object) -> None:
            if done is not None:
                done()

        self.read(lambda _store: None, tried, tried)

    def read(
        self, read: Callable[[ChatStore], T], done: Callable[[T], None], failed: Callable[[KnownError], None]
    ) -> None:
        """Ask the store, which is given first what it does not have yet."""

        def write_and_read(store: ChatStore) -> T:
            self._write_all(store)
            return read(store)

        def answered(result: T) -> None:
            self._open -= 1
            self.failure = None
            done(result)
            self.changed.emit()

        def refused(error: KnownError) -> None:
            self._open -= 1
            self.failure = error if self._is_refused else None  # else it was read, and could not be
            failed(error)
            self.changed.emit()

        self._open += 1
        self._chat_store.ask(write_and_read, answered, refused)

    def save_again(self) -> None:
        """Try to write what was refused."""
        if self._waiting:
            self.read(lambda _store: None, lambda _: None, lambda _error: None)

    def _write_all(self, store: ChatStore) -> None:
        """In the thread of the store: write what there is, up to the first that is refused."""
        while self._waiting:
            with self._lock:
                write = self._waiting.popleft()
            try:
                write[0](store)
            except BaseException:
                with self._lock:
                    self._waiting.appendleft(write)
                self._is_refused = True
                raise
        self._is_refused = False

    # ------------------------------------------------------------ the answer that is being written

    def begin_answer(self, live: LiveAnswer) -> None:
        """Save this one from time to time, so that little of it is lost if the app ends badly."""
        self._live, self._intervals = live, 0
        self._timer.start()

    def end_answer(self) -> None:
        self._live = None
        self._timer.stop()

    @Slot()
    def _save_answer(self) -> None:
        live = self._live
        self._intervals += 1
        if live is None or live.message is None or not live.pieces or not self.is_idle():
            return
        if self._intervals >= min(MOST_INTERVALS, 1 + len(live.pieces) // TOKENS_PER_INTERVAL):
            self._intervals = 0
            message_id, tokens = live.message.id, live.stored_tokens()
            text, packed, thinking = live.text(), live.packed(), live.thinking()
            self.write(lambda store: store.update_answer(message_id, text, packed, tokens, thinking), replaces="answer")


class StoredPresets(QObject):
    """One for a window.

    Attributes:
        presets: To be asked; changed by `change` alone.

    Signals:
        changed: The presets, or which are the default, are others now.
    """

    changed = Signal()

    def __init__(self, presets: Presets, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.presets = presets
        self._notice_list = notice_list
        self._lane = Lane(self, "presets")
        if presets.notice:
            notice_list.show("presets", notices.plain_text(presets.notice))

    def change(self, function: Callable[[Presets], T], done: Callable[[T], object] | None = None) -> None:
        """Run ``function`` on the presets, then ``done`` with its result in this thread; one at a time.

        For reading and writing a preset's file, too. A notice tells what went wrong.
        """

        def changed(result: T) -> None:
            self.changed.emit()
            if done is not None:
                done(result)

        def failed(error: KnownError) -> None:
            self.changed.emit()  # what could not be written counts until the end
            self._notice_list.show("presets", notices.plain_text(str(error)))

        self._lane.submit(lambda: function(self.presets), changed, failed)

    def close(self) -> None:
        """What was asked for is written, if the disk lets us."""
        self._lane.close(_PRESETS_PATIENCE_SECONDS, finish=True)
