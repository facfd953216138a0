"""Connects the Settings window with what it sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QApplication, QWidget

from app.errors import KnownError
from app.models.hub.tokens import TokenPlace
from app.models.library.folders import ModelFolder
from app.models.text import printable
from app.settings import Settings
from app.ui.models.hub_service import HubService
from app.ui.models.library_service import LibraryService, models_folder
from app.ui.models.reveal import reveal
from app.ui.models.token_dialog import TokenDialog
from app.ui.settings.models_page import FoundFolder
from app.ui.settings.network_page import NetworkChoice, TrafficRow
from app.ui.settings.window import SettingsWindow
from app.ui.widgets.questions import ask

TRAFFIC_INTERVAL_MS = 1000
_KEPT: dict[TokenPlace, str] = {
    "nowhere": "No token. Repositories that need one say so.",
    "keyring": "A token is kept in the system's keyring.",
    "memory": "A token is kept in memory until Slipstream ends: there is no keyring here to keep it in.",
    "environment": "The token in the variable HF_TOKEN is used.",
}


class SettingsPresenter(QObject):
    """Shows the settings and carries out changes, at once.

    Signals:
        network_changed: Settings of the network or of downloads are others now.
        folders_changed: The library has to look into other folders.
        folder_moved: The old and the new models folder: everything that was in it is there now.
        moving_changed: Whether the models folder is being moved.
        settings_changed: Something is to be saved.
    """

    network_changed = Signal()
    folders_changed = Signal()
    folder_moved = Signal(object, object)
    moving_changed = Signal(bool)
    settings_changed = Signal()

    def __init__(
        self,
        window: SettingsWindow,
        values: Settings,
        library: LibraryService,
        hub: HubService,
        is_downloading: Callable[[], bool],
        save: Callable[[], Future[None]],
        parent: QObject | None = None,
    ) -> None:
        """``is_downloading``: whether files are being written to the models folder; ``save`` keeps the settings now."""
        super().__init__(parent)
        self._window = window
        self._values = values
        self._library = library
        self._hub = hub
        self._is_downloading = is_downloading
        self._save = save
        self._moving: tuple[Path, Path] | None = None
        """From where to where the models are being moved."""
        self._timer = QTimer(self, interval=TRAFFIC_INTERVAL_MS)
        self._timer.timeout.connect(self._refresh_traffic)
        self._connect()

    def _connect(self) -> None:
        models, network = self._window.models, self._window.network
        models.folder_chosen.connect(self._on_folder_chosen)
        models.reveal_requested.connect(lambda: reveal(models_folder(self._values), self._library))
        models.folder_added.connect(self._on_folder_added)
        models.folder_removed.connect(self._on_folder_removed)
        models.move_cancelled.connect(self._on_move_cancelled)
        network.choice_changed.connect(self._on_network_changed)
        network.token_requested.connect(self.ask_for_token)
        network.token_removed.connect(lambda: self._hub.forget_token(self._show_token, self._on_token_failed))
        self._library.progressed.connect(self._on_progressed)

    def show_models(self) -> None:
        """Show the page with the folders."""
        self._show(self._window.models)

    def show_network(self) -> None:
        self._show(self._window.network)

    def _show(self, page: QWidget) -> None:
        self._window.show_page(page)
        self._refresh_folders()
        self._window.network.show_settings(self._values)
        self._window.network.show_endpoint_problem(self._hub.endpoint_problem())
        self._hub.token_kept(self._show_token)
        self._refresh_traffic()
        self._timer.start()

    # ------------------------------------------------------------ folders

    def _refresh_folders(self) -> None:
        page = self._window.models
        page.show_folder(str(models_folder(self._values)))
        page.show_extra_folders(self._values.extra_folders)
        self._library.find(self._show_found)

    def _show_found(self, found: list[ModelFolder]) -> None:
        known = {Path(folder) for folder in self._values.extra_folders}
        rows = [FoundFolder(str(one.path), one.kind.label) for one in found if one.path not in known]
        self._window.models.show_found(rows)

    @Slot(str)
    def _on_folder_added(self, folder: str) -> None:
        if folder not in self._values.extra_folders and Path(folder) != models_folder(self._values):
            self._values.extra_folders = [*self._values.extra_folders, folder]
            self._folders_changed()

    @Slot(str)
    def _on_folder_removed(self, folder: str) -> None:
        self._values.extra_folders = [one for one in self._values.extra_folders if one != folder]
        self._folders_changed()

    def _folders_changed(self) -> None:
        self.settings_changed.emit()
        self.folders_changed.emit()
        self._refresh_folders()

    @Slot(str)
    def _on_folder_chosen(self, folder: str) -> None:
        new, old = Path(folder), models_folder(self._values)
        if new == old:
            return
        if self._is_downloading():
            self._window.models.show_status("Pause the downloads first: they are written to this folder.")
        else:
            self._library.compute(
                lambda: _has_files(old),
                lambda has: self._ask_whether_to_move(old, new) if has else self._use_folder(new),
            )

    def _ask_whether_to_move(self, old: Path, new: Path) -> None:
        ask(
            self._window,
            "Models folder",
            f"There are models in {printable(str(old), 200)}. Move them to the new folder? If they stay, they are no "
            "longer in the library unless you add the old folder to it.",
            safe={"Move them": lambda: self._move(new)},
            lossy={"Leave them there": lambda: self._use_folder(new)},
        )

    def _move(self, new: Path) -> None:
        self._moving = models_folder(self._values), new
        self._window.models.show_status(f"Moving the models to {printable(str(new), 200)} …")
        self._window.models.show_moving(0.0)
        self.moving_changed.emit(True)
        self._library.move(new, self._save_folder, self._on_moved, self._on_move_failed)

    def _save_folder(self, folder: Path) -> Future[None]:
        self._values.models_folder = str(folder)
        return self._save()

    def _on_moved(self, left: list[Path]) -> None:
        moved, self._moving = self._moving, None
        self._window.models.show_moving(None)
        if moved is not None:
            self.folder_moved.emit(*moved)
            self._use_folder(moved[1])
        self.moving_changed.emit(False)
        if left:
            text = f"{len(left)} files could not be deleted in the old folder; they are in the new one too."
            self._window.models.show_status(text)

    def _on_move_failed(self, error: KnownError) -> None:
        self._moving = None
        self.moving_changed.emit(False)
        self._window.models.show_moving(None)
        self._window.models.show_status(str(error))

    @Slot()
    def _on_move_cancelled(self) -> None:
        if self._moving is not None:
            self._library.stop(str(self._moving[1]))

    @Slot(str, float)
    def _on_progressed(self, path: str, share: float) -> None:
        if self._moving is not None and path == str(self._moving[1]):
            self._window.models.show_moving(share)

    def _use_folder(self, folder: Path) -> None:
        self._values.models_folder = str(folder)
        self._window.models.show_status("")
        self._folders_changed()

    # ------------------------------------------------------------ network

    @Slot(object)
    def _on_network_changed(self, choice: NetworkChoice) -> None:
        values = self._values
        values.offline = choice.offline
        values.hub_endpoint = choice.hub_endpoint
        values.token_to_mirror = choice.token_to_mirror
        values.parallel_downloads = choice.parallel_downloads
        values.download_limit = choice.download_limit
        self._hub.apply_settings()
        self._window.network.show_endpoint_problem(self._hub.endpoint_problem())
        self.network_changed.emit()
        self.settings_changed.emit()

    @Slot()
    def ask_for_token(self) -> None:
        """Let the user enter the access token."""
        if self._hub.endpoint_problem():
            self.show_network()
            return
        dialog = TokenDialog(self._hub.network.endpoint, QApplication.activeWindow())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self._hub.set_token(dialog.token(), self._show_token, self._on_token_failed))
        dialog.open()

    def _show_token(self, kept: TokenPlace) -> None:
        self._window.network.show_token(kept in ("keyring", "memory"), _KEPT[kept])

    def _on_token_failed(self, error: KnownError) -> None:
        if not self._window.isVisible():
            self.show_network()

        def show(kept: TokenPlace) -> None:
            self._show_token(kept)
            self._window.network.show_token_problem(str(error))

        self._hub.token_kept(show)

    @Slot()
    def _refresh_traffic(self) -> None:
        if not self._window.isVisible():
            self._timer.stop()
            return
        rows = [
            TrafficRow(time.strftime("%H:%M:%S", time.localtime(one.at)), one.host, one.purpose, one.received)
            for one in self._hub.traffic()
        ]
        self._window.network.show_traffic(rows)


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False  # it is not there now, so nothing can be moved out of it
