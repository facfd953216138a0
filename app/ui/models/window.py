"""The Models window: what is on this computer, what could be, and what is on its way."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QTabWidget, QVBoxLayout, QWidget

from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.library_tab import LibraryTab
from app.ui.models.recommended_tab import RecommendedTab
from app.ui.models.search_tab import SearchTab
from app.ui.widgets import icons, theme

FIRST_SIZE = QSize(1040, 700)
MINIMUM_SIZE = QSize(620, 420)


class ModelsWindow(QWidget):
    """Lays out the tabs.

    Attributes:
        library, recommended, search, downloads: The tabs.

    Signals:
        tab_shown: The tab that is in front now.
        closed: The window is gone from the screen.
    """

    tab_shown = Signal(object)
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle("Models")
        self.setWindowIcon(icons.application())
        self.setMinimumSize(MINIMUM_SIZE)
        self.resize(FIRST_SIZE)
        theme.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.library = LibraryTab()
        self.recommended = RecommendedTab()
        self.search = SearchTab()
        self.downloads = DownloadsTab()
        self._tabs = QTabWidget()
        self._tabs.setDocumentMode(True)
        self._tabs.tabBar().setDrawBase(False)
        self._tabs.tabBar().setAccessibleName("Models")
        self._tabs.addTab(self.library, "Library")
        self._tabs.addTab(self.recommended, "Recommended")
        self._tabs.addTab(self.search, "Search")
        self._tabs.addTab(self.downloads, "Downloads")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._tabs)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self).activated.connect(self.close)
        self._tabs.currentChanged.connect(lambda: self.tab_shown.emit(self._tabs.currentWidget()))

    def show_tab(self, tab: QWidget) -> None:
        """Bring this tab to the front, and the window too."""
        self._tabs.setCurrentWidget(tab)
        if self.isMinimized():
            self.showNormal()
        self.show()
        self.raise_()
        self.activateWindow()

    def current_tab(self) -> QWidget:
        return self._tabs.currentWidget()

    def show_active_downloads(self, number: int) -> None:
        """How many downloads are on their way, on the tab."""
        self._tabs.setTabText(self._tabs.indexOf(self.downloads), f"Downloads ({number})" if number else "Downloads")

    def closeEvent(self, event: QCloseEvent) -> None:
        super().closeEvent(event)
        self.closed.emit()
