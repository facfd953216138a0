"""File → Settings: the window, and its page for the folders with models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from PySide6.QtCore import QSize, Slot
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.models.library.folders import ModelFolder
from app.ui.context import AppContext, WindowSettings
from app.ui.models.library_service import models_folder
from app.ui.models.window import ModelsWindow
from app.ui.server.control import ServerControl
from app.ui.settings.general_page import GeneralPage
from app.ui.settings.network_page import NetworkPage
from app.ui.settings.server_page import ServerPage
from app.ui.settings.tools_page import ToolsPage
from app.ui.widgets.controls import (
    LEFT,
    TOP,
    clear_layout,
    column,
    label,
    named,
    plain_tooltip,
    push_button,
    row,
    scrolling,
    small_button,
)
from app.ui.widgets.questions import ask, choose_folder
from app.ui.widgets.tabbed_window import TabbedWindow
from app.ui.widgets.theme import SPACING
from app.words import printable

# Settings → Models: where models are stored, and other folders to look in.

_OTHERS = "Models in these folders appear in your library. Slipstream never changes or deletes anything there."


class ModelsPage(QWidget):
    """Folder settings; they take effect at once."""

    def __init__(self, settings: WindowSettings, models: ModelsWindow) -> None:
        super().__init__()
        self._settings, self._values = settings, settings.values
        self._models, self._library = models, models.service
        self._folder = named(QLineEdit(readOnly=True), "Models folder")
        self._others = column(gap=-1)
        self._found = column(gap=-1)
        self._found_heading = label("Found on this computer", "heading")
        self._lay_out()

    def _lay_out(self) -> None:
        reveal = push_button(
            "Show",
            lambda: self._library.reveal(models_folder(self._values)),
            name="Show the models folder in the file manager",
            tooltip="Show the folder in the file manager",
        )
        change = push_button("Change…", self._on_change, name="Change the models folder")
        add = push_button("Add a folder…", lambda: self._choose("Choose a folder with models", self._add))
        column(
            label("Models folder", "heading"),
            label("Downloaded models are stored here. The folder can be on another disk.", "quiet", wraps=True),
            row((self._folder, 1), reveal, change),
            3 * SPACING,
            label("Other folders to look in", "heading"),
            label(_OTHERS, "quiet", wraps=True),
            self._others,
            (add, LEFT),
            3 * SPACING,
            self._found_heading,
            self._found,
            None,
            margins=5 * SPACING,
            on=self,
        )

    def refresh(self) -> None:
        path, extra = str(models_folder(self._values)), self._values.extra_folders
        self._folder.setText(path)
        self._folder.setCursorPosition(0)
        self._folder.setToolTip(plain_tooltip(path))
        clear_layout(self._others)
        for folder in extra:
            self._others.addLayout(self._row(folder, "", "Remove", self._remove))
        known = set(map(Path, extra))
        self._library.find(lambda found: self.show_found([one for one in found if one.path not in known]))

    def show_found(self, found: list[ModelFolder]) -> None:
        """Show other apps' folders that could be added."""
        clear_layout(self._found)
        for one in found:
            self._found.addLayout(self._row(str(one.path), one.kind.label, "Add", self._add))
        self._found_heading.setVisible(bool(found))

    def _row(self, path: str, app: str, verb: str, act: Callable[[str], object]) -> QHBoxLayout:
        words = column(gap=0)
        if app:
            words.addWidget(label(app))
        words.addWidget(label(printable(path, 300), "quiet" if app else None, wraps=True, selectable=True))
        return row((words, 1), (small_button(verb, lambda: act(path), name=f"{verb} {path}"), TOP))

    # ------------------------------------------------------------ changes

    def _choose(self, title: str, chosen: Callable[[str], None]) -> None:
        choose_folder(self, title, str(models_folder(self._values)), chosen)

    @Slot()
    def _on_change(self) -> None:
        self._choose("Choose the models folder", self._on_folder_chosen)

    @Slot(str)
    def _add(self, folder: str) -> None:
        if folder not in self._values.extra_folders and Path(folder) != models_folder(self._values):
            self._change([*self._values.extra_folders, folder])

    def _remove(self, folder: str) -> None:
        self._change([one for one in self._values.extra_folders if one != folder])

    def _change(self, extra: list[str]) -> None:
        self._values.extra_folders = extra
        self._settings.save_soon()
        self._models.apply_folders()
        self.refresh()

    @Slot(str)
    def _on_folder_chosen(self, folder: str) -> None:
        new, old = Path(folder), models_folder(self._values)
        if new == old:
            return
        if old.is_relative_to(new):  # scanning the new folder finds the old one's models
            self._use(new)
        else:
            self._library.compute(
                lambda: _has_files(old), lambda has: self._ask_about(old, new) if has else self._use(new)
            )

    def _ask_about(self, old: Path, new: Path) -> None:
        ask(
            self,
            "Models folder",
            f"There are models in {printable(str(old), 200)}, and they stay there. Keep them in your library? "
            "Slipstream then looks in that folder, too, but no longer changes or deletes anything in it.",
            safe={"Keep them in the library": lambda: self._use(new, old), "Leave them out": lambda: self._use(new)},
        )

    def _use(self, folder: Path, *others: Path) -> None:
        """Store models in ``folder`` from now on, and also look in ``others``."""
        self._values.models_folder = str(folder)
        extra = [*self._values.extra_folders, *map(str, others)]
        self._change([one for one in dict.fromkeys(extra) if Path(one) != folder])


def _has_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


class SettingsWindow(TabbedWindow):
    """Settings; all take effect at once.

    Attributes:
        general, models, network, server, tools: The pages.
    """

    def __init__(self, ctx: AppContext, models: ModelsWindow, control: ServerControl) -> None:
        super().__init__("Settings", first_size=QSize(640, 720), minimum_size=QSize(440, 360))
        self.general = GeneralPage(ctx.settings)
        self.models = ModelsPage(ctx.settings, models)
        self.network = NetworkPage(ctx, models)
        self.server = ServerPage(ctx.settings, control)
        self.tools = ToolsPage(ctx)
        self._pages: dict[str, GeneralPage | ModelsPage | NetworkPage | ServerPage | ToolsPage] = {
            "General": self.general,
            "Models": self.models,
            "Network": self.network,
            "API server": self.server,
            "Tools": self.tools,
        }
        for title, page in self._pages.items():
            self.tabs.addTab(scrolling(page), title)
        self.network.needed.connect(lambda: self.show_page("Network"))
        ctx.closing.callback(self.close)

    def show_page(self, title: Literal["General", "Models", "Network", "API server", "Tools"]) -> None:
        self.show_tab(self._pages[title])
        for page in self._pages.values():
            page.refresh()
