"""How the window reads and writes what is stored: chats through the thread that owns their store, each open chat in
order; presets in a lane of their own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.chats.model import Attachment, StoredMessage, calls_to_json, to_json
from app.chats.presets import Presets
from app.chats.store import ChatStore, new_id
from app.chats.worker import ChatWorker, Opened
from app.system import Canceled, KnownError
from app.ui import notices
from app.ui.chat.footer import figures_of
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
        """Run ``function`` on the store, then ``done`` or ``failed`` in this thread; without ``failed`` the user is
        told. Does nothing after `close`: the last answers may still lead to questions."""
        if not self._is_closed:
            self._results.when_done(self._worker.submit(function), done, failed or self.tell)

    def wait_for(self, function: Callable[[ChatStore], T]) -> T:
        """For tasks in other threads: the result of ``function`` on the store. Raises `Canceled` after `close`."""
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
        """Close the store. Returns when everything asked so far is done or the disk doesn't answer; without ``wait`` at
        once."""
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
        """Have the store do this after everything before; ``done`` is called when that was tried, well or badly. It
        takes the place of the write before it that ``replaces`` names, if that hasn't begun."""
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
            self.save_now(live)

    def save_now(self, live: LiveAnswer) -> None:
        """Save the answer so far."""
        assert live.message is not None
        self._intervals = 0
        message_id, tokens = live.message.id, live.stored_tokens()
        text, packed, thinking = live.text(), live.packed(), live.thinking()
        calls, images = tuple(live.calls), tuple(live.attachments)
        self.write(
            lambda store: store.update_answer(message_id, text, packed, tokens, thinking, calls, images),
            replaces="answer",
        )


class StoredPresets(QObject):
    """One for a window. ``presets``: to be asked; changed by `change` alone. Signal ``changed``: the presets, or which
    are the default, are others now."""

    changed = Signal()

    def __init__(self, presets: Presets, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.presets = presets
        self._notice_list = notice_list
        self._lane = Lane(self, "presets")
        if presets.notice:
            notice_list.show("presets", notices.plain_text(presets.notice))

    def change(self, function: Callable[[Presets], T], done: Callable[[T], object] | None = None) -> None:
        """Run ``function`` on the presets, or with a preset's file, then ``done`` in this thread; one at a time.
        Failures are shown as a notice."""

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


# What the user writes: what a chat's composer contains, kept in the store so that nothing typed is ever lost; the
# question it becomes; another wording of an answer.

INTERVAL_MS = 500


def joined(first: str, second: str) -> str:
    """Both texts, one below the other; only one of them if it begins or ends with the other."""
    if not second.strip() or first == second or first.endswith(f"\n{second}"):
        return first
    return second if not first.strip() or second.startswith(first) else f"{first}\n{second}"


class UnsentMessage(QObject):
    """One for each open chat.

    Attributes:
        key: The id of the chat under which it is stored; ``None`` while the chat doesn't exist yet.
        text: As it is now.
        attachments: So are these.
        reading: Names of files that are still being read, to be attached.
        is_known: Whether what is stored has been read. Until then nothing is saved, so that nothing is overwritten.

    Signals:
        typed: The text is a different one.
        replaced: So it is, and it wasn't typed: the composer has to show it.
        attachments_changed: Others are attached.
    """

    typed = Signal()
    replaced = Signal(str)
    attachments_changed = Signal()

    def __init__(self, writer: ChatWriter, key: str | None, parent: QObject, *, is_known: bool) -> None:
        super().__init__(parent)
        self.key = key
        self.text = ""
        self.attachments: tuple[Attachment, ...] = ()
        self.reading: dict[int, str] = {}
        self._begun = 0
        self.is_known = is_known
        self._writer = writer
        self._timer = QTimer(self, interval=INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self.save)

    def type(self, text: str) -> None:
        """The user typed this; it is saved a moment later."""
        if text != self.text:
            self.text = text
            self._timer.start()
            self.typed.emit()

    def replace(self, text: str) -> None:
        """Put this into the composer."""
        self.type(text)
        self.replaced.emit(text)

    def attach(self, attachments: Sequence[Attachment]) -> None:
        """Let these go with the message, in the place of those that did."""
        if tuple(attachments) != self.attachments:
            self.attachments = tuple(attachments)
            self._save_attachments()
            self.attachments_changed.emit()

    def begin_reading(self, name: str) -> int:
        """A file of this name is being read. Returns its number."""
        self._begun += 1
        self.reading[self._begun] = name
        self.attachments_changed.emit()
        return self._begun

    def end_reading(self, number: int) -> bool:
        """It was read, or removed by the user. Returns whether it was still wanted."""
        was_wanted = self.reading.pop(number, None) is not None
        if was_wanted:
            self.attachments_changed.emit()
        return was_wanted

    def take(self) -> tuple[str, tuple[Attachment, ...]]:
        """Remove the message, which will be stored elsewhere. Returns its text and attachments."""
        taken = self.text, self.attachments
        self.text, self.attachments = "", ()
        self._timer.stop()
        if taken[1]:
            self.attachments_changed.emit()
        return taken

    def give_back(self, text: str, attachments: Sequence[Attachment]) -> None:
        """Put a message that wasn't sent before what was written since."""
        self.attach([*attachments, *self.attachments])
        self.replace(joined(text, self.text))

    def add_stored(self, stored: str, attachments: Sequence[Attachment]) -> None:
        """What is stored has been read; keep it together with what was written in the meantime."""
        self.is_known = True
        typed, self.text = self.text, stored
        self.replace(joined(stored, typed))
        if self.text != stored:
            self.save()  # another chat may be shown by now
        added = [one for one in self.attachments if one not in attachments]
        self.attachments = (*attachments, *added)
        if added:
            self._save_attachments()
        self.attachments_changed.emit()

    @Slot()
    def save(self) -> None:
        """Save it now."""
        self._timer.stop()
        if self.is_known:
            key, text = self.key, self.text
            self._writer.write(lambda store: store.set_unsent(key, text), replaces="unsent")

    def _save_attachments(self) -> None:
        if self.is_known:
            key, attachments = self.key, self.attachments
            self._writer.write(lambda store: store.set_unsent_attachments(key, attachments), replaces="unsent files")

    def question_writer(
        self, question: StoredMessage, *, first_settings: str | None, is_sent: bool
    ) -> Callable[[ChatStore], None]:
        """Returns what stores a question, and the rest of the composer if it came from there (``is_sent``).
        ``first_settings``: those of a new chat that begins with it; ``None``: the store has the chat."""
        chat_id, is_first = question.chat_id, first_settings is not None
        text, attachments, knows_unsent = self.text, self.attachments, self.is_known

        def write(store: ChatStore) -> None:
            with store.together():  # a kill in between would leave the text in both places
                if first_settings is not None:
                    store.create_chat(chat_id=chat_id, settings=first_settings)
                store.add_message(question)
                if is_sent and knows_unsent:
                    for one in (None, chat_id) if is_first else (chat_id,):
                        store.set_unsent(one, text if one else "")
                        if question.attachments:
                            store.set_unsent_attachments(one, attachments if one else ())

        return write

    def save_if_changed(self) -> None:
        """Save it now, unless that has been done."""
        if self._timer.isActive():
            self.save()

    def is_saved(self) -> bool:
        """Whether `ChatWriter` was given the text as it is now."""
        is_stored = self.is_known or not (self.text or self.attachments)
        return is_stored and not self.reading and not self._timer.isActive()

    def finish(self, not_sent: str, attachments: Sequence[Attachment] = ()) -> None:
        """The window closes. Save the message together with one that was to be sent but wasn't."""
        typed = joined(not_sent, self.text)
        if self.is_known and not not_sent:
            self.save_if_changed()
        elif typed:
            key = self.key
            self._writer.write(lambda store: store.set_unsent(key, joined(store.unsent(key), typed)))
        added = [*attachments, *(() if self.is_known else self.attachments)]
        if added:
            key = self.key
            self._writer.write(
                lambda store: store.set_unsent_attachments(key, [*store.unsent_attachments(key), *added])
            )


def new_question(
    chat_id: str,
    text: str,
    attachments: tuple[Attachment, ...],
    before: Sequence[StoredMessage],
    in_place_of: StoredMessage | None = None,
) -> StoredMessage:
    """A message of the user behind ``before``; ``in_place_of``: the one that it is another version of."""
    versions = 1 if in_place_of is None else in_place_of.versions + 1
    return StoredMessage(
        *(new_id(), chat_id, before[-1].id if before else None, "user", text, "complete", time.time()),
        version=versions,
        versions=versions,
        attachments=attachments,
    )


def _shared(a: str, b: str) -> int:
    """The length of the beginning that both share."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(a, b, strict=False)))


def edited_answer(old: StoredMessage, text: str) -> StoredMessage:
    """The same answer in the user's wording, as its newest version. Its calls stay between the same words."""
    same = _shared(old.text, text)
    end = _shared(old.text[same:][::-1], text[same:][::-1])

    def place(at: int) -> int:
        return at if at <= same else max(at + len(text) - len(old.text), len(text) - end)

    calls = [msgspec.structs.replace(call, text=place(call.text)) for call in old.calls]
    return replace(
        old,
        id=new_id(),
        text=text,
        status="complete",
        created_at=time.time(),
        seed=None,
        finish_reason=None,
        figures_json=to_json({"edited": True, "thinking_s": figures_of(old.figures).thinking_seconds}),
        provenance_json="[]",
        tokens=(),
        calls_json=calls_to_json(calls) if calls else old.calls_json,
        version=old.versions + 1,
        versions=old.versions + 1,
    )
