"""A chat with a Compare window."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt
from PySide6.QtTest import QTest

from app.protocol.events import PairLoaded
from app.settings import Settings
from app.ui.compare.plain_server import PlainServer
from app.ui.compare.presenter import ComparePresenter
from app.ui.compare.window import CompareWindow
from app.ui.engine.local_engine import LocalEngine
from app.ui.engine.server_keys import ServerKeys
from tests.ui.parts import WAIT_MS, Rig


class Comparing:
    """Attributes:
    saves: How often the settings were to be saved.
    plain_process: The second server, where it is a real one.
    choose: What the Compare window asked for a second server, if it did; to be called with model and address.
    """

    def __init__(self, rig: Rig, values: Settings | None = None, second: LocalEngine | None = None) -> None:
        """``second``: the engine for the second server, by default the real one."""
        self.chat = rig
        self.qtbot = rig.qtbot
        self.values = values or Settings()
        self.saves = 0
        self.plain_process: subprocess.Popen[bytes] | None = None
        self.choose: Callable[[str, str], object] | None = None
        self.owner = QObject()
        self.keys = ServerKeys(self.owner)
        plain = PlainServer(second or LocalEngine(), rig.pair_loader, self.values, self.keys, self._save)
        self.presenter = ComparePresenter(rig.engine, rig.pair_loader, rig.chats, plain, self._on_choose)

    def _save(self) -> None:
        self.saves += 1

    def _on_choose(self, _window: CompareWindow, _pair: PairLoaded, chosen: Callable[[str, str], object]) -> None:
        self.choose = chosen

    @property
    def window(self) -> CompareWindow:
        return self.presenter.window

    def last_answer(self) -> str:
        return self.chat.model.messages[-1].id

    def idle(self) -> None:
        self.qtbot.waitUntil(lambda: not self.presenter.runner.is_running(), timeout=WAIT_MS)

    def verdict(self) -> str:
        return self.window.one.verdict.text()

    def escape(self) -> None:
        with self.qtbot.waitActive(self.window, timeout=WAIT_MS):
            pass
        QTest.keyClick(self.window.windowHandle(), Qt.Key.Key_Escape)

    def close(self) -> None:
        self.keys.close()
        self.owner.deleteLater()
