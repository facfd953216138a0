"""File → Settings…: what holds for the whole app."""

from __future__ import annotations

from PySide6.QtCore import QSize, Slot
from PySide6.QtWidgets import QWidget

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
        self.tabs.addTab(scrolling(self.general), "General")
        self.tabs.addTab(scrolling(self.models), "Models")
        self.tabs.addTab(scrolling(self.network), "Network")
        self.tabs.addTab(scrolling(self.server), "API server")
        self.network.needed.connect(self.show_network)
        ctx.closing.callback(self.close)

    @Slot()
    def show_general(self) -> None:
        self._show(self.general)

    @Slot()
    def show_models(self) -> None:
        """Show the page with the folders."""
        self._show(self.models)

    @Slot()
    def show_network(self) -> None:
        self._show(self.network)

    @Slot()
    def show_server(self) -> None:
        """Show the page about other programs."""
        self._show(self.server)

    def _show(self, page: QWidget) -> None:
        self.show_tab(page)
        for one in (self.general, self.models, self.network, self.server):
            one.refresh()
