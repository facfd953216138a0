"""Real parts put together for the tests of chats."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from pytestqt.qtbot import QtBot

from app.chats.model import StoredMessage
from app.chats.presets import FILE_NAME, Presets
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.client.connection import Timings
from app.protocol.answering import AnswerSettings
from app.settings import Settings, SettingsFile
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.answers import Answers
from app.ui.chat.footer import footer_of, note_of
from app.ui.chat.model import ChatModel, ChatState
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.operations import ChatOperations
from app.ui.chat.transcript import CONTEXT, Transcript
from app.ui.chat.writer import StoredChats, StoredPresets
from app.ui.context import AppContext, WindowSettings
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import LoadingMarker, PairFiles
from app.ui.engine.queue import EngineQueue
from app.ui.notices import NoticeList
from app.ui.tools.service import ToolService
from app.ui.widgets.questions import Notifier
from tests.ui.recorded_actions import Recorded

WAIT_MS = 20_000
T = TypeVar("T")


class Page:
    """What a reader sees of a transcript, line by line."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript

    def _messages(self) -> list[tuple[StoredMessage, str]]:
        """With the text as it is shown: that of an answer that is being written grows."""
        found = []
        for entry in self.transcript.column.entries:
            if isinstance(message := entry.content, StoredMessage):
                is_live = entry.is_pinned and isinstance(entry.widget, AnswerMessage)
                found.append((message, cast(AnswerMessage, entry.widget).view.content if is_live else message.text))
        return found

    @property
    def lines(self) -> list[tuple[str, str]]:
        return [(message.id, text) for message, text in self._messages()]

    def texts(self) -> list[str]:
        return [text for _, text in self.lines]

    def footers(self) -> list[str]:
        """Of the answers."""
        return [footer_of(message) for message, _ in self._messages() if message.role == "assistant"]

    def notes(self) -> list[str | None]:
        return [note_of(message) for message, _ in self._messages() if message.role == "assistant"]

    def context_start(self) -> str | None:
        """The message below the line that says where the context begins."""
        keys = [entry.key for entry in self.transcript.column.entries]
        line = next((place for place, key in enumerate(keys) if key == CONTEXT), None)
        return None if line is None else keys[line + 1]


class Rig:
    """Chats with a scripted engine in a real process, a real store and a page."""

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
        self.values = Settings()
        self.pair_loader = PairLoader(self.engine, self.notice_list, self.marker, self.values)
        self.actions = Recorded()
        self.page = Page(Transcript(self.actions))
        qtbot.addWidget(self.page.transcript)
        self.settings = AnswerSettings()
        self.queue = EngineQueue(self.engine, self.pair_loader, idle_ms=1)
        self.answers = Answers(self.queue, self.pair_loader, self.notice_list, lambda _chat, _pair: self.settings)
        self.store = StoredChats(self.worker, self.notice_list)
        self.chats = OpenChats(
            self.store,
            self.answers,
            self.notice_list,
            ChatSettings,
            self._temporary_store,
        )
        self.page.transcript.begin(self.chats)

    @cached_property
    def ctx(self) -> AppContext:
        """What a part of the window is made with."""
        settings = WindowSettings(SettingsFile(self.folder / "settings.json"), self.notice_list)
        presets = StoredPresets(Presets(self.folder / FILE_NAME), self.notice_list)
        tools = ToolService(self.folder, self.values, self.notice_list)
        closing = ExitStack()
        closing.callback(tools.close)
        closing.callback(presets.close)
        closing.callback(settings.close)
        return AppContext(
            settings=settings,
            notices=self.notice_list,
            engine=self.engine,
            loader=self.pair_loader,
            queue=self.queue,
            store=self.store,
            presets=presets,
            chats=self.chats,
            operations=ChatOperations(self.store),
            tools=tools,
            actions=self.actions,
            notifier=Notifier(),
            closing=closing,
        )

    @property
    def model(self) -> ChatModel:
        """The chat that is shown."""
        return self.chats.current

    def _temporary_store(self) -> StoredChats:
        return StoredChats(ChatWorker(Path(":memory:")), self.notice_list)

    @staticmethod
    def _engine(behavior: str, timings: Timings) -> EngineClient:
        """A server is played by the same process."""
        command = [sys.executable, "-m", "tests.ui.scripted_engine", behavior]
        return EngineClient(command, timings, for_servers=command)

    def files(self) -> PairFiles:
        return PairFiles(str(self.target), str(self.draft))

    def load(self) -> None:
        with self.qtbot.waitSignal(self.pair_loader.pair_opened, timeout=WAIT_MS):
            self.pair_loader.load(self.files())

    def connect(self, address: str = "http://far.example:8000") -> None:
        """Use a model on a server."""
        with self.qtbot.waitSignal(self.pair_loader.pair_opened, timeout=WAIT_MS):
            self.pair_loader.load(PairFiles("", server=address))

    def ask(self, text: str) -> None:
        """Send a message and wait for the end of its answer."""
        assert self.model.send(text)
        self.settle()

    def is_wanted(self) -> bool:
        """Whether any chat waits for, or is getting, an answer."""
        return bool(self.answers.open)

    def is_busy(self) -> bool:
        """Whether the chat that is shown waits for, or is getting, an answer."""
        return self.model.state.is_busy

    def begin_answer(self, text: str) -> None:
        """Send a message and wait until something of its answer is there."""
        assert self.model.send(text)
        self.qtbot.waitUntil(lambda: self.model.live is not None and bool(self.model.live.pieces), timeout=WAIT_MS)

    def open(self, chat_id: str) -> None:
        """Show a chat and wait for its messages."""
        self.chats.open(chat_id)
        self.qtbot.waitUntil(lambda: self.model.state is not ChatState.OPENING, timeout=WAIT_MS)

    def settle(self) -> None:
        """Wait until nothing of the shown chat is under way and the store has nothing left to do."""
        self.qtbot.waitUntil(lambda: self.model.state is ChatState.IDLE, timeout=WAIT_MS)
        self.qtbot.waitUntil(self.model.writer.is_idle, timeout=WAIT_MS)
        self.stored(ChatStore.chats)

    def stored(self, function: Callable[[ChatStore], T]) -> T:
        future: Future[T] = self.worker.submit(function)
        self.qtbot.waitUntil(future.done, timeout=WAIT_MS)
        return future.result()

    def close(self) -> None:
        if "ctx" in vars(self):
            self.ctx.closing.close()
        self.chats.shut_down()
        self.pair_loader.shutdown()
        self.store.close()
        self.worker.close()
        for part in (
            self.chats,
            self.answers,
            self.queue,
            self.pair_loader,
            self.notice_list,
            self.engine,
        ):
            part.deleteLater()
