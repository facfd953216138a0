"""What the user can do from a menu, a button, a notice or another window, but for what is done with whole chats."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication

from app import paths
from app.models.downloads.queue_file import FILE_NAME, has_work
from app.models.starter import STARTER_NAME, starter_file
from app.settings import Pair
from app.ui.actions import Choice
from app.ui.chat.answers import SERVER
from app.ui.chat.markdown.code_headers import code_wrap
from app.ui.context import AppContext
from app.ui.engine.pair_files import PairFiles
from app.ui.engine.pair_names import recent_titles
from app.ui.models.library_service import LibraryService
from app.ui.models.proposals import Proposals
from app.ui.server.control import ServerControl
from app.ui.settings import in_use
from app.ui.shell.main_window import MainWindow
from app.ui.shell.open_models import OpenModels
from app.ui.shell.speed_presenter import SpeedPresenter
from app.ui.widgets.tabbed_window import bring_to_front
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.ui.models.window import ModelsWindow
    from app.ui.settings.window import SettingsWindow

QUIET_MS = 3000
"""How long after the start the less urgent work begins."""


_BEHIND_WINDOWS = (
    "app.models.downloads.queue",
    "app.models.hub.heads",
    "app.models.library.library",
)


def import_models() -> None:
    """Import what is behind the windows with models and settings, HTTP above all. For another thread.

    Nothing of Qt's: PySide makes a class when it is first imported or used, and crashes when two threads do that.
    """
    for name in _BEHIND_WINDOWS:
        import_module(name)


class AppCommands(QObject):
    """One for a main window; given to whatever has a button for one of these. What is behind another window is imported
    when that is first wanted.

    Attributes:
        opening: What lets the user choose another pair.

    """

    def __init__(
        self,
        ctx: AppContext,
        window: MainWindow,
        library: LibraryService,
        proposals: Proposals,
        server: ServerControl,
        speed: SpeedPresenter,
    ) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._actions = ctx.actions
        self._engine = ctx.engine
        self._pair_loader = ctx.loader
        self._chats = ctx.chats
        self._notice_list = ctx.notices
        self._library = library
        self._proposals = proposals
        self._lane = Lane(self, "imports")
        self._server = server
        self._speed = speed
        self._values = ctx.settings.values
        self._window_settings = ctx.settings
        self._models: ModelsWindow | None = None
        self._settings: SettingsWindow | None = None
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._on_quiet)
        self.opening = OpenModels(ctx, window, library)

    def begin(self) -> None:
        """The window is open; less urgent work begins a little later."""
        self._quiet.start()

    def close(self) -> None:
        """The main window is closed."""
        self._quiet.stop()
        self._lane.close()
        self._ctx.notifier.clear()

    # ------------------------------------------------------------ answers

    def stop(self) -> None:
        """Stop the answer of the chat that is shown, or else measuring."""
        if self._chats.current.state.is_busy:
            self._chats.current.stop()
        else:
            self._speed.stop()

    def ask_again(self) -> None:
        """Ask the server for the last answer again, which it didn't finish."""
        self._notice_list.remove(SERVER)
        self._chats.current.regenerate()

    # ------------------------------------------------------------ speed

    @Slot(bool)
    def show_drafted(self, shown: bool) -> None:
        """Tint drafted tokens, or not."""
        self._values.drafted_visible = shown
        self._window_settings.apply()

    def toggle_drafted(self) -> None:
        self.show_drafted(not self._values.drafted_visible)

    def toggle_wrap(self) -> None:
        code_wrap().set_on(not code_wrap().is_on)

    # ------------------------------------------------------------ pairs

    def load_recent(self, pair: Pair) -> None:
        """Load a pair that was used before, as its target was loaded last time."""
        self.load_files(in_use.pair_to_load(self._values, pair))

    def recent_choices(self) -> list[Choice]:
        """The recent pairs, newest first."""
        pairs = self._values.recent_pairs
        return [Choice(title, (pair,)) for pair, title in zip(pairs, recent_titles(pairs), strict=True)]

    @Slot(str, str)
    def load_pair(self, target: str, draft: str = "") -> None:
        """Load a target with a draft (empty: without one), with the load settings it had last time."""
        self.load_files(in_use.files_to_load(self._values, target, draft or None))

    def load_files(self, files: PairFiles) -> None:
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
        self._window_settings.apply()
        if self._models is not None:
            self._models.apply_folders()

    @Slot(str, str)
    def open_pair(self, target: str, draft: str = "") -> None:
        """Let the user choose how these files are used; ``draft`` is empty for none."""
        self.opening.open_pair(target, draft)

    # ------------------------------------------------------------ other windows

    def models(self) -> ModelsWindow:
        """The window with models and what is behind it, made now if there is none yet."""
        if self._models is None:
            from app.ui.models.window import ModelsWindow

            self._models = ModelsWindow(self._ctx, self._library)
            self._models.downloads.finished.connect(lambda: self._window.transcript.introduce(proposal=""))
        return self._models

    def _with_models(self, act: Callable[[ModelsWindow], object]) -> None:
        """Do something that needs the window with models.

        The first time, what is behind it is imported before, in another thread: it takes longer than a window may stand
        still.
        """

        def imported(_: None) -> None:
            self.models()
            QTimer.singleShot(0, self, lambda: act(self.models()))  # to make it and to fill it are two steps

        if self._models is None:
            self._lane.submit(import_models, imported)
        else:
            act(self._models)

    def settings(self) -> SettingsWindow:
        """The window with the settings, made now if there is none yet."""
        if self._settings is None:
            from app.ui.settings.window import SettingsWindow

            self._settings = SettingsWindow(self._ctx, self.models(), self._server)
        return self._settings

    def show_library(self) -> None:
        self._with_models(lambda models: models.show_library())

    def show_recommended(self) -> None:
        self._with_models(lambda models: models.show_recommended())

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
        self._with_models(lambda _: self.settings().network.ask_for_token())

    def show_shortcuts(self) -> None:
        from app.ui.shell.shortcuts import ShortcutsDialog

        ShortcutsDialog(self._actions.shortcuts(), self._window).open()

    def show_figures(self) -> None:
        from app.ui.shell.help import FiguresDialog

        FiguresDialog(self._window).open()

    def show_about(self) -> None:
        from app.ui.shell.help import AboutDialog

        AboutDialog(self._engine.hello(), self._pair_loader.remote(), self._window).open()

    def open_logs(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(paths.log_dir())))

    def copy_report(self) -> None:
        """Of the engine, which ended unexpectedly."""
        QGuiApplication.clipboard().setText(self._pair_loader.report())

    # ------------------------------------------------------------ downloads

    @Slot()
    def get_proposal(self) -> None:
        """Download the model that is proposed instead of the one that came with the app."""
        self._notice_list.remove("better")
        if (offer := self._proposals.offer) is not None:
            self._with_models(lambda models: models.get_offer(offer))

    def get_projector(self) -> None:
        """Download what the loaded model needs to see images."""
        pair, model = self._pair_loader.pair(), self._pair_loader.seeing_model()
        if pair is not None and model is not None:
            self._notice_list.remove("blind")
            path = Path(pair.target.path)
            self._with_models(lambda models: models.get_projector(model, path))

    def load_downloaded(self) -> None:
        """Load what was downloaded last."""
        self.models().downloads.load_downloaded()

    def show_downloads(self) -> None:
        self._notice_list.remove("download")
        self._with_models(lambda models: models.show_downloads())

    @Slot()
    def _on_quiet(self) -> None:
        self._lane.submit(lambda: has_work(paths.data_dir() / FILE_NAME), self._on_downloads_known)
        self._proposals.propose()

    def _on_downloads_known(self, there_are: bool) -> None:
        if there_are:
            self._with_models(lambda _: None)  # it takes them up when it is made
