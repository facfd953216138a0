"""The windows "Models" and "Settings" with real parts behind them: files, a queue, a hub on loopback."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, cast

from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QDialog,
    QLabel,
    QMessageBox,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.models.downloads.item import Item
from app.models.library.library import LibraryEntry
from app.models.machine_memory import MachineMemory
from app.protocol.events import Device
from app.settings import SettingsFile
from app.ui.context import AppContext, WindowSettings
from app.ui.engine.client import EngineClient
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import LoadingMarker
from app.ui.engine.queue import EngineQueue
from app.ui.models.library_list import LibraryList
from app.ui.models.library_service import LibraryService
from app.ui.models.library_tab import ModelPage
from app.ui.models.search_tab import RepositoryPage
from app.ui.models.window import ModelsWindow
from app.ui.notices import NoticeList
from app.ui.server.control import ServerControl
from app.ui.server.serving import Serving
from app.ui.settings.window import SettingsWindow
from app.ui.tools.service import ToolService
from app.ui.widgets.questions import Notifier
from tests.support.hub_server import HubServer
from tests.support.scripted_tools import COMMAND
from tests.ui.recorded_actions import Recorded

D = TypeVar("D", bound=QDialog)
WAIT_MS = 20_000
GB = 1_000_000_000
GPU = Device(name="CUDA0", description="Some GPU", total_bytes=8_600_000_000, free_bytes=7_600_000_000)
MACHINE = MachineMemory(memory_total=16 * GB, memory_free=11 * GB, devices=[GPU])


class Windows:
    """Both windows; ``close`` and ``open`` are a restart."""

    def __init__(self, qtbot: QtBot, server: HubServer, folder: Path) -> None:
        self.qtbot = qtbot
        self.server = server
        self.folder = folder
        self.models = folder / "models"
        self.file = SettingsFile(folder / "settings.json")
        self.values = self.file.values
        self.values.hub_endpoint = server.endpoint
        self.values.models_folder = str(self.models)
        self.machine = MACHINE
        self.is_open = False

    def open(self) -> Windows:
        self.engine = EngineClient()
        self.notice_list = NoticeList(self.engine)
        marker = LoadingMarker(self.folder / "loading.json")
        loader = PairLoader(self.engine, self.notice_list, marker, self.values, self.engine)
        self.actions = WindowActions(self)
        self.ctx = AppContext(
            settings=WindowSettings(self.file, self.notice_list, self.engine),
            notices=self.notice_list,
            engine=self.engine,
            loader=loader,
            queue=EngineQueue(self.engine, loader, self.engine),
            tools=ToolService(self.folder, self.values, self.notice_list, self.engine, command=COMMAND),
            actions=self.actions,
            notifier=Notifier(self.engine),
            closing=ExitStack(),
            **dict.fromkeys(("store", "presets", "chats", "operations"), cast(Any, None)),
        )
        self.ctx.closing.callback(self.ctx.tools.close)
        self.ctx.closing.callback(loader.planner.close)
        self.ctx.closing.callback(self.ctx.settings.close)
        self.library = LibraryService(self.values, lambda: self.machine)
        self.ctx.closing.callback(self.library.close)
        self.window = ModelsWindow(self.ctx, self.library)
        serving = Serving(self.engine, self.ctx.queue, loader, self.notice_list, parent=self.engine)
        self.server_control = ServerControl(serving, lambda: self.values.server, self.engine)
        self.ctx.closing.callback(self.server_control.close)
        self.settings = SettingsWindow(self.ctx, self.window, self.server_control)
        self.is_open = True
        return self

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.ctx.closing.close()
            for part in (self.window, self.settings, self.library, self.engine):
                part.deleteLater()

    # --- waiting

    def until(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition, timeout=WAIT_MS)

    def hub_idle(self) -> None:
        """Wait until every question to the hub is answered and its answer is dealt with."""
        self.until(self.window.hub._lane.is_idle)

    def library_idle(self) -> None:
        """Wait until the library has done all it was asked for; what it answers may ask again."""
        for _ in range(3):
            done: list[bool] = []
            self.library.compute(lambda: True, done.append)
            self.until(lambda done=done: bool(done))  # type: ignore[misc]

    # --- the library

    @property
    def models_list(self) -> LibraryList:
        return self.window.library.list

    @property
    def model_page(self) -> ModelPage:
        return self.window.library.page

    def scanned(self) -> list[LibraryEntry]:
        """Show the library and wait until it has looked into the folders."""
        with self.qtbot.waitSignal(self.library.scanned, timeout=WAIT_MS):
            self.window.show_library()
        self.library_idle()
        return self.library.entries()

    def titles(self) -> list[str]:
        """What the list shows, from top to bottom."""
        return column(self.models_list, 0)

    def choose(self, path: Path) -> None:
        """Select a model and wait for its drafts."""
        self.models_list.select(str(path))
        assert self.model_page.path() == str(path)
        self.library_idle()

    # --- search

    @property
    def page(self) -> RepositoryPage:
        return self.window.search.page

    def search(self, words: str) -> None:
        self.window.show_tab(self.window.search)
        self.window.search.set_words(words)

    def results(self) -> list[str]:
        return [cell(row, 0) for row in rows(tree(self.window, "Repositories found"))]

    def show_repository(self, name: str) -> None:
        """Choose one of the results and wait for its files."""
        found = tree(self.window, "Repositories found")
        found.setCurrentItem(next(row for row in rows(found) if cell(row, 0) == name))
        self.until(lambda: bool(rows(tree(self.page, "Files"))))

    # --- downloads

    def get(self, *files: tuple[str, str], title: str = "A model") -> Item:
        """Download files of the hub, the second as a draft."""
        remote = [self.server.remote_file(*file) for file in files]
        item = Item(id=title, title=title, target=(remote[0],), draft=tuple(remote[1:]))
        self.window.downloads.add(item)
        return item

    def notice(self, subject: str) -> str:
        """Wait until there is a notice about this; its text."""
        self.until(lambda: subject in self.notice_list.notices())
        return self.notice_list.notices()[subject].text

    def says(self, part: str) -> None:
        """Wait until the tab "Downloads" says this."""
        self.until(lambda: any(part in text for text in texts(self.window.downloads)))


class WindowActions(Recorded):
    """The actions of the app that the windows use; only those that concern the windows are carried out."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def run(self, name: str, *values: object) -> Any:
        super().run(name, *values)
        match name:
            case "hide_starter":
                self._windows.values.starter_hidden = True
                self._windows.window.apply_folders()
            case "show_folders":
                self._windows.settings.show_page("Models")
            case "ask_for_token":
                self._windows.settings.network.ask_for_token()


class Pages(QObject):
    """A browser that only notes what it is asked to open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url.toString())


def texts(parent: QWidget) -> list[str]:
    """What the labels one can see say."""
    return [label.text() for label in parent.findChildren(QLabel) if label.text() and label.isVisibleTo(parent)]


def button(parent: QWidget, *names: str) -> QAbstractButton:
    """The visible button with this text or accessible name."""
    buttons = [one for one in parent.findChildren(QAbstractButton) if one.isVisibleTo(parent)]
    return next(one for one in buttons if one.text() in names or one.accessibleName() in names)


def buttons(parent: QWidget) -> list[str]:
    """Texts of the buttons one can see."""
    return [one.text() for one in parent.findChildren(QAbstractButton) if one.text() and one.isVisibleTo(parent)]


def question(parent: QWidget) -> QMessageBox:
    """The box that is open."""
    return next(box for box in parent.findChildren(QMessageBox) if box.isVisible())


def open_dialog(kind: type[D]) -> D:
    """The dialog of this kind that is open."""
    return next(one for one in QApplication.topLevelWidgets() if isinstance(one, kind) and one.isVisible())


def tree(parent: QWidget, name: str) -> QTreeWidget:
    return next(one for one in parent.findChildren(QTreeWidget) if one.accessibleName() == name)


def rows(parent: QTreeWidget) -> list[QTreeWidgetItem]:
    return [item for place in range(parent.topLevelItemCount()) if (item := parent.topLevelItem(place)) is not None]


def cell(row: QTreeWidgetItem, place: int) -> str:
    return row.text(place)


def column(view: LibraryList, place: int) -> list[str]:
    model = view.model()
    return [str(model.index(row, place).data()) for row in range(model.rowCount())]
