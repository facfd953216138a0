"""The window "Models" with everything behind it; created when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from PySide6.QtCore import QObject, QSize, Slot

from app.models.downloads.item import Item, ItemProgress, ItemState
from app.models.hub.catalog import CatalogModel, DraftModel, Offer, Sidecar
from app.models.hub.catalog_items import places
from app.settings import Settings
from app.ui.models.commands import ModelCommands
from app.ui.models.downloads_presenter import DownloadsPresenter
from app.ui.models.hub_presenter import HubPresenter
from app.ui.models.hub_service import HubService
from app.ui.models.library_presenter import LibraryPresenter
from app.ui.models.library_service import LibraryService
from app.ui.models.library_tab import LibraryTab
from app.ui.models.recommended_tab import Whereabouts
from app.ui.widgets.tabbed_window import TabbedWindow


class ModelsWindow(TabbedWindow):
    """What is on this computer, what could be, and what is on its way.

    Attributes:
        library, recommended, search, downloads: The tabs.
    """

    def __init__(self, hub: HubPresenter, downloads: DownloadsPresenter) -> None:
        super().__init__("Models", first_size=QSize(1040, 700), minimum_size=QSize(620, 420))
        self.library = LibraryTab()
        self.recommended = hub.recommended
        self.search = hub.search
        self.downloads = downloads.tab
        self.tabs.addTab(self.library, "Library")
        self.tabs.addTab(self.recommended, "Recommended")
        self.tabs.addTab(self.search, "Search")
        self.tabs.addTab(self.downloads, "Downloads")

    def show_active_downloads(self, number: int) -> None:
        """How many downloads are on their way, on the tab."""
        self.tabs.setTabText(self.tabs.indexOf(self.downloads), f"Downloads ({number})" if number else "Downloads")


class ModelsPresenter(QObject):
    """Connects the window with library, hub and queue.

    Attributes:
        window, library, hub, downloads: The parts.
    """

    def __init__(
        self, values: Settings, library: LibraryService, commands: ModelCommands, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._commands = commands
        self.library = library
        self.hub = HubService(values, self)
        self.downloads = DownloadsPresenter(values, self.hub.network, commands, self)
        self._hub_presenter = hub = HubPresenter(
            self.hub, commands, self._whereabouts, self.get, self._show_search, self
        )
        self.window = window = ModelsWindow(hub, self.downloads)
        self._library_presenter = LibraryPresenter(window.library, library, values, commands, hub.find_drafts_for, self)
        window.library.folders.clicked.connect(commands.show_folders)
        window.library.get.clicked.connect(self.show_recommended)
        window.tabs.currentChanged.connect(self._on_tab_shown)
        self.downloads.finished.connect(self._on_finished)
        self.downloads.failed.connect(self._on_failed)
        self.downloads.active_changed.connect(window.show_active_downloads)
        self.downloads.begin()
        library.scan()

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
    def _show_search(self) -> None:
        self.window.show_tab(self.window.search)

    @Slot()
    def show_downloads(self) -> None:
        self.downloads.begin()
        self.window.show_tab(self.window.downloads)

    def close(self) -> None:
        """The main window is closed. Downloads continue when Slipstream is started again."""
        self.window.close()
        self.downloads.close()
        self.hub.close()

    # ------------------------------------------------------------ getting

    def get_offer(self, offer: Offer) -> None:
        """Download a recommended model."""
        self.show_recommended()
        self._hub_presenter.get_offer(offer)

    def get_projector(self, model: CatalogModel, path: Path) -> None:
        """Download what the file ``path`` of a recommended model needs to see images, into its folder."""
        self.show_downloads()
        self.hub.find_projector(
            model,
            path,
            lambda item: self.downloads.add(item, path.parent),
            lambda error: self._commands.tell_download_stopped(f"the projector of {model.title}", str(error)),
        )

    @Slot(object)
    def get(self, item: Item) -> None:
        """Download this, and show the progress."""
        self.downloads.add(item)
        self.show_downloads()

    @Slot(object)
    def _on_finished(self, item: Item) -> None:
        self.library.scan()
        self._commands.tell_downloaded(item.title, self.downloads.pair_of(item))

    @Slot(object)
    def _on_failed(self, progress: ItemProgress) -> None:
        self._commands.tell_download_stopped(progress.item.title, progress.message)

    # ------------------------------------------------------------ what is where

    def _whereabouts(self, offer: Offer) -> Whereabouts:
        entries = [entry for entry in self.library.entries() if entry.usable or (entry.is_head and entry.available)]
        there = [(entry.origin.repository, entry.origin.path) for entry in entries if entry.origin is not None]
        coming = [
            (file.repository, file.path)
            for one in self.downloads.progress()
            if one.state is not ItemState.DONE
            for file in one.item.files
        ]
        model = [(place.repository, place.file) for place in places(offer, metal=True)]
        match offer.accelerator:
            case DraftModel(repository=repository, file=file):
                wanted = [model, [(repository, file)]]
            case Sidecar(repository=elsewhere, file=file):
                wanted = [model, [(elsewhere or repository, file) for repository, _ in model]]
            case _:
                wanted = [model]
        missing = [one for one in wanted if not _is_among(one, there)]
        if not missing:
            return "library"
        if _is_among(missing[0], coming):  # the model, if that is missing: a draft may come for another one
            return "downloads"
        return "hub" if model in missing else "incomplete"

    # ------------------------------------------------------------ changes

    @Slot(int)
    def _on_tab_shown(self) -> None:
        tab = self.window.tabs.currentWidget()
        if tab is self.window.recommended:
            self._hub_presenter.refresh()
        elif tab is self.window.library:
            self.library.judge_again()

    def apply_folders(self) -> None:
        """The settings now name other folders with models."""
        self.downloads.apply_settings()
        self._library_presenter.scan()


def _is_among(wanted: Sequence[tuple[str, str]], files: Sequence[tuple[str, str]]) -> bool:
    """Whether one of ``files`` is a wanted one; both are repositories and paths."""
    return any(
        repository == named and fnmatchcase(path.rpartition("/")[2].lower(), file.lower())
        for named, file in wanted
        for repository, path in files
    )
