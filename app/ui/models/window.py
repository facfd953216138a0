"""The Models window: what is on this computer, what could be, and what is on its way."""

from __future__ import annotations

from PySide6.QtCore import QSize

from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.library_tab import LibraryTab
from app.ui.models.recommended_tab import RecommendedTab
from app.ui.models.search_tab import SearchTab
from app.ui.widgets.tabbed_window import TabbedWindow

FIRST_SIZE = QSize(1040, 700)
MINIMUM_SIZE = QSize(620, 420)


class ModelsWindow(TabbedWindow):
    """Lays out the tabs.

    Attributes:
        library, recommended, search, downloads: The tabs.
    """

    def __init__(self, recommended: RecommendedTab, search: SearchTab, downloads: DownloadsTab) -> None:
        super().__init__("Models", FIRST_SIZE, MINIMUM_SIZE)
        self.library = LibraryTab()
        self.recommended = recommended
        self.search = search
        self.downloads = downloads
        self.tabs.addTab(self.library, "Library")
        self.tabs.addTab(self.recommended, "Recommended")
        self.tabs.addTab(self.search, "Search")
        self.tabs.addTab(self.downloads, "Downloads")

    def show_active_downloads(self, number: int) -> None:
        """How many downloads are on their way, on the tab."""
        self.tabs.setTabText(self.tabs.indexOf(self.downloads), f"Downloads ({number})" if number else "Downloads")
