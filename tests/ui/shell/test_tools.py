"""Tools in the whole window, with a real engine, the real tools process and a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.settings import Pair, SettingsFile
from app.system import settings_file
from app.ui.chat.model import ChatState
from tests.support.keyrings import MemoryKeyring
from tests.support.scripted_calls import make_scripted_target
from tests.support.tool_process import ROOT, entry
from tests.ui.shell.running import Running, button

SERVER = {"command": sys.executable, "args": ["-m", "tests.support.tool_server"], "cwd": ROOT}


class Clicks:
    """The user's mouse."""

    def __init__(self) -> None:
        self.count = 0

    def press(self, one: QAbstractButton) -> None:
        assert one.isVisible() and one.isEnabled()
        QTest.mouseClick(one, Qt.MouseButton.LeftButton)
        self.count += 1


def test_from_paste_to_the_first_answer_with_a_tool_are_four_clicks(
    qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring
) -> None:
    """By somebody who knows ``mcp.json`` of other apps, from Settings → Tools on."""
    target = make_scripted_target(tmp_path / "target.gguf", {"echo": {"text": "from the tool"}}, "please", " Done.")
    file = SettingsFile(settings_file())
    file.values.last_pair = Pair(str(target))
    file.save()
    running, clicks = Running(qtbot), Clicks()
    running.model.set_settings(ChatSettings(max_tokens=400))
    running.begin()
    running.ready()
    try:
        _add_and_ask(running, clicks, qtbot)
    finally:
        running.close()
    assert clicks.count == 4


def test_while_the_user_is_asked_again_no_prompt_is_processed(
    qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring
) -> None:
    target = make_scripted_target(tmp_path / "target.gguf", {"echo": {"text": "from the tool"}}, "please", " Done.")
    file = SettingsFile(settings_file())
    file.values.last_pair = Pair(str(target))
    file.save()
    running = Running(qtbot)
    running.begin()
    running.ready()
    try:
        running.model.set_settings(ChatSettings(max_tokens=400))
        tools, panel = running.ctx.tools, running.window.speed_panel
        tools.put(entry())
        qtbot.waitUntil(lambda: tools.servers["test"].state == "ready")
        running.type("Echo it, please")
        qtbot.waitUntil(lambda: running.model.state is ChatState.ASKING)
        running.model.stop()
        running.done()
        assert running.model.continue_answer(running.model.messages[-1].id)
        qtbot.waitUntil(lambda: running.model.state is ChatState.ASKING)
        assert not panel._told.answering
        running.actions.run("allow_call")
        qtbot.waitUntil(lambda: panel._told.answering)
        running.done()
        assert running.model.messages[-1].text == " Done." and not panel._told.answering
    finally:
        running.close()


def _add_and_ask(running: Running, clicks: Clicks, qtbot: QtBot) -> None:
    running.app.windows.show_settings("Tools")
    qtbot.waitUntil(lambda: running.app.windows._settings is not None)
    page = running.app.windows.settings().tools
    qtbot.waitUntil(page.isVisible)
    clicks.press(button(page, "Add servers…"))
    QGuiApplication.clipboard().setText(json.dumps({"mcpServers": {"test": SERVER}}))
    assert page.dialog is not None
    QTest.keySequence(page.dialog.text, "Ctrl+V")
    clicks.press(page.dialog.add)
    tools = running.ctx.tools
    qtbot.waitUntil(lambda: tools.servers["test"].state == "ready")

    QTest.keyClicks(running.window.composer.editor, "Echo it, please")
    clicks.press(running.window.composer.button)
    qtbot.waitUntil(lambda: running.model.state is ChatState.ASKING)
    qtbot.waitUntil(lambda: any(one.text() == "Allow once" for one in _buttons(running)))
    clicks.press(next(one for one in _buttons(running) if one.text() == "Allow once"))
    running.done()
    answer = running.model.messages[-1]
    (call,) = answer.calls
    assert (call.server, call.name, call.state, call.result) == ("test", "echo", "done", "from the tool")
    assert answer.text == " Done." and not QApplication.activeModalWidget()


def _buttons(running: Running) -> list[QAbstractButton]:
    return [one for one in running.window.findChildren(QAbstractButton) if one.isVisible()]
