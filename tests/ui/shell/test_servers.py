"""The whole window with a model on a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app import system
from app.client.connection import Timings
from app.settings import Pair, SettingsFile
from app.ui.chat.answers import CONSENT
from app.ui.chat.settings_tab import GRAYED, NO_SUCH_FORMAT
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair_names import PairFiles
from app.ui.models.servers import ServerDialog
from app.ui.speed.parts import ServerSection
from app.ui.widgets.forms import Decimal
from tests.support import remote_streams
from tests.support.model_server import ModelServer, Reply
from tests.ui.shell.running import WAIT_MS
from tests.ui.shell.test_messages import Chatting
from tests.ui.speed.parts import status_of

CHAT = "/v1/chat/completions"
OpenWindow = Callable[..., Chatting]


@pytest.fixture
def open_window(qtbot: QtBot) -> Iterator[OpenWindow]:
    opened: list[Chatting] = []

    def open_it(last: Pair | None = None, *, far: str = "") -> Chatting:
        """``far``: how a server on another computer behaves, which is scripted."""
        if last is not None:
            file = SettingsFile(system.settings_file())
            file.values.remember_pair(last)
            file.save()
        command = [sys.executable, "-m", "tests.ui.scripted_engine"]
        engine = EngineClient()
        if far:
            engine = EngineClient([*command, "far"], Timings(quit=0.5), for_servers=[*command, far])
        opened.append(Chatting(qtbot, engine))
        opened[-1].begin()
        return opened[-1]

    yield open_it
    for running in opened:
        running.close()
        running.engine.deleteLater()


@pytest.fixture
def vllm() -> Iterator[ModelServer]:
    with ModelServer(remote_streams.vllm(remote_streams.VLLM_METRICS)) as server:
        yield server


def connected(running: Chatting) -> None:
    running.qtbot.waitUntil(
        lambda: running.ctx.loader.remote() is not None and running.engine.state() is EngineState.READY,
        timeout=WAIT_MS,
    )


def connect(running: Chatting, address: str) -> None:
    running.ctx.loader.load(PairFiles("", server=address))
    connected(running)


def notices_of(running: Chatting) -> dict[str, tuple[str, ...]]:
    return {subject: one.actions for subject, one in running.ctx.notices.notices().items()}


def section(running: Chatting) -> ServerSection:
    found = running.window.speed_panel.findChild(ServerSection)
    assert isinstance(found, ServerSection)
    return found


def test_the_window_says_where_the_model_is_and_what_it_drafts(open_window: OpenWindow, vllm: ModelServer) -> None:
    running = open_window(Pair("m", server=vllm.url))  # as at the next start
    connected(running)
    assert running.window.top_bar.pair.text() == f"m · 127.0.0.1:{vllm.port}"
    assert "vLLM 0.29.0" in running.window.top_bar.pair.toolTip()
    running.ask("What happened?")
    answer = running.model.messages[-1]
    assert (answer.text, answer.thinking, answer.status) == (remote_streams.TEXT, "Let me", "complete")
    panel = running.window.speed_panel
    running.qtbot.waitUntil(lambda: "29% accepted · 2.5 tokens per pass" in status_of(panel), timeout=WAIT_MS)
    assert status_of(panel).startswith("Drafting on the server · ")
    footer = running.answer().footer
    assert footer is not None and "29% accepted · 2.5 tokens per pass" in footer.text().replace("\u00a0", " ")
    for control in (panel.draft_length, panel.drafter, panel.head, panel.show_drafted, panel.plain_speed):
        assert not control.isVisible()
    assert section(running).isVisible() and "--per-request-spec-decode-metrics" in section(running).note()
    assert running.settings.values.recent_pairs[0] == Pair("m", server=vllm.url)
    assert not running.is_enabled("measure_plain")
    assert not notices_of(running)
    running.choose("compare_last")
    one = running.app.compare.one
    assert "vLLM 0.29.0 can't switch drafting off" in one.verdict.text()
    assert not one.footer.run_button.isEnabled()
    assert "Without a draft" not in running.entries(-1)


def test_what_a_server_does_not_take_is_gray_and_not_sent(open_window: OpenWindow) -> None:
    running = open_window(far="far")
    connect(running, "http://127.0.0.1:8000")
    tab = running.window.settings_tab
    assert (
        not tab.parameters["top_k"].isEnabled()
        and "doesn't have this setting" in tab.parameters["top_k"].field.toolTip()
    )
    assert not tab.by_key["overflow"].isEnabled() and "up to vLLM" in tab.by_key["overflow"].toolTip()
    assert not tab.by_key["drafter"].isEnabled() and tab.parameters["temperature"].isEnabled()
    formats = tab.by_key["answer_format"].model()
    for place in range(tab.by_key["answer_format"].count()):
        index = formats.index(place, 0)
        is_offered = tab.by_key["answer_format"].itemData(place) in ("text", "json_schema")
        assert bool(formats.flags(index) & Qt.ItemFlag.ItemIsEnabled) is is_offered
        assert (formats.data(index, Qt.ItemDataRole.ToolTipRole) == NO_SUCH_FORMAT) is not is_offered
    temperature = tab.parameters["temperature"].field
    assert isinstance(temperature, Decimal)
    temperature.setValue(0.3)
    running.ask("Hello")
    assert running.model.messages[-1].text == " 1 temperature"  # the rest is left to the server
    running.choose("load_guide")
    running.qtbot.waitUntil(lambda: running.ctx.loader.remote() is None, timeout=WAIT_MS)
    running.ready()
    assert (
        tab.parameters["top_k"].isEnabled() and tab.by_key["overflow"].isEnabled() and tab.by_key["drafter"].isEnabled()
    )
    assert GRAYED not in tab.foot()


def test_a_server_that_is_down_at_the_start_can_be_left_or_tried_again(
    open_window: OpenWindow, vllm: ModelServer, guide_pair: tuple[Path, Path]
) -> None:
    models = vllm.routes["/v1/models"]
    vllm.routes["/v1/models"] = Reply.of({"error": {"message": "too many", "code": 429}}, 429)
    running = open_window(Pair("m", server=vllm.url))
    panel = running.window.speed_panel
    running.qtbot.waitUntil(lambda: "load" in notices_of(running), timeout=WAIT_MS)
    running.qtbot.waitUntil(lambda: status_of(panel).startswith("Not connected"), timeout=WAIT_MS)
    assert notices_of(running)["load"][0] == "connect_again"
    running.actions.run("load_guide")
    running.ready()
    assert running.ctx.loader.remote() is None and not notices_of(running)
    assert panel.draft_length.isVisible() and not section(running).isVisible()
    running.qtbot.waitUntil(panel.plain_speed.isVisible, timeout=WAIT_MS)
    running.actions.run("load_recent", running.settings.values.recent_pairs[0])
    running.qtbot.waitUntil(lambda: "load" in notices_of(running), timeout=WAIT_MS)
    vllm.routes["/v1/models"] = models
    running.actions.run("connect_again")
    connected(running)
    assert not notices_of(running) and not panel.draft_length.isVisible()
    assert vllm.bodies(CHAT) == []


def test_a_local_chat_asks_before_it_goes_anywhere_and_offline_the_server_is_left(open_window: OpenWindow) -> None:
    running = open_window(far="far")
    running.ready()
    running.ask("Hello")
    connect(running, "http://far.example:8000")
    running.type("And then?")
    running.qtbot.waitUntil(lambda: CONSENT in notices_of(running), timeout=WAIT_MS)
    running.actions.run("send_chat")
    running.settle()
    assert running.model.messages[-1].text == " 3" and not notices_of(running)
    running.app.opening.open_server()  # what is used is what the dialog begins with
    (dialog,) = running.window.findChildren(ServerDialog)
    assert dialog.isVisible() and dialog.address.text() == "http://far.example:8000"
    dialog.reject()
    running.app.ctx.settings.apply()
    assert running.ctx.loader.remote() is not None
    running.settings.values.offline = True
    running.app.ctx.settings.apply()
    running.qtbot.waitUntil(lambda: "load" in notices_of(running), timeout=WAIT_MS)
    assert running.ctx.loader.remote() is None
    assert running.ctx.notices.notices()["load"].text == "far.example:8000 is another computer."
