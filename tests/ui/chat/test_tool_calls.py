"""Answers in which the model calls tools, with a real engine and the real tools process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.protocol.tools import ToolFormatName
from tests.support.keyrings import MemoryKeyring
from tests.ui.tool_rig import ToolRig


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring) -> Iterator[ToolRig]:
    yield from made_rig(qtbot, tmp_path)


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
    assert [bool(command.tools) for command in rig.asked] == [True, True, True]
    assert rig.asked[-1].tools and rig.asked[-1].tools.none
    assert len(answer.provenance) == len(answer.tokens) == over.tokens + 5
    assert [one.content for one in rig.asked[-1].messages if one.role == "tool"] == [
        done.result,
        f"The call failed. {over.result}",
    ]


def made_rig(qtbot: QtBot, folder: Path, name: ToolFormatName = "hermes", **options: Any) -> Iterator[ToolRig]:
    made = ToolRig(qtbot, folder, name, **options)
    yield made
    made.close()


FORMS: tuple[ToolFormatName, ...] = ("hermes", "general", "mistral-list")


@pytest.mark.parametrize("name", FORMS)
def test_the_next_turn_goes_on_behind_what_was_written(
    qtbot: QtBot, tmp_path: Path, kept: MemoryKeyring, name: ToolFormatName
) -> None:
    with contextlib.contextmanager(made_rig)(qtbot, tmp_path, name) as rig:
        rig.values.most_tool_calls = 3
        rig.begin("weather")
        rig.send()
        answer = rig.finish()
        ends = sorted({call.tokens for call in answer.calls})
        assert len(rig.started) == len(ends) + 1 > 2
        for before, then, begin, end in zip(rig.started, rig.started[1:], [0, *ends], ends, strict=False):
            written = end - begin - 1  # the mark of the end is read with the results
            assert then.cached_tokens == before.prompt_tokens + written
