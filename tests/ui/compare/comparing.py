"""A chat with a Compare window."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.ui.compare.window import CompareWindow
from tests.ui.parts import WAIT_MS, Rig


class Comparing:
    def __init__(self, rig: Rig) -> None:
        self.chat = rig
        self.qtbot = rig.qtbot
        self.window = CompareWindow(rig.ctx)

    def last_answer(self) -> str:
        return self.chat.model.messages[-1].id

    def idle(self) -> None:
        self.qtbot.waitUntil(lambda: not self.window.runner.is_running(), timeout=WAIT_MS)

    def verdict(self) -> str:
        return self.window.one.verdict.text()

    def escape(self) -> None:
        with self.qtbot.waitActive(self.window, timeout=WAIT_MS):
            pass
        QTest.keyClick(self.window.windowHandle(), Qt.Key.Key_Escape)
