"""Settings → Tools: servers are added, watched, switched and removed; every change takes effect at once."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QLabel, QMessageBox, QPushButton, QScrollArea, QWidget

from app.chats.settings import ChatSettings
from app.tools.messages import ServerEntry
from app.ui.settings.tools_page import ServerRow, ToolsPage
from app.ui.tools.service import ToolService
from app.ui.widgets.focus import next_in_focus_order
from tests.ui.models.windows import Windows

TIME = ServerEntry(name="time", command="time", args=["--a b"])
WEB = ServerEntry(name="web", url="https://example.org/mcp")


@pytest.fixture
def page(windows: Windows) -> ToolsPage:
    windows.settings.show_page("Tools")
    windows.until(windows.settings.tools._lane.is_idle)
    return windows.settings.tools


@pytest.fixture
def service(windows: Windows) -> ToolService:
    return windows.ctx.tools


def added(windows: Windows, *entries: ServerEntry, state: str = "ready") -> ServerRow:
    """The row of the first one."""
    service = windows.ctx.tools
    for entry in entries:
        service.put(entry)
    windows.until(lambda: all(service.servers[entry.name].state == state for entry in entries))
    return windows.settings.tools.rows[entries[0].name]


def texts(widget: QWidget) -> str:
    """All that is said on it."""
    labels = [one for one in widget.findChildren(QLabel) if one.isVisibleTo(widget)]
    return "\n".join(one.text() for one in labels).replace("\u200b", "")


def boxes() -> list[QMessageBox]:
    return [one for one in QApplication.topLevelWidgets() if isinstance(one, QMessageBox) and one.isVisible()]


def named_button(widget: QWidget, text: str) -> QPushButton:
    return next(one for one in widget.findChildren(QPushButton) if text in (one.text(), one.accessibleName()))


def test_there_is_something_to_add_at_first(page: ToolsPage) -> None:
    assert not page.rows
    names = [button.accessibleName() for button in page.findChildren(QPushButton)]
    assert names[-6:] == [f"Add {one}" for one in ("Time", "Web pages", "Files", "Git", "Memory", "SQLite")]
    assert "No tools yet." in texts(page)


def test_from_paste_to_ready_are_two_clicks(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    """Then follow Send and Allow."""
    QTest.mouseClick(named_button(page, "Add servers…"), Qt.MouseButton.LeftButton)
    assert page.dialog is not None and not page.dialog.add.isEnabled()
    QApplication.clipboard().setText(json.dumps({"mcpServers": {"clock": {"command": "time", "args": []}}}))
    page.dialog.text.paste()
    QTest.mouseClick(page.dialog.add, Qt.MouseButton.LeftButton)
    windows.until(lambda: service.servers["clock"].state == "ready")
    assert "clock.echo" in [tool.key for tool in service.offered(ChatSettings())]


def test_a_row_says_what_it_runs_and_how_it_goes(page: ToolsPage, windows: Windows) -> None:
    row = added(windows, TIME)
    assert (row.switch.text(), row.switch.isChecked()) == ("time", True)
    assert row._runs.text() == "time '--a b'"
    assert row._state.text() == "ready"
    bad = added(windows, ServerEntry(name="bad\u202e & co", command="fails"), state="failed")
    assert bad.switch.text() == "bad\\u202e && co"
    assert "It couldn't be started." in texts(bad) and "failed" in texts(bad)
    assert bad._log_text.toPlainText() == "first\nno such program"


def test_a_server_is_switched_off_and_on(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    row = added(windows, TIME)
    row.switch.click()
    windows.until(lambda: service.servers["time"].state == "stopped")
    assert row._state.text() == "off" and not row.restart.isEnabled()
    row.switch.click()
    windows.until(lambda: service.servers["time"].state == "ready")
    row.restart.click()
    assert row._state.text() == "starting…"
    windows.until(lambda: row._state.text() == "ready")


def test_tools_are_on_until_they_are_switched_off(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    row = added(windows, TIME)
    assert not row.tools, "they are made when they are first seen"
    row._tools.button.click()
    assert list(row.tools) == ["echo", "wait", "ask", "die", "rubbish"]
    assert all(switch.isChecked() for switch in row.tools.values())
    windows.until(lambda: "Answers with its arguments." in texts(row))
    echo = row.tools["echo"]
    echo.click()
    assert service.entries["time"].off == ["echo"] and row.tools["echo"] is echo, "the focus stays where it is"
    assert "time.echo" not in [tool.key for tool in service.all_tools()]
    echo.click()
    assert service.entries["time"].off == []


def test_what_was_set_is_there_next_time(page: ToolsPage, windows: Windows) -> None:
    added(windows, msgspec.structs.replace(TIME, off=["echo"]))
    windows.ctx.settings.values.built_in_tools = ["calculate"]
    windows.close()
    windows.open()
    windows.ctx.tools.begin()
    windows.settings.show_page("Tools")
    windows.until(lambda: "time" in windows.settings.tools.rows)
    assert windows.ctx.tools.entries["time"].off == ["echo"]
    windows.until(lambda: windows.ctx.tools.servers["time"].state == "ready")


def test_removing_asks_first(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    row = added(windows, TIME)
    row.remove.click()
    (box,) = boxes()
    assert "time" in box.text()
    box.reject()
    assert "time" in service.entries
    row.remove.click()
    (box,) = boxes()
    next(one for one in box.buttons() if one.text() == "Remove").click()
    assert not service.entries and not page.rows


def test_own_tools_in_all_chats(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    assert [switch.text() for switch in page.own.values()] == [
        "Calculator",
        "Current time",
        "List a folder",
        "Read a file",
    ]
    page.own["current_time"].click()
    page.own["calculate"].click()
    assert windows.ctx.settings.values.built_in_tools == ["calculate", "current_time"]
    assert [tool.name for tool in service.offered(ChatSettings())] == ["calculate", "current_time"]
    page.own["calculate"].click()
    assert windows.ctx.settings.values.built_in_tools == ["current_time"]


def test_the_number_of_calls_in_an_answer(page: ToolsPage, windows: Windows) -> None:
    assert page._most.value() == 25
    page._most.setValue(3)
    assert windows.ctx.settings.values.most_tool_calls == 3


def test_what_is_always_allowed_can_be_withdrawn(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    added(windows, TIME)
    tool = next(one for one in service.all_tools() if one.key == "time.echo")
    service.permissions.allow(tool)
    windows.until(lambda: "echo · time" in texts(page))
    named_button(page, "Revoke echo · time").click()
    assert not service.permissions.is_allowed(tool, "chat")
    assert "echo · time" not in texts(page)


def test_working_offline_is_said(page: ToolsPage, windows: Windows) -> None:
    row = added(windows, WEB)
    assert "works offline" not in texts(page)
    windows.ctx.settings.values.offline = True
    windows.ctx.settings.apply()
    windows.ctx.tools.apply_settings()
    windows.until(lambda: row._state.text() == "failed")
    assert "Programs on this computer are started anyway" in texts(page)


def test_a_file_of_another_app_is_imported(page: ToolsPage, windows: Windows, tmp_path: Path) -> None:
    data = Path(__file__).parents[2] / "data" / "mcp" / "claude_desktop_config.json"
    page.import_file(str(data))
    windows.until(lambda: page.dialog is not None)
    assert page.dialog is not None and page.dialog.add.text() == "Add 2 servers"
    page.dialog.reject()
    page.import_file(str(tmp_path / "missing.json"))
    windows.until(
        lambda: any(isinstance(one, QMessageBox) and one.isVisible() for one in QApplication.topLevelWidgets())
    )
    assert not windows.ctx.tools.entries


def test_the_keyboard_goes_as_one_reads_and_everything_has_a_name(page: ToolsPage, windows: Windows) -> None:
    added(windows, TIME, ServerEntry(name="alarm", command="x"))
    page.rows["time"]._tools.button.click()
    windows.until(page._lane.is_idle)
    order, current = [], page.rows["alarm"].switch
    widget: QWidget = current
    while widget not in order:
        order.append(widget)
        widget = next_in_focus_order(widget)
    inside = [one for one in order if page.isAncestorOf(one) and one.focusPolicy() & Qt.FocusPolicy.TabFocus]
    buttons = [one for one in inside if isinstance(one, QAbstractButton) and one.isVisibleTo(page)]
    assert all(one.accessibleName() or one.text() for one in buttons)
    tops = [one.mapTo(page, one.rect().topLeft()).y() for one in buttons]
    start = tops.index(min(tops))
    tops = tops[start:] + tops[:start]
    assert tops == sorted(tops)
    assert len(buttons) > 20


def test_a_hundred_changes_keep_the_focus_where_it_is(page: ToolsPage, windows: Windows, service: ToolService) -> None:
    row = added(windows, TIME)
    row.edit.setFocus()
    for number in range(100):
        service._changed(msgspec.structs.replace(service.servers["time"], log=[str(number)]))
    assert page.rows["time"] is row and windows.settings.focusWidget() is row.edit
    assert row._log_text.toPlainText() == "99"


def test_nothing_that_a_server_says_makes_the_page_wider(page: ToolsPage, windows: Windows) -> None:
    row = added(windows, ServerEntry(name="w" * 60, command="wide", args=["a" * 5000]))
    row._tools.button.click()
    windows.ctx.tools.permissions.allow(next(tool for tool in windows.ctx.tools.all_tools() if tool.server))
    added(windows, ServerEntry(name="f" * 60, command="fails", cwd="c" * 1000), state="failed")
    windows.settings.resize(640, 720)
    windows.until(lambda: bool(row.tools))
    assert page.minimumSizeHint().width() <= 640 - 20


def test_no_command_makes_the_dialog_wider(page: ToolsPage, windows: Windows) -> None:
    page.add(json.dumps({"x" * 200: {"command": "c" * 3000, "args": ["a" * 3000], "env": {"E" * 500: "v" * 500}}}))
    assert page.dialog is not None
    windows.until(page.dialog._lane.is_idle)
    (area,) = page.dialog.findChildren(QScrollArea, options=Qt.FindChildOption.FindDirectChildrenOnly)
    content = area.widget()
    assert content is not None and content.minimumSizeHint().width() <= 400
