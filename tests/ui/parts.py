"""Real parts put together for the tests of the session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage, unpack
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.client.connection import Timings
from app.protocol.messages import Piece
from app.ui.chat.footer import details_of, footer_of, note_of
from app.ui.chat.session import ChatSession
from app.ui.chat.stored_chats import StoredChats
from app.ui.engine.local_engine import LocalEngine
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import LoadingMarker, PairFiles
from app.ui.notices import NoticeList

WAIT_MS = 20_000
T = TypeVar("T")


class Page:
    """A transcript without pixels: what a reader would see, line by line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.headings: list[str] = []
        self.footers: list[str] = []
        self.notes: list[str | None] = []
        self.details: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.context_start: str | None = None
        self.busy = False
        self.ends_shown = 0

    def clear(self) -> None:
        self.lines.clear()

    def show_welcome(self) -> None:
        pass

    def add(self, message: StoredMessage) -> None:
        self.lines.append((message.id, message.text))
        if message.role == "assistant":
            self.headings.append(message.author)
            self._show_end(message)
        else:
            self.places.append((message.version, message.versions))

    def begin_answer(self, message: StoredMessage) -> None:
        self.lines.append((message.id, ""))
        self.headings.append(message.author)

    def append_pieces(self, pieces: list[Piece]) -> None:
        message_id, text = self.lines[-1]
        self.lines[-1] = (message_id, text + "".join(piece.text for piece in pieces))

    def set_prompt_progress(self, done: int, total: int) -> None:
        pass

    def finish_answer(self, message: StoredMessage) -> None:
        assert self.lines[-1] == (message.id, message.text)
        self._show_end(message)

    def _show_end(self, message: StoredMessage) -> None:
        assert "".join(piece.text for piece in unpack(message.text, message.provenance)) == message.text
        self.footers.append(footer_of(message))
        self.notes.append(note_of(message))
        self.details.append(details_of(message))
        self.places.append((message.version, message.versions))

    def remove_from(self, message_id: str) -> None:
        place = [one for one, _ in self.lines].index(message_id)
        del self.lines[place:]

    def mark_context_start(self, message_id: str | None) -> None:
        self.context_start = message_id

    def set_busy(self, busy: bool) -> None:
        self.busy = busy

    def go_to_end(self) -> None:
        self.ends_shown += 1

    def texts(self) -> list[str]:
        return [text for _, text in self.lines]


class Rig:
    """A session with a scripted engine in a real process, a real store and a page."""

    def __init__(self, qtbot: QtBot, folder: Path, behavior: str, timings: Timings | None = None) -> None:
        self.qtbot = qtbot
        self.folder = folder
        self.target = folder / "target.gguf"
        self.draft = folder / "draft.gguf"
        for path in (self.target, self.draft):
            path.write_bytes(b"GGUF")
        self.engine = self._engine(behavior, timings or Timings(quit=0.5))
        self.worker = ChatWorker(folder / "chats.sqlite")
        self.notice_list = NoticeList()
        self.marker = LoadingMarker(folder / "loading.json")
        self.pair_loader = PairLoader(self.engine, self.notice_list, self.marker)
        self.page = Page()
        chat_store = StoredChats(self.worker, self.notice_list)
        self.session = ChatSession(self.engine, self.pair_loader, chat_store, self.notice_list, self.page)

    @staticmethod
    def _engine(behavior: str, timings: Timings) -> LocalEngine:
        return LocalEngine([sys.executable, "-m", "tests.ui.scripted_engine", behavior], timings)

    def files(self) -> PairFiles:
        return PairFiles(str(self.target), str(self.draft))

    def load(self) -> None:
        with self.qtbot.waitSignal(self.pair_loader.pair_opened, timeout=WAIT_MS):
            self.pair_loader.load(self.files())

    def ask(self, text: str) -> None:
        """Send a message and wait for the end of its answer."""
        with self.qtbot.waitSignal(self.session.generation_ended, timeout=WAIT_MS):
            self.session.send(text)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing of the shown chat is under way and the store has nothing left to do."""
        self.qtbot.waitUntil(lambda: not self.session.is_busy(), timeout=WAIT_MS)
        self.stored(ChatStore.chats)

    def stored(self, function: Callable[[ChatStore], T]) -> T:
        future: Future[T] = self.worker.submit(function)
        self.qtbot.waitUntil(future.done, timeout=WAIT_MS)
        return future.result()

    def close(self) -> None:
        self.session.shutdown()
        self.pair_loader.shutdown()
        self.worker.close()
        for part in (self.session, self.pair_loader, self.notice_list, self.engine):
            part.deleteLater()
