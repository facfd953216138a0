"""The window's side of the tools process: servers, calls, and what happens when something dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.settings import Settings
from app.tools.entries import ServerEntries
from app.tools.messages import CallEnded, ServerEntry, UserAsked
from app.tools.offered import OfferedTool
from app.ui.notices import NoticeList
from app.ui.tools.service import ToolJob, ToolService
from tests.support import tool_process
from tests.support.keyrings import MemoryKeyring
from tests.support.scripted_tools import COMMAND

TIME = ServerEntry(name="time", command="time")
WEB = ServerEntry(name="web", url="https://example.org/mcp", headers={"Authorization": "Bearer x"})


class Rig:
    """A service, and what it told."""

    def __init__(self, qtbot: QtBot, folder: Path) -> None:
        self.qtbot, self.folder = qtbot, folder
        self.settings, self.notices = Settings(), NoticeList()
        self.service = ToolService(folder, self.settings, self.notices, command=COMMAND)

    def add(self, *entries: ServerEntry, state: str = "ready") -> None:
        for one in entries:
            self.service.put(one)
        self.until(*[one.name for one in entries], state=state)

    def until(self, *names: str, state: str = "ready") -> None:
        service = self.service
        self.qtbot.waitUntil(
            lambda: all(name in service.servers and service.servers[name].state == state for name in names)
        )

    def tool(self, name: str, server: str = "time") -> OfferedTool:
        return next(one for one in self.service.all_tools() if (one.server, one.tool.name) == (server, name))

    def end_of(self, job: ToolJob) -> CallEnded:
        ended: list[CallEnded] = []
        job.ended.connect(ended.append)
        self.qtbot.waitUntil(lambda: bool(ended))
        return ended[0]

    def written(self) -> None:
        self.qtbot.waitUntil(self.service._lane.is_idle)


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[Rig]:
    made = Rig(qtbot, tmp_path)
    yield made
    made.service.close()


def test_there_is_no_process_until_there_is_a_server_that_is_on(rig: Rig) -> None:
    ServerEntries(rig.folder).put(msgspec.structs.replace(TIME, is_on=False))
    with rig.qtbot.waitSignal(rig.service.changed):
        rig.service.begin()
    assert rig.service.servers["time"].state == "stopped"
    assert not rig.service.process_id() and not rig.service.offered(ChatSettings())


def test_servers_are_started_with_their_secrets(rig: Rig) -> None:
    entries = ServerEntries(rig.folder)
    entries.put(TIME)
    entries.put(WEB)
    entries.keep_login("web", "login")
    rig.service.begin()
    rig.until("time", "web")
    assert rig.service.servers["web"].version == "https://example.org/mcp Bearer x login"
    assert [tool.key for tool in rig.service.offered(ChatSettings())][:2] == ["time.ask", "time.die"]


def test_a_call_has_progress_and_a_result(rig: Rig) -> None:
    rig.add(TIME)
    job = rig.service.call(rig.tool("echo"), '{"text": "hello"}')
    progress: list[tuple[float, object, str]] = []
    job.progressed.connect(lambda *told: progress.append(told))
    ended = rig.end_of(job)
    assert (ended.state, ended.text, ended.seconds) == ("done", '{"text": "hello"}', 0.5)
    assert progress == [(1.0, 2.0, "half")]
    assert rig.end_of(rig.service.get_prompt("time", "greet", {})).text == "greet"
    assert rig.end_of(rig.service.read_resource("time", "file:///x")).text == "file:///x"


def test_calls_run_at_once_and_are_canceled_one_by_one(rig: Rig) -> None:
    rig.add(TIME)
    first, second = (rig.service.call(rig.tool("wait"), "{}") for _ in range(2))
    assert rig.end_of(rig.service.call(rig.tool("echo"), "{}")).state == "done"
    rig.service.cancel(second)
    assert rig.end_of(second).state == "stopped"
    rig.service.cancel(first)
    assert rig.end_of(first).state == "stopped"


def test_what_is_offered_in_a_chat(rig: Rig) -> None:
    rig.add(msgspec.structs.replace(TIME, off=["die"]), WEB)
    everything = rig.service.offered(ChatSettings())
    assert len(everything) == 9 and "time.die" not in [tool.key for tool in everything]
    chosen = rig.service.offered(ChatSettings(tools=["web.echo", "time.echo", "time.die", "gone.tool"]))
    assert [tool.name for tool in chosen] == ["time_echo", "web_echo"]
    assert rig.service.offered(ChatSettings(tools=[])) == []


def test_built_in_tools_are_off_until_they_are_wanted(rig: Rig) -> None:
    assert [tool.key for tool in rig.service.all_tools()] == [
        ".calculate", ".current_time", ".list_folder", ".read_file",
    ]  # fmt: skip
    assert rig.service.offered(ChatSettings()) == []
    assert [tool.name for tool in rig.service.offered(ChatSettings(tools=[".calculate"]))] == ["calculate"]
    rig.settings.built_in_tools = ["current_time"]
    assert [tool.name for tool in rig.service.offered(ChatSettings())] == ["current_time"]
    assert rig.service.offered(ChatSettings(tools=[])) == []
    assert not rig.service.process_id()


@pytest.mark.allow_logs
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
def test_the_real_process_has_a_calculator_and_runs_servers(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> None:
    rig = Rig(qtbot, tmp_path)
    rig.service = ToolService(tmp_path, rig.settings, rig.notices)
    calculate = next(tool for tool in rig.service.all_tools() if tool.name == "calculate")
    assert rig.end_of(rig.service.call(calculate, '{"expression": "1/3 + 1/6"}')).text == "0.5"
    rig.add(tool_process.entry("real"))
    echo = rig.tool("echo", "real")
    assert "hello" in rig.end_of(rig.service.call(echo, '{"text": "hello"}')).text
    os.kill(rig.service.process_id(), signal.SIGKILL)
    rig.until("real", state="stopped")
    assert "again" in rig.end_of(rig.service.call(echo, '{"text": "again"}')).text
    rig.service.close()


def test_a_server_that_is_off_ends_and_offers_nothing(rig: Rig) -> None:
    rig.add(TIME)
    tool = rig.tool("echo")
    rig.add(msgspec.structs.replace(TIME, is_on=False), state="stopped")
    assert not rig.service.offered(ChatSettings())
    assert rig.end_of(rig.service.call(tool, "{}")).state == "failed"
    rig.add(TIME)
    assert rig.end_of(rig.service.call(tool, "{}")).state == "done"


def test_a_call_does_not_wait_for_a_server_that_is_switched_off(rig: Rig) -> None:
    rig.add(TIME)
    tool = rig.tool("echo")
    rig.service.put(msgspec.structs.replace(TIME, command="hangs"))
    job = rig.service.call(tool, "{}")
    rig.service.put(msgspec.structs.replace(TIME, is_on=False))
    ended = rig.end_of(job)
    assert (ended.state, ended.text) == ("failed", "The server “time” doesn't exist or is switched off.")


def test_a_call_that_waited_does_not_run_with_another_tool_than_was_allowed(rig: Rig) -> None:
    rig.add(TIME)
    tool = rig.tool("echo")
    rig.service.put(msgspec.structs.replace(TIME, command="other"))
    ended = rig.end_of(rig.service.call(tool, "{}"))
    assert ended.state == "failed" and "has changed" in ended.text
    assert rig.end_of(rig.service.call(rig.tool("echo"), "{}")).state == "done"


def test_switching_a_tool_off_does_not_start_its_server_again(rig: Rig) -> None:
    rig.add(TIME)
    job = rig.service.call(rig.tool("wait"), "{}")
    rig.service.put(msgspec.structs.replace(TIME, off=["die"]))
    assert rig.service.servers["time"].state == "ready"
    rig.service.cancel(job)
    assert rig.end_of(job).state == "stopped"


def test_a_call_that_waits_for_its_server_does_not_run_another_tool(rig: Rig) -> None:
    rig.add(msgspec.structs.replace(TIME, command="changes"))
    allowed = rig.tool("echo")
    rig.service.start("time")
    job = rig.service.call(allowed, '{"text": "secret"}')
    assert rig.service.servers["time"].state == "starting", "the call waits for it"
    ended = rig.end_of(job)
    assert ended.state == "failed" and "The tool has changed" in ended.text
    assert rig.end_of(rig.service.call(rig.tool("echo"), "{}")).state == "done"


def test_a_tool_that_was_switched_off_since_it_was_offered_does_not_run(rig: Rig) -> None:
    rig.add(TIME)
    allowed = rig.tool("echo")
    rig.service.put(msgspec.structs.replace(TIME, off=["echo"]))
    ended = rig.end_of(rig.service.call(allowed, "{}"))
    assert ended.state == "failed" and "switched off" in ended.text


def test_a_server_that_does_not_start_is_told_with_its_last_lines(rig: Rig) -> None:
    rig.add(ServerEntry(name="bad", command="fails"), state="failed")
    text = rig.notices.notices()["tools bad"].text
    assert (
        "“bad”" in text
        and "It couldn't be started." in text
        and text.endswith("It last printed: “first / no such program”.")
    )
    rig.add(ServerEntry(name="bad", command="works"))
    assert not rig.notices.notices()


def test_a_server_whose_variable_is_missing_is_not_started(rig: Rig) -> None:
    rig.add(ServerEntry(name="bad", command="x", args=["${env:NOT_SET_ANYWHERE}"]), state="failed")
    assert "${env:NOT_SET_ANYWHERE}" in rig.service.servers["bad"].message


@pytest.mark.allow_logs
@pytest.mark.parametrize("tool", ["die", "rubbish"])
def test_every_open_call_ends_with_the_process_and_the_next_one_starts_it_again(rig: Rig, tool: str) -> None:
    rig.add(TIME, WEB)
    waiting, asking = rig.service.call(rig.tool("wait"), "{}"), rig.service.call(rig.tool("ask"), "{}")
    withdrawn: list[int] = []
    rig.service.withdrawn.connect(withdrawn.append)
    with rig.qtbot.waitSignal(rig.service.asked):
        pass
    killing = rig.service.call(rig.tool(tool, "web"), "{}")
    ended: list[CallEnded] = []
    for job in (waiting, asking, killing):
        job.ended.connect(ended.append)
    rig.qtbot.waitUntil(lambda: len(ended) == 3)
    assert {one.state for one in ended} == {"failed"} and "ended unexpectedly" in ended[0].text
    assert withdrawn == [asking.request]
    assert not rig.service.process_id()
    notice = rig.notices.notices()["tools process"].text
    assert tool == "rubbish" or notice.endswith("the last line”.")
    assert rig.service.offered(ChatSettings()), "the model may go on with its tools"
    assert rig.end_of(rig.service.call(rig.tool("echo"), '{"a": 1}')).text == '{"a": 1}'
    assert not rig.notices.notices(), "it runs again"
    assert rig.service.servers["web"].state == "stopped", "nothing has needed it yet"
    assert rig.end_of(rig.service.call(rig.tool("echo", "web"), '{"b": 1}')).text == '{"b": 1}'


@pytest.mark.allow_logs
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
def test_a_killed_process_leaves_the_window_alone(rig: Rig) -> None:
    rig.add(TIME)
    for _ in range(5):
        job = rig.service.call(rig.tool("wait"), "{}")
        os.kill(rig.service.process_id(), signal.SIGKILL)
        assert rig.end_of(job).state == "failed"
    assert rig.end_of(rig.service.call(rig.tool("echo"), "{}")).state == "done"


@pytest.mark.allow_logs
def test_a_process_that_does_not_start_fails_each_call(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> None:
    rig = Rig(qtbot, tmp_path)
    rig.service = ToolService(tmp_path, rig.settings, rig.notices, command=[str(tmp_path / "no such program")])
    rig.service.put(TIME)
    job = rig.service.get_prompt("time", "x", {})
    assert rig.end_of(job).state == "failed"
    rig.service.close()


def test_a_call_to_a_server_that_still_starts_waits_and_can_be_canceled(rig: Rig) -> None:
    rig.add(ServerEntry(name="slow", command="hangs"), state="starting")
    first, second, third = (rig.service.get_prompt("slow", "x", {}) for _ in range(3))
    rig.service.cancel(first)
    assert rig.end_of(first).state == "stopped"
    rig.service.put(ServerEntry(name="slow", command="hangs", is_on=False))
    ended: list[CallEnded] = []
    third.ended.connect(ended.append)
    assert rig.end_of(second).state == "failed"
    rig.qtbot.waitUntil(lambda: len(ended) == 1)


def test_what_is_said_of_a_server_goes_when_it_is_switched_off(rig: Rig) -> None:
    rig.add(ServerEntry(name="bad", command="fails"), state="failed")
    assert "tools bad" in rig.notices.notices()
    rig.service.put(ServerEntry(name="bad", command="fails", is_on=False))
    assert not rig.notices.notices()


def test_removing_ends_what_waits(rig: Rig) -> None:
    rig.add(ServerEntry(name="slow", command="hangs"), state="starting")
    job = rig.service.get_prompt("slow", "x", {})
    rig.service.remove("slow")
    assert rig.end_of(job).state == "failed"


def test_working_offline_stops_addresses_and_not_commands(rig: Rig) -> None:
    rig.add(TIME, WEB)
    rig.settings.offline = True
    rig.service.apply_settings()
    rig.until("web", state="failed")
    rig.until("time")
    assert {tool.server for tool in rig.service.offered(ChatSettings())} == {"time"}
    rig.settings.offline = False
    rig.service.apply_settings()
    rig.until("web")


def test_a_question_is_answered_once(rig: Rig) -> None:
    rig.add(TIME)
    asked: list[UserAsked] = []
    rig.service.asked.connect(asked.append)
    job = rig.service.call(rig.tool("ask"), "{}")
    rig.qtbot.waitUntil(lambda: bool(asked))
    assert (asked[0].server, asked[0].message) == ("time", "Who?")
    rig.service.reply(asked[0].question, "accept", name="me")
    rig.service.reply(asked[0].question, "decline")
    assert rig.end_of(job).text == "accept {'name': 'me'}"


def test_a_removed_server_is_forgotten(rig: Rig, kept: MemoryKeyring) -> None:
    rig.add(ServerEntry(name="login", command="login", env={"API_KEY": "x"}))
    rig.written()
    assert len(kept.entries) == 2
    rig.service.permissions.allow(rig.tool("echo", "login"))
    rig.service.remove("login")
    rig.written()
    assert not kept.entries and not ServerEntries(rig.folder).all()
    assert not rig.service.permissions.all() and not rig.service.offered(ChatSettings())


def test_what_was_changed_is_written_when_it_closes(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> None:
    rig = Rig(qtbot, tmp_path)
    rig.service.put(TIME)
    rig.service.put(msgspec.structs.replace(TIME, name="clock"), instead_of="time")
    rig.service.close()
    assert list(ServerEntries(tmp_path).all()) == ["clock"]


def test_a_call_that_is_too_large_fails_alone(rig: Rig) -> None:
    rig.add(TIME)
    ended = rig.end_of(rig.service.call(rig.tool("echo"), " " * (70 * 1024 * 1024)))
    assert ended.state == "failed"
    assert rig.end_of(rig.service.call(rig.tool("echo"), "{}")).state == "done"
