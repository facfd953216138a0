"""The windows "Models" and "Settings" with everything behind them; made when first wanted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from fnmatch import fnmatchcase
from pathlib import Path

from PySide6.QtCore import QObject, Signal, Slot

from app import paths
from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.downloads.queue import DownloadQueue
from app.models.hub.catalog import CatalogModel, CatalogPair
from app.models.machine import Machine
from app.models.text import printable
from app.settings import Settings
from app.ui.models.downloads_presenter import DownloadsPresenter
from app.ui.models.hub_presenter import HubPresenter
from app.ui.models.hub_service import HubService
from app.ui.models.library_presenter import LibraryPresenter
from app.ui.models.library_service import LibraryService, models_folder
from app.ui.models.window import ModelsWindow
from app.ui.settings.presenter import SettingsPresenter
from app.ui.settings.window import SettingsWindow
from app.ui.shell.system_notifications import Notifier


class ModelsPresenter(QObject):
    """Connects the windows with library, hub and queue.

    Attributes:
        window, settings_window, library, hub, downloads: The parts; tests look at them.

    Signals:
        open_requested: Show this target, and this draft or an empty text, in the Open models dialog.
        pair_requested: Load this target with this draft, or an empty text.
        settings_changed: Something in the settings is to be saved.
        downloaded: The title of what is complete, and its `app.settings.Pair`.
        needs_user: The title of a download that stopped, and why.
    """

    open_requested = Signal(str, str)
    pair_requested = Signal(str, str)
    settings_changed = Signal()
    downloaded = Signal(str, object)
    needs_user = Signal(str, str)

    def __init__(
        self,
        values: Settings,
        library: LibraryService,
        machine: Callable[[], Machine],
        is_loaded: Callable[[str], bool],
        save: Callable[[], Future[None]],
        parent: QObject | None = None,
    ) -> None:
        """``machine`` is the memory as it is now; ``is_loaded`` says whether the engine has this file.

        ``save`` keeps the settings now.
        """
        super().__init__(parent)
        self._values = values
        self.window = ModelsWindow()
        self.settings_window = SettingsWindow()
        self.library = library
        self.hub = HubService(values, self)
        self.downloads = DownloadsPresenter(self.window.downloads, self._open_queue, self)
        self._library_presenter = LibraryPresenter(self.window.library, library, values, is_loaded, self)
        self._hub_presenter = HubPresenter(
            self.window.recommended, self.window.search, self.hub, machine, self._state_of_pair, self
        )
        self._settings_presenter = SettingsPresenter(
            self.settings_window, values, library, self.hub, self.downloads.is_active, save, self
        )
        self._notifier = Notifier(self)
        self._connect()
        self.downloads.begin()
        library.scan()

    def _connect(self) -> None:
        window, library, hub, downloads = self.window, self._library_presenter, self._hub_presenter, self.downloads
        library.open_requested.connect(lambda target: self.open_requested.emit(target, ""))
        library.pair_requested.connect(self.pair_requested)
        library.drafts_wanted.connect(hub.find_drafts_for)
        window.library.folders_requested.connect(self.show_folders)
        window.library.getting_requested.connect(self.show_recommended)
        window.tabs.currentChanged.connect(self._on_tab_shown)
        window.search.page.token_requested.connect(self._settings_presenter.ask_for_token)
        hub.item_wanted.connect(self.get)
        hub.search_shown.connect(lambda: window.show_tab(window.search))
        downloads.finished.connect(self._on_finished)
        downloads.failed.connect(self._on_failed)
        downloads.active_changed.connect(window.show_active_downloads)
        downloads.open_requested.connect(self._on_open_item)
        downloads.token_requested.connect(self._settings_presenter.ask_for_token)
        self._notifier.clicked.connect(self.show_downloads)
        self._settings_presenter.settings_changed.connect(self.settings_changed)
        self._settings_presenter.network_changed.connect(self._apply_settings)
        self._settings_presenter.folders_changed.connect(self._on_folders_changed)
        self._settings_presenter.folder_moved.connect(self.downloads.folder_moved)
        self._settings_presenter.moving_changed.connect(self.downloads.hold)

    # ------------------------------------------------------------ windows

    @Slot()
    def show_library(self) -> None:
        self._library_presenter.scan()
        self.window.show_tab(self.window.library)

    @Slot()
    def show_recommended(self) -> None:
        self._hub_presenter.refresh()
        self.window.show_tab(self.window.recommended)

    @Slot()
    def show_downloads(self) -> None:
        self._notifier.clear()
        self.downloads.begin()
        self.window.show_tab(self.window.downloads)

    @Slot()
    def show_folders(self) -> None:
        self._settings_presenter.show_models()

    @Slot()
    def show_settings(self) -> None:
        self._settings_presenter.show_models()

    def refresh_library(self) -> None:
        """What is known of pairs has changed."""
        self._library_presenter.refresh()

    def close(self) -> None:
        """The main window is closed. Downloads go on when Slipstream is started again."""
        self.window.close()
        self.settings_window.close()
        self._notifier.clear()
        self.downloads.close()
        self.hub.close()

    # ------------------------------------------------------------ getting

    def get_pair(self, pair: CatalogPair) -> None:
        """Download a pair of the catalogue."""
        self.show_recommended()
        self._hub_presenter.get_pair(pair)

    @Slot(object)
    def get(self, item: Item) -> None:
        """Download this, and show how it goes."""
        self.downloads.add(item)
        self.show_downloads()

    @Slot(object)
    def _on_finished(self, item: Item) -> None:
        self.library.scan()
        self._notifier.tell("Download complete", printable(item.title, 120))
        self.downloaded.emit(item.title, self.downloads.pair_of(item))

    @Slot(object)
    def _on_failed(self, progress: ItemProgress) -> None:
        self._notifier.tell("Download stopped", f"{printable(progress.item.title, 120)}: {progress.message}")
        self.needs_user.emit(progress.item.title, progress.message)

    @Slot(object)
    def _on_open_item(self, item: Item) -> None:
        pair = self.downloads.pair_of(item)
        self.open_requested.emit(pair.target, pair.draft or "")

    # ------------------------------------------------------------ what is where

    def _state_of_pair(self, pair: CatalogPair) -> str:
        if self._has(pair.target) and self._has(pair.draft):
            return "in the library"
        repositories = {one.item.target[0].repository: one.state for one in self.downloads.progress() if one.item.draft}
        state = repositories.get(pair.target.repository)
        return "" if state in (None, ItemState.DONE) else "in Downloads"

    def _has(self, model: CatalogModel) -> bool:
        return any(
            entry.usable
            and entry.origin is not None
            and entry.origin.repository == model.repository
            and fnmatchcase(Path(entry.origin.path).name.lower(), model.file.lower())
            for entry in self.library.entries()
        )

    # ------------------------------------------------------------ changes

    @Slot(int)
    def _on_tab_shown(self) -> None:
        tab = self.window.tabs.currentWidget()
        if tab is self.window.recommended:
            self._hub_presenter.refresh()
        elif tab is self.window.library:
            self.library.judge_again()

    @Slot()
    def _on_folders_changed(self) -> None:
        self._apply_settings()
        self._library_presenter.scan()

    def _apply_settings(self) -> None:
        values = self._values
        self.downloads.apply_settings(models_folder(values), values.parallel_downloads, values.download_limit)

    def _open_queue(self) -> DownloadQueue:
        values = self._values
        return DownloadQueue(
            self.hub.network,
            paths.data_dir(),
            models_folder(values),
            parallel=values.parallel_downloads,
            limit=values.download_limit,
        )
