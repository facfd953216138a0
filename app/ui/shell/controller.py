"""Connects the window with the engine, the chats and the settings."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot

from app import paths
from app.chats.presets import FILE_NAME as PRESETS_FILE
from app.chats.presets import Presets
from app.chats.settings import ChatSettings
from app.chats.worker import ChatWorker, Opened
from app.errors import KnownError
from app.protocol.events import PairLoaded
from app.protocol.options import Sampling
from app.settings import SettingsFile
from app.ui import notices
from app.ui.actions import Actions
from app.ui.chat.answers import Answers
from app.ui.chat.attachments import Attachments
from app.ui.chat.context_meter import ContextMeter
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.live_answer import LiveAnswer
from app.ui.chat.model import ChatModel
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.operations import ChatOperations
from app.ui.chat.settings_presenter import ChatSettingsPresenter
from app.ui.chat.writer import StoredChats, StoredPresets
from app.ui.compare.trial import PairTrial
from app.ui.context import AppContext, WindowSettings
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import LoadingMarker
from app.ui.engine.queue import EngineQueue
from app.ui.models.library_service import LibraryService
from app.ui.models.proposals import Proposals
from app.ui.notices import Notice, NoticeList
from app.ui.server.control import ServerControl
from app.ui.server.serving import Serving
from app.ui.settings import in_use
from app.ui.shell.announcer import Announcer
from app.ui.shell.chat_commands import ChatCommands
from app.ui.shell.commands import AppCommands
from app.ui.shell.edit_menu import EditMenu
from app.ui.shell.finished_answers import FinishedAnswers
from app.ui.shell.main_window import MainWindow
from app.ui.shell.message_operations import MessageOperations
from app.ui.shell.message_wiring import MessageWiring
from app.ui.shell.settings_wiring import SettingsWiring
from app.ui.shell.speed_presenter import SpeedPresenter
from app.ui.widgets.system_notifications import Notifier
from app.ui.widgets.tabbed_window import bring_to_front
from app.ui.widgets.tasks import Results

if TYPE_CHECKING:
    from app.ui.compare.window import CompareWindow

_DAY_MS = 24 * 60 * 60 * 1000


class Controller(QObject):
    """Owns the parts without widgets and connects them to those with widgets.

    Attributes:
        chats, pair_loader, operations, notice_list, compare, commands, presets: The parts.
    """

    def __init__(
        self, window: MainWindow, settings: SettingsFile, engine: EngineClient, worker: ChatWorker, actions: Actions
    ) -> None:
        super().__init__(window)
        self.window = window
        self.actions = actions
        self._settings = settings
        self.engine = engine
        self._opened = worker.opened
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._results = Results(self)
        closing = self._closing = ExitStack()
        self.notice_list = NoticeList(self)
        self._window_settings = WindowSettings(settings, self.notice_list, self)
        self.presets = StoredPresets(Presets(paths.data_dir() / PRESETS_FILE), self.notice_list, self)
        closing.callback(self._remove_temporary)
        closing.callback(self.presets.close)
        closing.callback(self._window_settings.close)
        self._chat_store = StoredChats(worker, self.notice_list, self)
        closing.callback(self._chat_store.close)
        marker = LoadingMarker(paths.data_dir() / "loading.json")
        self.pair_loader = PairLoader(engine, self.notice_list, marker, settings.values, self)
        closing.callback(self.pair_loader.shutdown)
        closing.callback(self._window_settings.save)
        self.queue = EngineQueue(engine, self.pair_loader, self)
        self.answers = Answers(self.queue, self.pair_loader, self.notice_list, self._answer_settings, self)
        self.chats = OpenChats(
            self._chat_store, self.answers, self.notice_list, self._default_settings, self._temporary_chats, self
        )
        closing.callback(self.chats.shut_down)
        self.operations = ChatOperations(self._chat_store, self)
        self.ctx = ctx = AppContext(
            settings=self._window_settings,
            notices=self.notice_list,
            engine=engine,
            loader=self.pair_loader,
            queue=self.queue,
            store=self._chat_store,
            presets=self.presets,
            chats=self.chats,
            operations=self.operations,
            actions=actions,
            notifier=Notifier(self),
            closing=closing,
        )
        window.transcript.begin(self.chats)
        window.composer.begin(self.chats, engine, self.notice_list)
        self.chat_settings = ChatSettingsPresenter(
            window.settings_tab, self.chats, self.presets, self.pair_loader, self.notice_list, self
        )
        closing.callback(self.chat_settings.close)
        self.context_meter = ContextMeter(
            self.chats,
            engine,
            self.pair_loader,
            self.notice_list,
            window.composer,
            window.top_bar.show_context,
            self,
        )
        self.attachments = Attachments(
            window.composer,
            window.drop_area,
            self.chats,
            self.context_meter,
            self.pair_loader,
            actions,
            self.notice_list,
            self,
        )
        closing.callback(self.attachments.close)
        self.library = LibraryService(settings.values, self.pair_loader.planner.memory.machine, self)
        closing.callback(self.library.close)
        self.trial = PairTrial(ctx, self.library.trials, self)
        self.proposals = Proposals(ctx, window.transcript, self)
        self.settings = SettingsWiring(window, ctx, self)
        self.serving = Serving(engine, self.queue, self.pair_loader, self.notice_list, parent=self)
        self.server = ServerControl(self.serving, lambda: settings.values.server, self)
        closing.callback(self.server.close)
        window.serving_bar.follow(self.serving)
        self.speed = SpeedPresenter(window, ctx, self)
        self.zoom = self.settings.zoom
        self.commands = AppCommands(
            ctx,
            window,
            self.library,
            self.proposals,
            self.server,
            self.speed,
        )
        closing.callback(self.commands.close)
        self.message_operations = MessageOperations(
            self.chats,
            self.operations,
            engine,
            self.pair_loader,
            lambda: settings.values.recent_pairs,
            self.commands.load_recent,
            self,
        )
        self.messages = MessageWiring(window, self.chats, self.message_operations, self)
        self.chat_commands = ChatCommands(
            window,
            self.chats,
            self.operations,
            self._chat_store,
            self.notice_list,
            self.messages.open_message,
            self,
        )
        closing.callback(self.chat_commands.close)
        self.edit_menu = EditMenu(window.edit_menu, actions, self.operations, self)
        self._announcer = Announcer(window, engine, self.pair_loader, self.chats, self.operations, self.notice_list)
        self.finished_answers = FinishedAnswers(
            ctx.notifier, settings.values, self.operations.title, self._bring_to_front, self
        )
        self._daily = QTimer(self, interval=_DAY_MS)
        self._daily.timeout.connect(self.operations.tidy)
        closing.callback(self._daily.stop)
        self._connect_engine()
        self._connect_chats()
        self._connect_window()
        self.settings.apply()
        self._on_opened(self.chats.current)
        self.chats.follow(
            self._show_chat,
            state_changed=actions.refresh,
            settings_changed=self.settings.apply,
            branch_changed=actions.refresh,
        )
        actions.begin(self)

    @cached_property
    def compare(self) -> CompareWindow:
        """The Compare window, made when it is first wanted."""
        from app.ui.compare.window import CompareWindow

        return CompareWindow(self.ctx)

    # ------------------------------------------------------------ beginning and end

    def begin(self, notices_at_start: dict[str, Notice] | None = None) -> None:
        """Load the pair, open the chats; call when the window has been painted."""
        for subject, notice in (notices_at_start or {}).items():
            self.notice_list.show(subject, notice)
        in_use.follow_starter(self._settings.values)
        self.pair_loader.open_at_start(in_use.files_at_start(self._settings.values))
        self._results.when_done(self._opened, self._on_chats_opened, self._on_chats_unavailable)
        self._daily.start()
        self.server.apply()
        self.commands.begin()

    @Slot()
    def shut_down(self) -> None:
        """Store everything, end the engine, close the store; returns when that is done."""
        self._closing.close()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    # ------------------------------------------------------------ wiring

    def _connect_engine(self) -> None:
        pair_loader = self.pair_loader
        self.engine.state_changed.connect(self.actions.refresh)
        self.queue.changed.connect(self.actions.refresh)
        self.message_operations.continued_changed.connect(self.actions.refresh)
        self.operations.undo_changed.connect(self.actions.refresh)
        self.engine.forgotten.connect(self.operations.finish_erasing)
        pair_loader.pair_changed.connect(self._on_pair_changed)
        pair_loader.pair_changed.connect(self.library.note_pair)
        self.trial.tried.connect(lambda trial: self.speed.note_plain_speed(trial.plain_speed))
        self.trial.tried.connect(lambda _: self.library.judge_again())

    def _connect_chats(self) -> None:
        chats, operations = self.chats, self.operations
        chats.opened.connect(self._on_opened)
        chats.current_changed.connect(self._remember_chat)
        chats.created.connect(self._on_created)
        self.answers.begun.connect(self._on_answer_begun)
        operations.chats_restored.connect(self._on_chats_restored)
        operations.deletion_done.connect(self.window.undo_bar.offer)
        operations.copies_unwanted.connect(self.engine.forget)
        operations.undo_changed.connect(self.window.undo_bar.withdraw)  # what it offers is not the last one any more

    def _connect_window(self) -> None:
        window, commands = self.window, self.commands
        self.presets.changed.connect(self.chats.use_defaults)
        self.notice_list.changed.connect(window.notice_bar.set_notices)
        panel = window.speed_panel
        panel.head.choice_changed.connect(self.pair_loader.use_head)
        for button in panel.plain_speed.buttons:
            button.clicked.connect(self.speed.measure)
        panel.show_drafted.box.clicked.connect(commands.show_drafted)
        window.closed.connect(self.shut_down)

    # ------------------------------------------------------------ pairs and how to draft

    @Slot()
    def _on_pair_changed(self) -> None:
        self.chats.use_defaults()
        self.settings.apply()

    def hide_introduction(self) -> None:
        self.proposals.hide_introduction()
        self.window.composer.setFocus()

    # ------------------------------------------------------------ chats

    def _on_chats_opened(self, opened: Opened) -> None:
        if opened.notice:
            self.notice_list.show("store", notices.plain_text(opened.notice))
        if opened.may_have_copies:
            self.engine.forget()
        last = self._settings.values.last_chat_id
        self._chat_store.ask(
            lambda store: any(chat.id == last for chat in store.chats()),
            lambda exists: self.chats.begin(last if exists else None),
        )
        self.operations.refresh()

    def _bring_to_front(self, chat_id: str) -> None:
        """Show a chat, and the window."""
        bring_to_front(self.window)
        self.chats.open(chat_id)
        self.window.composer.setFocus()

    def _on_chats_unavailable(self, error: KnownError) -> None:
        """Continue with a temporary store for this session; the files on the disk are not touched."""
        self._temporary = tempfile.TemporaryDirectory(prefix="slipstream-")
        self._chat_store.use(ChatWorker(Path(self._temporary.name) / "chats.sqlite"))
        self.notice_list.show("store", notices.chats_unavailable(str(error)))
        self._settings.values.last_chat_id = None
        self.chats.save_again()
        self.chats.begin(None)
        self.operations.refresh()

    @Slot(object)
    def _on_opened(self, model: ChatModel) -> None:
        if not model.is_temporary:
            model.stored.connect(self.operations.refresh)

    def _show_chat(self, _model: ChatModel) -> None:
        self.actions.refresh()
        self.settings.apply()

    @Slot(object)
    def _on_created(self, model: ChatModel) -> None:
        if model is self.chats.current:
            self._remember_chat(model)

    @Slot(object)
    def _remember_chat(self, model: ChatModel) -> None:
        chat_id = None if model.is_new or model.is_temporary else model.id
        self.window.chat_list.set_current(chat_id)
        self._settings.values.last_chat_id = chat_id
        self._window_settings.save_soon()
        self.actions.refresh()

    @Slot(object)
    def _on_answer_begun(self, live: LiveAnswer) -> None:
        live.thinking_changed.connect(self.actions.refresh)
        if not live.is_private:
            live.ended.connect(lambda _figures: self.finished_answers.tell(live.message))

    def _answer_settings(self, chat: ChatSettings, pair: PairLoaded | None) -> AnswerSettings:
        return in_use.answer_settings(chat, self._settings.values, pair)

    def _sampling(self) -> Sampling:
        """How tokens are drawn in the chat that is shown."""
        return self.answers.settings(self.chats.current.settings).sampling

    def _temporary_chats(self) -> StoredChats:
        return StoredChats(ChatWorker(Path(":memory:")), self.notice_list)

    @Slot(object, object)
    def _on_chats_restored(self, _chat_ids: list[str], shown: str | None) -> None:
        if shown is not None:
            self.chats.open(shown)

    # ------------------------------------------------------------ notices, settings, dialogs

    def _save_soon(self) -> None:
        self._window_settings.save_soon()

    def _default_settings(self) -> ChatSettings:
        """The settings of a new chat."""
        files = self.pair_loader.files()
        return self.presets.presets.default_for(files.preset_target() if files else "")
