"""What the window says while another program is answered, and the Stop button beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app import system
from app.protocol.commands import Generate, Message
from app.protocol.events import Round, RoundsReceived
from app.protocol.serving import Serve
from app.settings import Pair, SettingsFile
from app.ui.engine import Priority
from app.ui.engine.client import EngineClient, EngineState
from app.ui.server.bar import ServingBar, answering_title, figures_of, name_of
from app.ui.server.serving import ServedAnswer
from tests.support.served import Client
from tests.ui.shell.running import WAIT_MS, Running

ENDLESS = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}


class Serving(Running):
    """The whole window, serving."""

    FIRST_SETTINGS = None

    def __init__(self, qtbot: QtBot, pair: tuple[Path, Path]) -> None:
        file = SettingsFile(system.settings_file())
        file.values.last_pair = Pair(*map(str, pair))
        file.save()
        super().__init__(qtbot, EngineClient())
        self.bar = self.window.serving_bar
        self.serving = self.app.serving
        self.ctx.queue._idle.setInterval(10**8)  # on a busy machine, the pair would be tried out meanwhile
        self.app.begin()
        self.until(lambda: self.ctx.loader.pair() is not None)
        self.serving.start(Serve(host=None, port=0, key=None))
        self.until(lambda: self.serving.state.kind == "listening")
        self.client = Client(self.serving.state.addresses[0][1])
        with ThreadPoolExecutor(1) as pool:
            self.until(pool.submit(self.client.wait_until_healthy).done)

    def until(self, condition: Callable[[], bool]) -> None:
        self.qtbot.waitUntil(condition, timeout=WAIT_MS)


@pytest.fixture
def running(qtbot: QtBot, wordy_pair: tuple[Path, Path], user: Path, kept: object) -> Iterator[Serving]:
    made = Serving(qtbot, wordy_pair)
    yield made
    made.close()


def test_it_says_for_whom_and_how_fast_and_can_be_stopped(running: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    bar, panel = running.bar, running.window.speed_panel
    told: list[object] = []
    for name in ("begin_generation", "add_rounds", "end_generation", "set_curve", "set_draft_failure"):
        monkeypatch.setattr(panel, name, lambda *values, name=name: told.append((name, values)))
    assert bar.isHidden()
    with running.client.connected() as client:
        client.ask(ENDLESS)
        running.until(lambda: "tok/s" in bar.accessibleName())
        assert bar.accessibleName().startswith("Answering for another program")
        assert running.engine.state() is EngineState.SERVING
        bar.stop.click()
        running.until(bar.isHidden)
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(client.receive, b"[DONE]")
            running.until(rest.done)
        assert b"[DONE]" in rest.result()
    running.until(lambda: running.engine.state() is EngineState.READY)
    assert told == []  # the panel is about the chats


def test_while_a_chat_is_answered_it_says_who_waits_and_a_comparison_goes_first_too(running: Serving) -> None:
    with running.client.connected() as client:
        client.ask(ENDLESS)
        running.until(lambda: "tok/s" in running.bar.accessibleName())
        assert running.ctx.chats.current.send("Do I have to wait?")
        running.until(lambda: "is waiting for the chat" in running.bar.accessibleName())
        running.until(lambda: running.engine.state() is EngineState.ANSWERING)
        running.ctx.chats.current.stop()
        running.until(lambda: running.bar.accessibleName().startswith("Answering"))
        running.until(lambda: running.engine.state() is EngineState.SERVING)
        compare = running.app.compare
        compare.compare_last()
        running.until(lambda: running.engine.state() is EngineState.COMPARING)
        assert running.serving.answer is not None and not running.serving.is_writing()
        compare.runner.stop()
        running.until(lambda: running.engine.state() is EngineState.SERVING)
    running.until(running.bar.isHidden)


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("Zed/0.200", "Zed"),
        ("?", "another program"),
        ("", "another program"),
        ("evil\n\u202ename", "evil\\n\\u202ename"),
        ("x" * 80, "x" * 40 + "…"),
    ],
)
def test_names(client: str, name: str) -> None:
    assert name_of(client) == name


def test_lines() -> None:
    answer = ServedAnswer("?", Generate(request=1, messages=[Message(role="user", content="?")]))
    assert answering_title(answer, None) == "Answering for another program"
    assert answering_title(answer, []) == "Another program is waiting for the engine"
    assert answering_title(answer, [Priority.COMPARISON]) == "Another program is waiting for the comparison"
    assert figures_of(answer) == ""
    answer.advanced(RoundsReceived(request=1, rounds=[Round(index=0, verify_passes=0, tokens=1)]))
    assert figures_of(answer).replace("\u00a0", " ") == "1 token"
    answer.advanced(RoundsReceived(request=1, rounds=[Round(index=1, verify_passes=1, tokens=37, time=0.5)]))
    assert figures_of(answer).replace("\u00a0", " ") == "38 tokens · 74 tok/s"
    assert figures_of(answer, is_written=False).replace("\u00a0", " ") == "38 tokens"


def test_a_long_name_never_widens_the_window(qtbot: QtBot, qapp: QApplication) -> None:
    bar = ServingBar()
    qtbot.addWidget(bar)
    bar.resize(360, 40)
    bar._show_answer("Answering for " + "x" * 400, "12,345 tokens · 74 tok/s", is_written=True)
    assert bar.minimumSizeHint().width() <= 360
    assert bar.stop.accessibleName() == "Stop the answer for the other program"
