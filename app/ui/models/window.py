"""The Models window and everything behind it; created on first use."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Slot

from app.models.hub.catalog import CatalogModel, Offer
from app.models.hub.drafts import projector_for
from app.models.library.library import LibraryEntry
from app.ui.context import AppContext
from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.library_service import LibraryService
from app.ui.models.library_tab import LibraryTab
from app.ui.models.recommended_tab import HubService, RecommendedTab
from app.ui.models.search_tab import SearchTab
from app.ui.widgets.tabbed_window import TabbedWindow


class ModelsWindow(TabbedWindow):
    """Models on this computer, models to get, and downloads. ``service``, ``hub``: the library and Hugging Face.
    ``library``, ``recommended``, ``search``, ``downloads``: the tabs.
    """

    def __init__(self, ctx: AppContext, library: LibraryService) -> None:
        super().__init__("Models", first_size=QSize(1040, 700), minimum_size=QSize(620, 420))
        self.service = library
        self.hub = HubService(ctx.settings.values, self)
        self.downloads = DownloadsTab(ctx, self.hub.network)
        self.library = LibraryTab(ctx, library)
        self.recommended = RecommendedTab(self.hub, library, self.downloads)
        self.search = SearchTab(ctx, self.hub, library, self.downloads)
        for tab, name in (
            (self.library, "Library"),
            (self.recommended, "Recommended"),
            (self.search, "Search"),
            (self.downloads, "Downloads"),
        ):
            self.tabs.addTab(tab, name)
        self.tabs.currentChanged.connect(self._on_tab_shown)
        self.library.get_requested.connect(self.show_recommended)
        self.library.page.drafts_wanted.connect(self._find_drafts)
        self.recommended.search_requested.connect(lambda: self.show_tab(self.search))
        self.recommended.details_requested.connect(self._show_repository)
        self.downloads.show_requested.connect(self.show_downloads)
        self.downloads.finished.connect(library.scan)
        self.downloads.active_changed.connect(self._show_active_downloads)
        self.downloads.begin()
        library.scan()
        ctx.closing.callback(self._shut_down)

    @Slot()
    def show_library(self) -> None:
        self.library.scan()
        self.show_tab(self.library)

    @Slot()
    def show_recommended(self) -> None:
        self.recommended.refresh()
        self.show_tab(self.recommended)

    @Slot()
    def show_downloads(self) -> None:
        self.downloads.begin()
        self.show_tab(self.downloads)

    @Slot(object)
    def _find_drafts(self, entry: LibraryEntry) -> None:
        self.show_tab(self.search)
        self.search.page.find_drafts_for(entry)

    @Slot(str)
    def _show_repository(self, name: str) -> None:
        self.show_tab(self.search)
        self.search.page.look_up(name)

    def get_offer(self, offer: Offer) -> None:
        self.show_recommended()
        self.recommended.get(offer)

    def get_projector(self, model: CatalogModel, path: Path) -> None:
        """Download the projector of the recommended model in the file ``path``, into its folder."""
        self.show_downloads()
        self.hub.ask(
            lambda hub: projector_for(hub, model, path),
            lambda item: self.downloads.add(item, path.parent, shows=False),
            lambda error: self.downloads.tell_stopped(f"the projector of {model.title}", str(error)),
        )

    def apply_folders(self) -> None:
        """The configured folders with models have changed."""
        self.downloads.apply_settings()
        self.library.scan()

    def _shut_down(self) -> None:
        """The main window is closed. Downloads continue at the next start."""
        self.close()
        self.downloads.shut_down()
        self.hub.close()

    @Slot(int)
    def _on_tab_shown(self) -> None:
        tab = self.tabs.currentWidget()
        if tab is self.recommended:
            self.recommended.refresh()
        elif tab is self.library:
            self.service.judge_again()

    @Slot(int)
    def _show_active_downloads(self, number: int) -> None:
        self.tabs.setTabText(self.tabs.indexOf(self.downloads), f"Downloads ({number})" if number else "Downloads")
