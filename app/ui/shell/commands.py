"""What the user can do from a menu, a button, a notice or another window, but for what is done with whole chats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication

from app import paths
from app.models.downloads.queue_file import FILE_NAME, has_work
from app.models.machine_memory import MachineMemory
from app.models.starter import STARTER_NAME, starter_file
from app.models.text import printable
from app.protocol.commands import MeasurePlain
from app.settings import Pair, Settings
from app.ui import notices
from app.ui.chat.answer_queue import SERVER
from app.ui.chat.conversation import question_to_measure
from app.ui.chat.markdown.code_headers import code_wrap
from app.ui.chat.open_chats import OpenChats
from app.ui.compare.launcher import CompareLauncher
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import PairFiles
from app.ui.models.coordinator import ModelsCoordinator, import_models
from app.ui.notices import Action, NoticeList
from app.ui.server.control import ServerControl
from app.ui.settings import in_use
from app.ui.shell.main_window import MainWindow
from app.ui.shell.open_models import OpenModels
from app.ui.widgets.system_notifications import Notifier
from app.ui.widgets.tabbed_window import bring_to_front

if TYPE_CHECKING:
    from app.ui.models.presenter import ModelsPresenter
    from app.ui.settings.presenter import SettingsPresenter

QUIET_MS = 3000
"""How long after the start the less urgent work begins."""


class AppCommands(QObject):
    """One for a main window; given to whatever has a button for one of these. What is behind another window is imported
    when that is first wanted.

    Attributes:
        notifier: The notifications of the system.
        opening: What lets the user choose another pair.

    Signals:
        settings_changed: A command changed them; they are to be applied and saved.
        save_due: They were changed where nothing has to be applied.
    """

    settings_changed = Signal()
    save_due = Signal()

    def __init__(
        self,
        window: MainWindow,
        engine: EngineClient,
        pair_loader: PairLoader,
        chats: OpenChats,
        notice_list: NoticeList,
        models: ModelsCoordinator,
        compare: CompareLauncher,
        server: ServerControl,
        values: Settings,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._window = window
        self._engine = engine
        self._pair_loader = pair_loader
        self._chats = chats
        self._notice_list = notice_list
        self._coordinator = models
        self._compare = compare
        self._server = server
        self._values = values
        self._models: ModelsPresenter | None = None
        self._settings: SettingsPresenter | None = None
        self._downloaded: Pair | None = None
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._on_quiet)
        self.notifier = Notifier(self)
        self.opening = OpenModels(
            window, pair_loader, notice_list, models, values, self._load, self.settings_changed.emit, self
        )
        pair_loader.load_begun.connect(self._on_load_begun)
        self._buttons = self._notice_buttons()
        for name, act in self._actions().items():
            window.menus.connect_action(name, act)
        starter_entry = window.menus.action("load_starter")
        window.menus.menu("File").aboutToShow.connect(lambda: starter_entry.setVisible(starter_file() is not None))

    def begin(self) -> None:
        """The window is open; less urgent work begins a little later."""
        self._quiet.start()

    def close(self) -> None:
        """The main window is closed."""
        self._quiet.stop()
        self.notifier.clear()
        if self._settings is not None:
            self._settings.window.close()
        if self._models is not None:
            self._models.close()
        self.opening.close()

    def _actions(self) -> dict[str, Callable[[], object]]:
        window = self._window
        return {
            "open_models": self.opening.open_local_models,
            "open_server": self.opening.open_server,
            "load_guide": self.load_guide,
            "load_starter": self.load_starter,
            "show_library": lambda: self._with_models(lambda models: models.show_library()),
            "get_models": lambda: self._with_models(lambda models: models.show_recommended()),
            "show_settings": self.show_settings,
            "quit": window.close,
            "show_drafted": lambda: self.show_drafted(window.menus.action("show_drafted").isChecked()),
            "wrap_code": lambda: code_wrap().set_on(window.menus.action("wrap_code").isChecked()),
            "stop": self._stop,
            "regenerate": self._regenerate,
            "compare_last": lambda: self._compare.presenter().compare_last(),
            "compare_prompts": lambda: self._compare.presenter().compare_prompts(),
            "measure_plain": self.measure_plain,
            "show_shortcuts": self._show_shortcuts,
            "show_figures": self._show_figures,
            "open_logs": open_log_folder,
            "show_about": self._show_about,
        }

    # ------------------------------------------------------------ answers

    def _stop(self) -> None:
        if self._engine.state() is EngineState.MEASURING:
            self._engine.cancel()
        else:
            self._chats.current.stop()

    def _regenerate(self) -> None:
        self._chats.current.regenerate()

    def _ask_again(self) -> None:
        """Ask the server for the last answer again, which it didn't finish."""
        self._notice_list.remove(SERVER)
        self._regenerate()

    # ------------------------------------------------------------ speed

    @Slot()
    def measure_plain(self) -> None:
        """Measure the speed of the target without a draft, on the chat that is shown."""
        current = self._chats.current
        settings = self._chats.queue.settings(current.settings)
        is_unsent = self._chats.queue.consent.is_needed(current.id, current.messages)
        messages = question_to_measure([] if is_unsent else current.messages, settings.system_prompt)
        asked = MeasurePlain(
            request=0,
            messages=messages,
            sampling=settings.sampling,
            private=current.is_temporary,
            thinking=settings.thinking,
        )
        if self._pair_loader.measure_plain(asked):
            self._window.speed_panel.plain_speed.set_measuring(True)
        elif self._engine.state() is EngineState.COMPARING:
            is_trying = self._coordinator.is_trying()
            self._notice_list.show("measure", notices.busy_trying() if is_trying else notices.busy_comparing())
        elif self._engine.state() is EngineState.SERVING:
            self._notice_list.show("measure", notices.busy_serving())

    @Slot(bool)
    def show_drafted(self, shown: bool) -> None:
        """Tint drafted tokens, or not."""
        self._values.drafted_visible = shown
        self.settings_changed.emit()

    # ------------------------------------------------------------ pairs

    def machine(self) -> MachineMemory:
        """The memory as it is now; from any thread."""
        return self._coordinator.memory.machine()

    def is_loaded(self, path: str) -> bool:
        """Whether the engine has this file, or is loading it."""
        return self._coordinator.is_loaded(path)

    @Slot(int)
    def load_recent(self, place: int) -> None:
        """Load the recent pair at this place, 0 for the newest."""
        self._load(in_use.pair_to_load(self._values, self._values.recent_pairs[place]))

    @Slot(str, str)
    def load_pair(self, target: str, draft: str = "") -> None:
        """Load a target with a draft (empty: without one), with the load settings it had last time."""
        self._load(in_use.files_to_load(self._values, target, draft or None))

    def _load(self, files: PairFiles) -> None:
        self._pair_loader.load(files)
        bring_to_front(self._window)

    def load_guide(self) -> None:
        """Load the bundled pair."""
        self._pair_loader.load(in_use.guide_to_load(self._values))

    def load_starter(self) -> None:
        """Load the starter model, which is listed and offered again if it was hidden."""
        self.hide_starter(False)
        self.load_pair(str(starter_file() or STARTER_NAME))

    def hide_starter(self, hidden: bool = True) -> None:
        """Whether the starter model is neither listed nor offered."""
        self._values.starter_hidden = hidden
        self.settings_changed.emit()
        if self._models is not None:
            self._models.apply_folders()

    @Slot(str, str)
    def open_pair(self, target: str, draft: str = "") -> None:
        """Let the user choose how these files are used; ``draft`` is empty for none."""
        self.opening.open_pair(target, draft)

    # ------------------------------------------------------------ other windows

    def models(self) -> ModelsPresenter:
        """The window with models and what is behind it, made now if there is none yet."""
        if self._models is None:
            from app.ui.models.presenter import ModelsPresenter

            self._models = ModelsPresenter(self._values, self._coordinator.library(), self, self)
        return self._models

    def _with_models(self, act: Callable[[ModelsPresenter], object]) -> None:
        """Do something that needs the window with models.

        The first time, what is behind it is imported before, in another thread: it takes longer than a window may stand
        still.
        """

        def imported(_: None) -> None:
            self.models()
            QTimer.singleShot(0, self, lambda: act(self.models()))  # to make it and to fill it are two steps

        if self._models is None:
            self._coordinator.lane.submit(import_models, imported)
        else:
            act(self._models)

    def settings(self) -> SettingsPresenter:
        """The window with the settings, made now if there is none yet."""
        if self._settings is None:
            from app.ui.settings.presenter import SettingsPresenter

            self._settings = SettingsPresenter(
                self._values,
                self.models(),
                self._server,
                self.save_due.emit,
                self,
            )
        return self._settings

    @Slot()
    def show_settings(self) -> None:
        self._with_models(lambda _: self.settings().show_general())

    @Slot()
    def show_server(self) -> None:
        """Let the user choose how other programs may use the model."""
        self._with_models(lambda _: self.settings().show_server())

    @Slot()
    def show_folders(self) -> None:
        """Let the user choose the folders for models."""
        self._with_models(lambda _: self.settings().show_models())

    @Slot()
    def ask_for_token(self) -> None:
        """Let the user enter the access token."""
        self._with_models(lambda _: self.settings().ask_for_token())

    def _show_shortcuts(self) -> None:
        from app.ui.shell.shortcuts import ShortcutsDialog

        ShortcutsDialog(self._window.menus.shortcuts(), self._window).open()

    def _show_figures(self) -> None:
        from app.ui.shell.help import FiguresDialog

        FiguresDialog(self._window).open()

    def _show_about(self) -> None:
        from app.ui.shell.help import AboutDialog

        AboutDialog(self._engine.hello(), self._pair_loader.remote(), self._window).open()

    # ------------------------------------------------------------ downloads

    @Slot()
    def get_proposal(self) -> None:
        """Download the model that is proposed instead of the one that came with the app."""
        self._notice_list.remove("better")
        if (offer := self._coordinator.proposal) is not None:
            self._with_models(lambda models: models.get_offer(offer))

    def get_projector(self) -> None:
        """Download what the loaded model needs to see images."""
        pair, model = self._pair_loader.pair(), self._coordinator.seeing_model()
        if pair is not None and model is not None:
            self._notice_list.remove("blind")
            path = Path(pair.target.path)
            self._with_models(lambda models: models.get_projector(model, path))

    def tell_downloaded(self, title: str, pair: Pair) -> None:
        """This download is complete."""
        self._downloaded = pair
        self.notifier.tell("Download complete", printable(title, 120), self.models().show_downloads)
        self._window.transcript.introduce(proposal="")
        self._notice_list.remove("download")
        self._notice_list.show("downloaded", notices.downloaded(title))

    @Slot(object)
    def _on_load_begun(self, _: object) -> None:
        """The download that a notice offers to load may be what is loaded, by another way."""
        files = self._pair_loader.files()
        if self._downloaded is not None and files is not None and files.target == self._downloaded.target:
            self._notice_list.remove("downloaded")

    def tell_download_stopped(self, title: str, message: str) -> None:
        """This download has stopped, and the user has to do something about it."""
        self.notifier.tell("Download stopped", f"{printable(title, 120)}: {message}", self.models().show_downloads)
        self._notice_list.show("download", notices.download_stopped(title, message))

    def _load_downloaded(self) -> None:
        self._notice_list.remove("downloaded")
        pair, files = self._downloaded, self._pair_loader.files()
        if pair is None:
            return
        if files is not None and files.target == pair.target and not pair.draft:
            self._pair_loader.load_again()  # with what it was loaded with, and what has been put beside it
        else:
            self.load_pair(pair.target, pair.draft or "")

    def _show_downloads(self) -> None:
        self._notice_list.remove("download")
        self._with_models(lambda models: models.show_downloads())

    @Slot()
    def _on_quiet(self) -> None:
        self._coordinator.lane.submit(lambda: has_work(paths.data_dir() / FILE_NAME), self._on_downloads_known)
        self._coordinator.propose()

    def _on_downloads_known(self, there_are: bool) -> None:
        if there_are:
            self._with_models(lambda _: None)  # it takes them up when it is made

    # ------------------------------------------------------------ notices

    @Slot(Action, str)
    def on_notice(self, action: Action, subject: str) -> None:
        """Carry out the button of the notice about this subject."""
        if action in (Action.WAIT, Action.DISMISS):
            self._notice_list.remove(subject)
        else:
            self._buttons[action]()

    def connect_notice(self, action: Action, act: Callable[[], object]) -> None:
        """Have this button of notices call ``act``."""
        self._buttons[action] = act

    def _notice_buttons(self) -> dict[Action, Callable[[], object]]:
        return {
            Action.RESTART: self._pair_loader.restart,
            Action.RESTART_PLAIN: lambda: self._pair_loader.restart(with_draft=False),
            Action.RESTART_ON_CPU: lambda: self._pair_loader.restart(on_cpu=True),
            Action.COPY_REPORT: lambda: QGuiApplication.clipboard().setText(self._pair_loader.report()),
            Action.OPEN_MODELS: self.opening.open_models,
            Action.LOAD_GUIDE: self.load_guide,
            Action.LOAD_AGAIN: self._pair_loader.load_again,
            Action.LOAD_ANYWAY: self._pair_loader.load_anyway,
            Action.OPEN_LOGS: open_log_folder,
            Action.ANSWER: self._regenerate,
            Action.SAVE_AGAIN: self._chats.save_again,
            Action.MEASURE: self.measure_plain,
            Action.RAISE_CONTEXT: self.opening.open_models,
            Action.LOAD_DOWNLOADED: self._load_downloaded,
            Action.GET_PROJECTOR: self.get_projector,
            Action.GET_PROPOSED: self.get_proposal,
            Action.SHOW_DOWNLOADS: self._show_downloads,
            Action.RESTART_API_SERVER: self._server.serving.restart,
            Action.API_SERVER_SETTINGS: self.show_server,
            Action.CONNECT_AGAIN: self._pair_loader.load_again,
            Action.OPEN_SERVER: self.opening.open_server,
            Action.ENTER_KEY: lambda: self.opening.open_server(for_key=True),
            Action.SEND_CHAT: self._chats.queue.send_chat,
            Action.DO_NOT_SEND: self._chats.queue.do_not_send,
            Action.ASK_AGAIN: self._ask_again,
            Action.STOP: self._engine.cancel,
        }


def open_log_folder() -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.log_dir())))
