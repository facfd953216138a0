"""Adding servers: what would be started is shown exactly, and nothing is started before the user's yes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.settings import Settings
from app.tools.messages import ServerEntry
from app.ui.notices import NoticeList
from app.ui.tools.server_dialog import ServerDialog
from app.ui.tools.service import ToolService
from tests.support.keyrings import MemoryKeyring
from tests.support.scripted_tools import COMMAND

DATA = Path(__file__).parents[2] / "data" / "mcp"


@pytest.fixture
def service(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[ToolService]:
    made = ToolService(tmp_path, Settings(), NoticeList(), command=COMMAND)
    yield made
    made.close()


@pytest.fixture
def window(qtbot: QtBot) -> QWidget:
    window = QWidget()
    qtbot.addWidget(window)
    return window


def opened(qtbot: QtBot, service: ToolService, window: QWidget, text: str = "", **more: ServerEntry) -> ServerDialog:
    dialog = ServerDialog(service, window, text, **more)
    dialog.show()
    qtbot.waitUntil(dialog._lane.is_idle)
    return dialog


def texts(dialog: QWidget) -> list[str]:
    return [one.text().replace("\u200b", "") for one in dialog.findChildren(QLabel) if not one.isHidden()]


def test_nothing_is_started_before_the_yes(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    dialog = opened(qtbot, service, window, "time '--a b' \u202egnp.exe 'tab\tend'")
    qtbot.waitUntil(lambda: r"time '--a b' '\u202egnp.exe' 'tab\tend'" in texts(dialog))
    assert not service.process_id() and not service.entries
    dialog.reject()
    assert not service.process_id() and not service.entries
    dialog = opened(qtbot, service, window, "time '--a b'")
    QTest.mouseClick(dialog.add, Qt.MouseButton.LeftButton)
    assert service.entries == {"time": ServerEntry(name="time", command="time", args=["--a b"])}
    qtbot.waitUntil(lambda: service.servers["time"].state == "ready")


def test_enter_in_the_text_adds_nothing(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    dialog = opened(qtbot, service, window, "time")
    QTest.keyClick(dialog.text, Qt.Key.Key_Return)
    assert dialog.isVisible() and not service.entries


def test_variables_are_shown_and_secrets_are_not(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    text = json.dumps({"x": {"command": "time", "env": {"NODE_OPTIONS": "--require x", "API_KEY": "abc"}, "cwd": "/a"}})
    dialog = opened(qtbot, service, window, text)
    qtbot.waitUntil(lambda: "with NODE_OPTIONS=--require x, API_KEY=…, folder=/a" in texts(dialog))


def test_what_a_variable_would_start_is_shown_whole(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    """Names and parts of values that look like secrets hide nothing else."""
    hidden = f"--x=http://a:b@c --y=sk-aaaaaaaaaaaaaaaa {'x' * 300} --require evil.js"
    text = json.dumps({"x": {"command": "time", "env": {"GIT_ASKPASS": "/tmp/run.sh", "NODE_OPTIONS": hidden}}})
    dialog = opened(qtbot, service, window, text)
    seen = f"with GIT_ASKPASS=/tmp/run.sh, NODE_OPTIONS=--x=http…c --y=… {'x' * 300} --require evil.js"
    qtbot.waitUntil(lambda: seen in texts(dialog))


def test_several_servers_are_added_at_once(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    dialog = opened(qtbot, service, window, json.dumps({"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}))
    assert dialog.add.text() == "Add 2 servers"
    dialog.add.click()
    qtbot.waitUntil(lambda: [one.state for one in service.servers.values()] == ["ready", "ready"])


def test_a_name_that_is_taken_gets_a_number(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    for _ in range(2):
        opened(qtbot, service, window, '"time": {"command": "time"}').add.click()
    assert list(service.entries) == ["time", "time-2"]


def test_inputs_of_vs_code_are_asked_for(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    dialog = opened(qtbot, service, window, (DATA / "vscode_mcp.json").read_text())
    assert list(dialog.inputs) == ["perplexity-key", "other"] and not dialog.add.isEnabled()
    key = dialog.inputs["perplexity-key"]
    assert (key.accessibleName(), key.echoMode()) == ("Perplexity API Key", QLineEdit.EchoMode.Password)
    key.setText("pplx-1 2")
    dialog.inputs["other"].setText("${env:X}")
    dialog.add.click()
    assert service.entries["Perplexity"].env == {"PERPLEXITY_API_KEY": "pplx-1 2"}


@pytest.mark.parametrize("text", ["", "{", '{"mcpServers": {}}', "[]", '{"a": {"type": "sse", "url": "https://a"}}'])
def test_nothing_can_be_added_from_what_is_no_server(
    qtbot: QtBot, service: ToolService, window: QWidget, text: str
) -> None:
    dialog = opened(qtbot, service, window, text)
    assert not dialog.add.isEnabled() or text == "[]"


def test_a_program_that_is_missing_is_told(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    dialog = opened(qtbot, service, window, "no-such-mcp-server --x")
    qtbot.waitUntil(lambda: "no-such-mcp-server isn't on this computer." in texts(dialog))
    assert dialog.add.isEnabled(), "it may come later"


def test_an_address_while_offline_is_told(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    service.is_offline = True
    dialog = opened(qtbot, service, window, "https://example.org/mcp")
    qtbot.waitUntil(lambda: any("offline" in text for text in texts(dialog)))


def test_editing_keeps_secrets_switches_and_name(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    before = ServerEntry(
        name="x",
        command="time",
        args=["a"],
        env={"API_KEY": "abc def", "MODE": "1"},
        off=["echo"],
        folders=["/a", "/b"],
    )
    service.put(before)
    dialog = opened(qtbot, service, window, entry=before)
    assert "abc" not in dialog.text.toPlainText()
    dialog._limit.setValue(5)
    dialog._remove_folder("/a")
    dialog._add_folder("/c")
    dialog._add_folder("/b")
    dialog.text.setPlainText(dialog.text.toPlainText().replace('"a"', '"b"').replace('"x"', '"y"'))
    dialog.add.click()
    after = msgspec.structs.replace(before, name="y", args=["b"], folders=["/b", "/c"], timeout_seconds=5.0)
    assert service.entries == {"y": after}
    qtbot.waitUntil(lambda: service.servers["y"].version == "time abc def 1")
    assert list(service.servers) == ["y"]


def test_saving_without_a_change_does_not_start_it_again(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    entry = ServerEntry(name="x", command="time", env={"API_KEY": "abc"}, headers={}, cwd="/", timeout_seconds=60.0)
    service.put(entry)
    qtbot.waitUntil(lambda: service.servers["x"].state == "ready")
    opened(qtbot, service, window, entry=entry).add.click()
    assert service.servers["x"].state == "ready"


def test_one_server_is_edited_at_a_time(qtbot: QtBot, service: ToolService, window: QWidget) -> None:
    entry = ServerEntry(name="x", command="time")
    service.put(entry)
    dialog = opened(qtbot, service, window, entry=entry)
    dialog.text.setPlainText("a\nb")
    assert not dialog.add.isEnabled()
