"""The Models and Settings windows, and their background work."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from PySide6.QtCore import QObject, QTimer, Slot

from app import system
from app.models.downloads.item import FILE_NAME, has_work
from app.ui.context import AppContext
from app.ui.models.library_service import LibraryService
from app.ui.models.proposals import Proposals
from app.ui.server.control import ServerControl
from app.ui.shell.main_window import MainWindow
from app.ui.widgets.tasks import Lane

if TYPE_CHECKING:
    from app.ui.models.window import ModelsWindow
    from app.ui.settings.window import SettingsWindow

QUIET_MS = 3000
"""Delay of the less urgent work after the start."""


_BEHIND_WINDOWS = ("app.models.downloads.queue", "app.models.hub.drafts", "app.models.library.library")


def import_models() -> None:
    """Import what the models and settings windows need, above all HTTP. Runs in another thread.

    Must not import Qt modules: PySide crashes when two threads first use its classes.
    """
    for name in _BEHIND_WINDOWS:
        import_module(name)


class OtherWindows(QObject):
    """The windows "Models" and "Settings". Their modules are imported on first use."""

    def __init__(
        self, ctx: AppContext, window: MainWindow, library: LibraryService, proposals: Proposals, server: ServerControl
    ) -> None:
        super().__init__(window)
        self._ctx = ctx
        self._window = window
        self._library = library
        self._proposals = proposals
        self._lane = Lane(self, "imports")
        self._server = server
        self._hides_starter = ctx.settings.values.starter_hidden
        self._models: ModelsWindow | None = None
        self._settings: SettingsWindow | None = None
        self._quiet = QTimer(self, singleShot=True, interval=QUIET_MS)
        self._quiet.timeout.connect(self._on_quiet)
        ctx.settings.changed.connect(self._on_settings_changed)
        ctx.closing.callback(self._lane.close)
        ctx.closing.callback(self._quiet.stop)

    def begin(self) -> None:
        """Called when the window is open; starts the less urgent work a little later."""
        self._quiet.start()

    @Slot()
    def _on_settings_changed(self) -> None:
        hides, self._hides_starter = self._hides_starter, self._ctx.settings.values.starter_hidden
        if self._models is not None and hides is not self._hides_starter:
            self._models.apply_folders()

    def models(self) -> ModelsWindow:
        """The Models window, created on first use."""
        if self._models is None:
            from app.ui.models.window import ModelsWindow

            self._models = ModelsWindow(self._ctx, self._library)
            self._models.downloads.finished.connect(lambda: self._window.transcript.introduce(proposal=""))
        return self._models

    def _with_models(self, act: Callable[[ModelsWindow], object]) -> None:
        """Call ``act`` with the Models window.

        On first use its modules are imported in another thread, because that takes long.
        """

        def imported(_: None) -> None:
            self.models()
            QTimer.singleShot(0, self, lambda: act(self.models()))  # creating it and filling it are two steps

        if self._models is None:
            self._lane.submit(import_models, imported)
        else:
            act(self._models)

    def settings(self) -> SettingsWindow:
        """The Settings window, created on first use."""
        if self._settings is None:
            from app.ui.settings.window import SettingsWindow

            self._settings = SettingsWindow(self._ctx, self.models(), self._server)
        return self._settings

    def show_library(self) -> None:
        self._with_models(lambda models: models.show_library())

    def show_recommended(self) -> None:
        self._with_models(lambda models: models.show_recommended())

    def show_settings(self, page: Literal["General", "Models", "API server", "Tools"] = "General") -> None:
        self._with_models(lambda _: self.settings().show_page(page))

    def ask_for_token(self) -> None:
        self._with_models(lambda _: self.settings().network.ask_for_token())

    # ------------------------------------------------------------ downloads

    def get_proposal(self) -> None:
        """Download the model that is proposed instead of the bundled one."""
        self._ctx.notices.remove("better")
        if (offer := self._proposals.offer) is not None:
            self._with_models(lambda models: models.get_offer(offer))

    def get_projector(self) -> None:
        """Download the loaded model's projector for images."""
        pair, model = self._ctx.loader.pair(), self._ctx.loader.seeing_model()
        if pair is not None and model is not None:
            self._ctx.notices.remove("blind")
            path = Path(pair.target.path)
            self._with_models(lambda models: models.get_projector(model, path))

    def show_downloads(self) -> None:
        self._ctx.notices.remove("download")
        self._with_models(lambda models: models.show_downloads())

    @Slot()
    def _on_quiet(self) -> None:
        self._lane.submit(lambda: has_work(system.data_dir() / FILE_NAME), self._on_downloads_known)
        self._proposals.propose()

    def _on_downloads_known(self, there_are: bool) -> None:
        if there_are:
            self._with_models(lambda _: None)  # creating it resumes them
