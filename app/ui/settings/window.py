"""File → Settings…: what holds for the whole app. Everything takes effect at once."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QTabWidget, QVBoxLayout, QWidget

from app.ui.settings.models_page import ModelsPage
from app.ui.settings.network_page import NetworkPage
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import scrolling

FIRST_SIZE = QSize(640, 720)
MINIMUM_SIZE = QSize(440, 360)


class SettingsWindow(QWidget):
    """Lays out the pages.

    Attributes:
        models, network: The pages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setWindowTitle("Settings")
        self.setWindowIcon(icons.application())
        self.setMinimumSize(MINIMUM_SIZE)
        self.resize(FIRST_SIZE)
        theme.set_role(self, "reading")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.models = ModelsPage()
        self.network = NetworkPage()
        self._tabs = QTabWidget()
        self._tabs.setDocumentMode(True)
        self._tabs.tabBar().setDrawBase(False)
        self._tabs.tabBar().setAccessibleName("Settings")
        for page, title in ((self.models, "Models"), (self.network, "Network")):
            area = scrolling(page)
            self._tabs.addTab(area, title)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._tabs)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self).activated.connect(self.close)

    def show_page(self, page: QWidget) -> None:
        """Bring this page to the front, and the window too."""
        place = (self.models, self.network).index(page)
        self._tabs.setCurrentIndex(place)
        if self.isMinimized():
            self.showNormal()
        self.show()
        self.raise_()
        self.activateWindow()
