"""Answers in which the model calls tools, with a real engine and the real tools process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.support.keyrings import MemoryKeyring
from tests.ui.tool_rig import ToolRig


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[ToolRig]:
    made = ToolRig(qtbot, tmp_path)
    yield made
    made.close()


def test_the_model_calls_and_the_user_allows(rig: ToolRig) -> None:
    rig.begin("weather")
    (call,) = rig.send()
    assert (call.state, call.name, call.server) == ("asked", "weather", "test")
    assert not rig.queue._running, "the engine is free"
    rig.model.decide(call.id, "once")
    answer = rig.finish()
    done, over = answer.calls
    assert (answer.status, answer.text) == ("complete", "<tool_call> yes no.")
    assert done.state == "done" and done.result.startswith("Sunny in ")
    assert over.state == "failed" and "may make 1 tool call" in over.result
    assert [bool(command.tools) for command in rig.asked] == [True, True, False]
    assert len(answer.provenance) == len(answer.tokens) == over.tokens + 5
    assert [one.content for one in rig.asked[-1].messages if one.role == "tool"] == [
        done.result,
        f"The call failed. {over.result}",
    ]
