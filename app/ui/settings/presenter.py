"""File → Settings…: the window, and what connects it with what it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QSize, Qt, QTimer, Slot
from PySide6.QtWidgets import QApplication, QWidget

from app.errors import KnownError
from app.models.hub.tokens import TokenPlace
from app.models.text import printable
from app.settings import Settings
from app.ui.models.library_service import models_folder
from app.ui.models.window import ModelsWindow
from app.ui.server.control import ServerControl
from app.ui.settings import general_page
from app.ui.settings.general_page import GeneralPage
from app.ui.settings.models_page import ModelsPage
from app.ui.settings.network_page import NetworkPage, TokenDialog
from app.ui.settings.server_page import ServerPage
from app.ui.settings.server_presenter import ServerPagePresenter
from app.ui.widgets import theme
from app.ui.widgets.controls import scrolling
from app.ui.widgets.questions import ask, choose_folder
from app.ui.widgets.tabbed_window import TabbedWindow

TRAFFIC_INTERVAL_MS = 1000
_TOKEN_PLACES: dict[TokenPlace, str] = {
    "nowhere": "No token. Gated repositories need one.",
    "keyring": "A token is stored in the system's keyring.",
    "memory": "The token is kept in memory until Slipstream closes, because this system has no keyring to store it in.",
    "environment": "The token in the variable HF_TOKEN is used.",
}


class SettingsWindow(TabbedWindow):
    """What holds for the whole app. Everything takes effect at once.

    Attributes:
        general, models, network, server: The pages.
    """

    def __init__(self, models: ModelsPage) -> None:
        super().__init__("Settings", first_size=QSize(640, 720), minimum_size=QSize(440, 360))
        self.general = GeneralPage()
        self.models = models
        self.network = NetworkPage()
        self.server = ServerPage()
        self.tabs.addTab(scrolling(self.general), "General")
        self.tabs.addTab(scrolling(self.models), "Models")
        self.tabs.addTab(scrolling(self.network), "Network")
        self.tabs.addTab(scrolling(self.server), "API server")


class SettingsPresenter(QObject):
    """Shows the settings and carries out changes, at once.

    Attributes:
        window: What shows them.
    """

    def __init__(
        self,
        values: Settings,
        models: ModelsWindow,
        server: ServerControl,
        save_soon: Callable[[], object],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._values = values
        self._models = models
        self._library = models.service
        self._hub = models.hub
        self._save_soon = save_soon
        self._timer = QTimer(self, interval=TRAFFIC_INTERVAL_MS)
        self._timer.timeout.connect(self._refresh_traffic)
        self._page = ModelsPage(self._on_folder_added, self._on_folder_removed)
        self.window = SettingsWindow(self._page)
        self._server = ServerPagePresenter(self.window.server, server, values, save_soon, self)
        self._connect()

    def _connect(self) -> None:
        page, network = self._page, self.window.network
        self.window.general.changed.connect(self._on_general_changed)
        # It also changes from the menu.
        theme.follow_zoom(self, lambda: self.window.general.show_settings(self._values))
        page.change.clicked.connect(lambda: self._choose("Choose the models folder", self._on_folder_chosen))
        page.reveal.clicked.connect(lambda: self._library.reveal(models_folder(self._values)))
        page.add.clicked.connect(lambda: self._choose("Choose a folder with models", self._on_folder_added))
        network.changed.connect(self._on_network_changed)
        network.enter_token.clicked.connect(self.ask_for_token)
        network.remove_token.clicked.connect(lambda: self._hub.set_token(None, self._show_token, self._on_token_failed))

    def _choose(self, title: str, chosen: Callable[[str], None]) -> None:
        choose_folder(self._page, title, str(models_folder(self._values)), chosen)

    def show_general(self) -> None:
        """Show the page about the window's look."""
        self._show(self.window.general)

    def show_models(self) -> None:
        """Show the page with the folders."""
        self._show(self._page)

    def show_network(self) -> None:
        self._show(self.window.network)

    def show_server(self) -> None:
        """Show the page about other programs."""
        self._show(self.window.server)

    def _show(self, page: QWidget) -> None:
        self.window.show_tab(page)
        self._refresh_folders()
        self.window.general.show_settings(self._values)
        self.window.network.show_settings(self._values)
        self.window.network.show_endpoint_problem(self._hub.endpoint_problem())
        self._hub.token_place(self._show_token)
        self._server.show()
        self._refresh_traffic()
        self._timer.start()

    # ------------------------------------------------------------ general

    @Slot()
    def _on_general_changed(self) -> None:
        for key, value in self.window.general.values().items():
            setattr(self._values, key, value)
        general_page.apply(self._values)
        self._save_soon()

    # ------------------------------------------------------------ folders

    def _refresh_folders(self) -> None:
        page = self._page
        page.show_folder(str(models_folder(self._values)))
        page.show_extra_folders(self._values.extra_folders)
        known = {Path(folder) for folder in self._values.extra_folders}
        self._library.find(lambda found: page.show_found([one for one in found if one.path not in known]))

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
        self._save_soon()
        self._models.apply_folders()
        self._refresh_folders()

    @Slot(str)
    def _on_folder_chosen(self, folder: str) -> None:
        new, old = Path(folder), models_folder(self._values)
        if new == old:
            return
        if old.is_relative_to(new):  # the scan of the new folder finds the old one's models
            self._use_folder(new)
        else:
            self._library.compute(
                lambda: _has_files(old), lambda has: self._ask_about(old, new) if has else self._use_folder(new)
            )

    def _ask_about(self, old: Path, new: Path) -> None:
        ask(
            self.window,
            "Models folder",
            f"There are models in {printable(str(old), 200)}, and they stay there. Keep them in your library? "
            "Slipstream then looks in that folder, too, but no longer changes or deletes anything in it.",
            safe={
                "Keep them in the library": lambda: self._use_folder(new, old),
                "Leave them out": lambda: self._use_folder(new),
            },
        )

    def _use_folder(self, folder: Path, *others: Path) -> None:
        """From now on models are stored in ``folder``; ``others`` are looked in, too."""
        self._values.models_folder = str(folder)
        extra = [*self._values.extra_folders, *map(str, others)]
        self._values.extra_folders = [one for one in dict.fromkeys(extra) if Path(one) != folder]
        self._folders_changed()

    # ------------------------------------------------------------ network

    @Slot()
    def _on_network_changed(self) -> None:
        for key, value in self.window.network.values().items():
            setattr(self._values, key, value)
        self._hub.apply_settings()
        self.window.network.show_endpoint_problem(self._hub.endpoint_problem())
        self._models.downloads.apply_settings()
        self._save_soon()

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

    def _show_token(self, place: TokenPlace) -> None:
        self.window.network.show_token(place in ("keyring", "memory"), _TOKEN_PLACES[place])

    def _on_token_failed(self, error: KnownError) -> None:
        if not self.window.isVisible():
            self.show_network()

        def show(place: TokenPlace) -> None:
            self._show_token(place)
            self.window.network.show_token_problem(str(error))

        self._hub.token_place(show)

    @Slot()
    def _refresh_traffic(self) -> None:
        if not self.window.isVisible():
            self._timer.stop()
            return
        self.window.network.traffic.show_rows(self._hub.network.traffic())


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
