"""File → Settings…: what holds for the whole app. Everything takes effect at once."""

from __future__ import annotations

from PySide6.QtCore import QSize

from app.ui.settings.models_page import ModelsPage
from app.ui.settings.network_page import NetworkPage
from app.ui.widgets.controls import scrolling
from app.ui.widgets.tabbed_window import TabbedWindow

FIRST_SIZE = QSize(640, 720)
MINIMUM_SIZE = QSize(440, 360)


class SettingsWindow(TabbedWindow):
    """Lays out the pages.

    Attributes:
        models, network: The pages.
    """

    def __init__(self, models: ModelsPage) -> None:
        super().__init__("Settings", FIRST_SIZE, MINIMUM_SIZE)
        self.models = models
        self.network = NetworkPage()
        self.tabs.addTab(scrolling(self.models), "Models")
        self.tabs.addTab(scrolling(self.network), "Network")
