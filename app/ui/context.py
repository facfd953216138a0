"""What everybody in the window knows: the objects that there is one of, given to each part where it is made."""

from __future__ import annotations

import copy
import logging
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app import system
from app.chats.presets import FILE_NAME as PRESETS_FILE
from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.chats.worker import ChatWorker
from app.settings import Settings, SettingsFile
from app.system import KnownError
from app.ui import notices
from app.ui.actions import Actions
from app.ui.chat.answers import Answers
from app.ui.chat.live_answer import answer_settings
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.operations import ChatOperations
from app.ui.chat.writer import StoredChats, StoredPresets
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import LoadingMarker
from app.ui.engine.queue import EngineQueue
from app.ui.notices import NoticeList
from app.ui.tools.service import ToolService
from app.ui.widgets.questions import Notifier
from app.ui.widgets.tasks import Lane

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""Seconds to wait at exit for a disk that doesn't respond."""
SAVE_DELAY_MS = 1000


class WindowSettings(QObject):
    """The settings, and when they are written. Only the window's thread changes them; a copy is written in a lane.

    Attributes:
        values: Changed in place.

    Signals:
        changed: A value that somebody shows or uses is another one now.
        saving: They are about to be written: who has something to store with them puts it in.
    """

    changed = Signal()
    saving = Signal()

    def __init__(self, file: SettingsFile, notice_list: NoticeList, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.values = file.values
        self._file = file
        self._notice_list = notice_list
        self._newest = file.values
        self._written: Settings | None = None
        self._lane = Lane(self, "settings")
        self._last: Future[None] | None = None
        self._delay = QTimer(self, singleShot=True, interval=SAVE_DELAY_MS)
        self._delay.timeout.connect(self.save)

    @Slot()
    def save_soon(self) -> None:
        """Something was changed that nobody else has to hear of."""
        self._delay.start()

    @Slot()
    def apply(self) -> None:
        """Something was changed: everybody is told, and it is saved soon."""
        self.changed.emit()
        self.save_soon()

    @Slot()
    def save(self) -> Future[None]:
        """Write the current values, or newer ones. The future is done, or failed, when they are written."""
        self._delay.stop()
        self.saving.emit()
        self._newest = copy.deepcopy(self.values)
        self._last = self._lane.submit(self._write, None, self._on_failed)
        return self._last

    def close(self) -> None:
        """Wait, for a limited time, until everything is written; write nothing afterwards."""
        if not self._lane.close(PATIENCE_SECONDS, finish=True):
            _log.warning("the settings could not be saved in time")
        elif self._last is not None and (error := self._last.exception()) is not None:
            _log.warning("%s", error)

    def _write(self) -> None:
        """Runs in the lane. Several requests in the meantime are written once."""
        newest = self._newest
        if newest is not self._written:
            self._file.save(newest)
            self._written = newest

    def _on_failed(self, error: KnownError) -> None:
        self._notice_list.show("settings", notices.plain_text(str(error)))


@dataclass(frozen=True)
class AppContext:
    """Given to every part of the window, which takes what it needs and connects itself."""

    settings: WindowSettings
    notices: NoticeList
    engine: EngineClient
    loader: PairLoader
    queue: EngineQueue
    store: StoredChats
    presets: StoredPresets
    chats: OpenChats
    operations: ChatOperations
    tools: ToolService
    actions: Actions
    notifier: Notifier
    closing: ExitStack
    """Whoever has something to end puts it here where it is made; what was made last ends first."""


def make_context(
    file: SettingsFile, engine: EngineClient, worker: ChatWorker, actions: Actions, parent: QObject
) -> AppContext:
    """What there is one of, made in the order in which one needs the other. ``engine`` may still be starting."""
    notice_list, notifier = NoticeList(parent), Notifier(parent)
    settings = WindowSettings(file, notice_list, parent)
    presets = StoredPresets(Presets(system.data_dir() / PRESETS_FILE), notice_list, parent)
    store = StoredChats(worker, notice_list, parent)
    marker = LoadingMarker(system.data_dir() / "loading.json")
    loader = PairLoader(engine, notice_list, marker, file.values, parent)
    queue = EngineQueue(engine, loader, parent)
    tools = ToolService(system.data_dir(), settings.values, notice_list, parent)
    settings.changed.connect(tools.apply_settings)
    answers = Answers(
        queue,
        loader,
        notice_list,
        lambda chat, pair: answer_settings(chat, settings.values, pair),
        parent,
        tools=tools,
        most_calls=lambda: settings.values.most_tool_calls,
    )

    def default_settings() -> ChatSettings:
        files = loader.files()
        return presets.presets.default_for(files.preset_target() if files else "")

    def temporary_store() -> StoredChats:
        return StoredChats(ChatWorker(Path(":memory:")), notice_list)

    chats = OpenChats(store, answers, notice_list, default_settings, temporary_store, parent)
    presets.changed.connect(chats.use_defaults)
    loader.pair_changed.connect(chats.use_defaults)
    closing = ExitStack()
    # The last one ends first: answers are stored, then the engine ends, then all that is written has an end.
    for end in (
        notifier.clear,
        presets.close,
        settings.close,
        store.close,
        loader.shutdown,
        tools.close,
        settings.save,
    ):
        closing.callback(end)
    closing.callback(chats.shut_down)
    operations = ChatOperations(store, parent)
    return AppContext(
        settings,
        notice_list,
        engine,
        loader,
        queue,
        store,
        presets,
        chats,
        operations,
        tools,
        actions,
        notifier,
        closing,
    )
