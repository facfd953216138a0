"""Servers that die, hang, flood and lie: each costs itself, and nobody else waits."""

from __future__ import annotations

import pytest

from app.protocol.tools import MAX_TOOLS
from app.tools.messages import MAX_RESULT_TEXT, StopServer
from tests.support.hostile_server import CASES
from tests.support.tool_process import Process, entry


def test_there_are_enough() -> None:
    assert len(CASES) >= 50


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_server(tools: Process, name: str) -> None:
    case = CASES[name]
    found = tools.start([entry("hostile", "hostile_server", name, timeout_seconds=case.seconds)])["hostile"]
    assert (found.state, case.message in found.message) == (case.state, True), found.message
    assert len(found.message) < 600
    while case.log and not any(case.log in line for line in tools.servers["hostile"].log):
        tools.receive()
    assert len(found.log) <= 200
    assert all(len(line) <= 500 and line.isprintable() for line in found.log)
    if found.state == "ready":
        assert len(found.tools) == case.tools <= MAX_TOOLS
        assert all(len(tool.name) + len(tool.description) <= 20_000 for tool in found.tools)
        ended = tools.run("act", "hostile")
        assert (ended.state if case.call != "?" else "?", case.text in ended.text) == (case.call, True), ended
        assert len(ended.text.encode()) <= MAX_RESULT_TEXT
        assert len(tools.progress) <= 100
    assert all((asked.kind, asked.url) == ("elicitation", "") and found.state == "ready" for asked in tools.asked)
    assert len(tools.asked) <= 50
    assert tools.run("add", a=1, b=1).text == "2"
    tools.send(StopServer(name="hostile"))
    if tools.servers["hostile"].state == "ready":
        tools.until("hostile", "stopped", "failed")
