"""The whole window with a real engine and a real store, for tests."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app import system
from app.chats.model import Chat
from app.chats.settings import ChatSettings
from app.chats.worker import ChatWorker
from app.settings import SettingsFile
from app.ui.actions import plain
from app.ui.app import App
from app.ui.chat.model import ChatModel, ChatState
from app.ui.context import make_context
from app.ui.engine.client import EngineClient, EngineState
from app.ui.shell.all_actions import all_actions
from app.ui.shell.main_window import MainWindow
from tests.ui.shell.warm_engine import WarmEngine

WAIT_MS = 60_000
LONGEST_ANSWER = 24


class Running:
    """An open window and what is behind it."""

    FIRST_SETTINGS: ChatSettings | None = ChatSettings(max_tokens=LONGEST_ANSWER)
    """Of the chat to come; ``None``: as the presets say."""

    def __init__(self, qtbot: QtBot, engine: EngineClient | None = None) -> None:
        self.qtbot = qtbot
        self.settings = SettingsFile(system.settings_file())
        self.actions = all_actions()
        self.window = MainWindow(self.settings.values, self.actions)
        self.engine = engine or WarmEngine(parent=self.window)
        self.worker = ChatWorker(system.chat_file())
        self.ctx = make_context(self.settings, self.engine, self.worker, self.actions, self.window)
        self.app = App(self.ctx, self.window)
        self.chats = self.ctx.chats
        if self.FIRST_SETTINGS is not None:
            self.model.set_settings(self.FIRST_SETTINGS)
        self.window.show()
        qtbot.waitExposed(self.window)

    def begin(self) -> None:
        with self.qtbot.waitSignal(self.ctx.operations.chats_listed, timeout=WAIT_MS):
            self.app.begin()
        self.qtbot.waitUntil(lambda: self.model.state is not ChatState.OPENING, timeout=WAIT_MS)

    @property
    def model(self) -> ChatModel:
        return self.chats.current

    def ready(self) -> None:
        self.qtbot.waitUntil(lambda: self.engine.state() is EngineState.READY, timeout=WAIT_MS)

    def ask(self, text: str) -> None:
        self.type(text)
        self.done()

    def type(self, text: str) -> None:
        """Write into the composer and press Enter."""
        editor = self.window.composer.editor
        QTest.keyClicks(editor, text)
        QTest.keyClick(editor, Qt.Key.Key_Return)
        self.qtbot.waitUntil(lambda: self.model.state.is_busy, timeout=WAIT_MS)

    def done(self) -> None:
        self.qtbot.waitUntil(lambda: not self.model.state.is_busy, timeout=WAIT_MS)
        future = self.worker.submit(lambda store: store.chats())
        self.qtbot.waitUntil(future.done, timeout=WAIT_MS)

    def titles(self) -> list[str]:
        model = self.window.chat_list.view.chats
        return [str(model.data(model.index(place))) for place in range(model.rowCount())]

    def choose(self, name: str) -> None:
        """Choose an entry of the menu bar."""
        self.actions.qaction(name).trigger()

    def menu(self, title: str) -> QMenu:
        """A menu of the menu bar."""
        [menu] = [one.menu() for one in self.window.menuBar().actions() if plain(one.text()) == title]
        assert isinstance(menu, QMenu)
        return menu

    def make_chat(self, title: str) -> Chat:
        return self.worker.submit(lambda store: store.create_chat(title)).result(timeout=10)

    def close(self) -> None:
        self.window.close()
        self.window.deleteLater()


def named(widget: QWidget) -> bool:
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    return bool(widget.accessibleName() or text)


def button(parent: QWidget, text: str) -> QAbstractButton:
    return next(one for one in parent.findChildren(QAbstractButton) if one.text() == text)
