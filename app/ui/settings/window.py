"""File → Settings…: what holds for the whole app."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QSize

from app.ui.context import AppContext
from app.ui.models.window import ModelsWindow
from app.ui.server.control import ServerControl
from app.ui.settings.general_page import GeneralPage
from app.ui.settings.models_page import ModelsPage
from app.ui.settings.network_page import NetworkPage
from app.ui.settings.server_page import ServerPage
from app.ui.widgets.controls import scrolling
from app.ui.widgets.tabbed_window import TabbedWindow


class SettingsWindow(TabbedWindow):
    """Everything takes effect at once.

    Attributes:
        general, models, network, server: The pages.
    """

    def __init__(self, ctx: AppContext, models: ModelsWindow, control: ServerControl) -> None:
        super().__init__("Settings", first_size=QSize(640, 720), minimum_size=QSize(440, 360))
        self.general = GeneralPage(ctx.settings)
        self.models = ModelsPage(ctx.settings, models)
        self.network = NetworkPage(ctx, models)
        self.server = ServerPage(ctx.settings, control)
        self._pages: dict[str, GeneralPage | ModelsPage | NetworkPage | ServerPage] = {
            "General": self.general,
            "Models": self.models,
            "Network": self.network,
            "API server": self.server,
        }
        for title, page in self._pages.items():
            self.tabs.addTab(scrolling(page), title)
        self.network.needed.connect(lambda: self.show_page("Network"))
        ctx.closing.callback(self.close)

    def show_page(self, title: Literal["General", "Models", "Network", "API server"]) -> None:
        self.show_tab(self._pages[title])
        for page in self._pages.values():
            page.refresh()
