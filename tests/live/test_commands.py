"""The command line, and the window, with a live server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chats.settings import ChatSettings
from app.protocol.answering import SamplingChoice
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair_names import PairFiles
from app.ui.speed.drawings import PositionBars
from app.ui.speed.parts import ServerSection
from tests.live.test_answers import COUNT
from tests.support.command_line import called
from tests.support.live_servers import DRAFT_LENGTH, LiveServer
from tests.ui.conftest import application, user
from tests.ui.shell.running import WAIT_MS, Running
from tests.ui.speed.parts import status_of

__all__ = ["application", "user"]
PROMPT = COUNT[0].content


class Greedy(Running):
    FIRST_SETTINGS = ChatSettings(max_tokens=24, sampling=SamplingChoice(temperature=0.0))


def test_generate(drafting: LiveServer) -> None:
    given = ("generate", "--server", drafting.host, "--temperature", "0", "--max-tokens", "30", "--prompt", PROMPT)
    shown = called(*given)
    found = json.loads(called(*given, "--json").stdout)
    assert (shown.returncode, shown.stderr, shown.stdout.strip()) == (0, "", found["text"].strip())
    draft = found["draft"]
    assert 0 < draft["accepted"] == sum(draft["accepted_per_position"]) <= draft["drafted"]
    shares = draft["acceptance_by_position"]
    assert len(shares) == DRAFT_LENGTH and shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1


@pytest.fixture
def running(qtbot: QtBot, user: Path) -> Iterator[Greedy]:
    running = Greedy(qtbot, EngineClient())
    running.begin()
    yield running
    running.close()
    running.engine.deleteLater()


def test_the_window_shows_what_was_accepted_by_position(running: Greedy, drafting: LiveServer) -> None:
    loader, panel = running.ctx.loader, running.window.speed_panel
    loader.load(PairFiles("", server=drafting.url))
    running.qtbot.waitUntil(
        lambda: loader.remote() is not None and running.engine.state() is EngineState.READY, timeout=WAIT_MS
    )
    running.ask(PROMPT)
    answer = running.model.messages[-1]
    assert answer.status == "complete" and answer.text.strip()
    running.qtbot.waitUntil(lambda: status_of(panel).startswith("Drafting on the server · "), timeout=WAIT_MS)
    section = panel.findChild(ServerSection)
    assert isinstance(section, ServerSection) and section.isVisible()
    bars = section.findChild(PositionBars)
    assert isinstance(bars, PositionBars)
    running.qtbot.waitUntil(bars.isVisible, timeout=WAIT_MS)  # once the answer is complete
    assert bars.accessibleDescription().startswith("1: ")
    assert len(bars.places) == DRAFT_LENGTH
