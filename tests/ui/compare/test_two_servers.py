"""The Compare window with a second server, which answers without a draft: real processes for servers, and servers on
the loopback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.client.stalls import Timings
from app.protocol.options import Sampling
from app.settings import Pair, Settings
from app.ui.chat.conversation import AnswerSettings
from app.ui.compare import wording
from app.ui.engine.interface import EngineState
from app.ui.engine.local_engine import LocalEngine
from tests.support import remote_streams
from tests.support.keyrings import MemoryKeyring
from tests.support.model_server import Answer, Cut, ModelServer, Reply, Wait
from tests.support.remote_streams import TEXT, chunk
from tests.ui.compare.comparing import Comparing
from tests.ui.parts import WAIT_MS, Rig

CHAT = "/v1/chat/completions"
FAR = "http://far.example:8000"


class ServerRig(Rig):
    """With the real process for servers."""

    @staticmethod
    def _engine(behavior: str, timings: Timings) -> LocalEngine:
        return LocalEngine([sys.executable, "-m", "tests.ui.scripted_engine", behavior], timings)


Make = Callable[..., Comparing]


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Make]:
    made: list[Comparing] = []

    def start(
        address: str, values: Settings | None = None, *, second: LocalEngine | None = None, rig: type[Rig] = ServerRig
    ) -> Comparing:
        """A chat with a model on this server."""
        behavior = "sound" if rig is ServerRig else "far"
        at = Comparing(rig(qtbot, tmp_path, behavior), values, second)
        made.append(at)
        at.chat.connect(address)
        return at

    yield start
    for at in made:
        if isValid(at.presenter):
            at.presenter.close()
        at.close()
        at.chat.close()


@pytest.fixture
def drafting() -> Iterator[ModelServer]:
    with ModelServer(remote_streams.llama_server()) as server:
        yield server


@pytest.fixture
def plain() -> Iterator[ModelServer]:
    with ModelServer(remote_streams.llama_server(is_drafting=False)) as server:
        yield server


def asked(at: Comparing, plain: ModelServer, text: str = "Hello") -> None:
    """The chat has an answer, and the second server is chosen."""
    at.values.remember_plain_server(at.chat.pair_loader.files().server, Pair("", server=plain.url))  # type: ignore[union-attr]
    at.chat.ask(text)


def compare(at: Comparing) -> None:
    at.presenter.compare_answer(at.last_answer())


def later(normal: Answer, special: Reply, first: int = 1, last: int = 1) -> Answer:
    """What is special about the requests ``first`` to ``last``, counted from 0."""
    count = iter(range(1000))
    return lambda one: special if first <= next(count) <= last else normal(one) if callable(normal) else normal


def titles(at: Comparing) -> tuple[str, str]:
    return at.window.one.plain._server.text(), at.window.one.drafted._server.text()


def test_a_server_is_chosen_and_an_answer_compared(make: Make, drafting: ModelServer, plain: ModelServer) -> None:
    at = make(drafting.url)
    at.chat.settings = AnswerSettings(chosen=())
    at.chat.ask("Hello")
    compare(at)
    assert at.verdict() == wording.NO_SECOND.format(server="llama-server b9000-0c1e570")
    at.window.one.server.button.click()
    assert at.choose is not None
    at.choose("/models/q.gguf", plain.url)
    assert (at.saves, at.values.plain_servers) == (1, {drafting.url: Pair("/models/q.gguf", server=plain.url)})
    at.qtbot.waitUntil(lambda: at.presenter.second.pair() is not None, timeout=WAIT_MS)
    assert at.window.one.server.text() == f"llama-server b9000-0c1e570 at 127.0.0.1:{plain.port}"
    assert plain.bodies(CHAT) == []  # nothing of the chat was sent to see what it is
    at.qtbot.waitUntil(lambda: at.presenter.second.engine.state() is EngineState.STOPPED, timeout=WAIT_MS)
    before = len(drafting.bodies(CHAT))
    at.window.one.footer.run_button.click()
    at.idle()
    assert at.verdict().startswith("✓ Same text, 6 tokens, same seed · ")
    assert at.verdict().endswith(wording.TWO_SERVERS)
    assert titles(at) == tuple(
        f"llama-server b9000-0c1e570 at 127.0.0.1:{one.port}" for one in (plain, drafting)
    )  # which gave which number
    mine, other = drafting.bodies(CHAT)[before:], plain.bodies(CHAT)
    assert [one.get("max_tokens") for one in (*mine, *other)] == [1, None, 1, None]  # one of each to begin with
    for name in ("messages", "seed", "temperature", "top_k"):  # the first server's own, where none was chosen
        assert mine[-1][name] == other[-1][name]
    assert "accept rule" not in at.window.one._settings.text()
    assert at.presenter.second.engine.state() is EngineState.STOPPED


def test_a_set_of_prompts_and_its_export(
    qtbot: QtBot,
    make: Make,
    drafting: ModelServer,
    plain: ModelServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = make(drafting.url)
    asked(at, plain)
    path = tmp_path / "mine.txt"
    path.write_text("One\nTwo\n", encoding="utf-8")
    many, before = at.window.many, len(drafting.bodies(CHAT))
    at.presenter.compare_prompts()
    many.choice.open_file(path)
    many.footer.run_button.click()
    at.idle()
    assert (len(plain.bodies(CHAT)), len(drafting.bodies(CHAT)) - before) == (3, 3)
    assert many.verdict.text().startswith("✓ Same text in all 2 · ")
    for place, one in ((f"127.0.0.1:{plain.port}", "Without"), (f"127.0.0.1:{drafting.port}", "With")):
        assert f"{one} a draft: llama-server b9000-0c1e570 at {place}." in many.verdict.text()
    at.presenter._open(1)
    assert titles(at) != ("", "")
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "set"), ""))
    for name in ("JSON", "Markdown"):
        with qtbot.waitSignal(at.presenter.exporter.ended, timeout=WAIT_MS):
            next(one for one in many.footer.export_menu.actions() if one.data() == name).trigger()
    report = json.loads((tmp_path / "set.json").read_text("utf-8"))
    assert report["setup"]["servers"] == ["llama-server b9000-0c1e570"] * 2
    assert [one["plain"]["figures"]["draft"]["drafted"] for one in report["comparisons"]] == [0, 0]
    assert [one["drafted"]["figures"]["draft"]["drafted"] for one in report["comparisons"]] == [6, 6]
    text = (tmp_path / "set.md").read_text("utf-8")
    assert "| server without a draft | llama-server b9000-0c1e570 |" in text
    assert "on a second server" in text


def test_different_texts_of_two_servers_are_no_fault(make: Make, drafting: ModelServer, plain: ModelServer) -> None:
    plain.routes[CHAT] = Reply.stream(
        chunk({"content": "Three"}), chunk({"content": " draft"}), chunk({}, finish_reason="stop")
    )
    at = make(drafting.url)
    at.chat.ask("Hello")
    at.values.remember_plain_server(drafting.url, Pair("/models/q.gguf", server=drafting.url))
    compare(at)
    assert at.verdict() == wording.SAME_SERVER
    assert not at.window.one.footer.run_button.isEnabled()
    for temperature, why in ((0.0, "Two servers can round differently"), (0.8, "Two servers may draw different")):
        at.chat.settings = AnswerSettings(sampling=Sampling(temperature=temperature))
        asked(at, plain)
        compare(at)
        at.idle()
        assert at.verdict().startswith("Different starting at character 2")
        assert why in at.verdict()
        assert "report it" not in at.verdict()


def test_a_second_server_with_another_model_that_drafts(make: Make, drafting: ModelServer, kept: MemoryKeyring) -> None:
    at = make(drafting.url)
    with ModelServer(remote_streams.vllm()) as other:
        done: list[bool] = []
        at.keys.put(other.url, "s3cret-key", lambda: done.append(True), lambda error: pytest.fail(str(error)))
        at.qtbot.waitUntil(lambda: bool(done), timeout=WAIT_MS)
        asked(at, other)
        compare(at)
        at.idle()
        assert {one.headers.get("authorization") for one in other.asked} == {"Bearer s3cret-key"}
        assert {one.headers.get("authorization") for one in drafting.asked} == {None}
    assert at.window.one.server.text().partition("\n")[2] == (
        "The models have different names: “m” without a draft, “q” with a draft. "
        "The context lengths differ: 4,096 tokens without a draft, 2,048 with a draft."
    )
    assert at.presenter._result is not None
    assert at.presenter._result[1].setup.servers == ["llama-server b9000-0c1e570", "vLLM 0.29.0, model m"]
    with ModelServer(remote_streams.llama_server()) as other:
        asked(at, other)
        compare(at)
        at.idle()
    assert wording.SECOND_DRAFTS in at.verdict()


# ------------------------------------------------------------ trouble


def test_a_server_that_does_not_answer(make: Make, drafting: ModelServer) -> None:
    at = make(drafting.url)
    with ModelServer({}) as gone:
        pass
    asked(at, gone)
    before = len(drafting.bodies(CHAT))
    compare(at)
    at.idle()
    assert at.verdict().startswith("The server without a draft can't be used. Nothing answers at 127.0.0.1")
    assert len(drafting.bodies(CHAT)) == before  # nothing is compared with nothing
    assert at.window.one.footer.run_button.isEnabled()
    assert at.chat.engine.state() is EngineState.READY
    with ModelServer(remote_streams.vllm()) as another:  # each server in use has its own second one
        at.chat.connect(another.url)
        assert at.window.one.server.text() == "none yet"
    at.chat.load()
    assert not at.window.one.server.isVisible()  # our engine needs none


def test_a_server_that_dies_in_the_middle(make: Make, drafting: ModelServer, plain: ModelServer) -> None:
    plain.routes[CHAT] = later(plain.routes[CHAT], Reply.stream(*remote_streams.words()[:3], Cut))
    at = make(drafting.url)
    asked(at, plain)
    compare(at)
    at.idle()
    assert at.verdict().startswith(f"The server without a draft failed. The connection to 127.0.0.1:{plain.port}")
    at.window.one.footer.run_button.click()
    at.idle()
    assert at.verdict().startswith("✓ Same text")


@pytest.mark.parametrize("side", ["drafted", "connecting"])
def test_stop_ends_the_right_one_at_once(make: Make, drafting: ModelServer, plain: ModelServer, side: str) -> None:
    at = make(drafting.url)
    asked(at, plain)
    wait = Wait()
    endless = Reply.stream(*remote_streams.words()[:3], wait)
    server = drafting if side == "drafted" else plain
    route = "/props" if side == "connecting" else CHAT
    server.routes[route] = later(server.routes[route], endless, 0 if side == "connecting" else 1, 1000)
    compare(at)
    at.qtbot.waitUntil(wait.reached.is_set, timeout=WAIT_MS)
    QTest.mouseClick(at.window.one.footer.stop_button, Qt.MouseButton.LeftButton)
    assert not at.presenter.runner.is_running()
    assert at.verdict() == "Stopped."
    at.qtbot.waitUntil(wait.left.is_set, timeout=WAIT_MS)
    at.qtbot.waitUntil(lambda: at.chat.engine.state() is EngineState.READY, timeout=WAIT_MS)
    assert at.presenter.second.engine.state() is EngineState.STOPPED


def test_a_message_comes_first_and_the_run_begins_again(make: Make, drafting: ModelServer, plain: ModelServer) -> None:
    at = make(drafting.url)
    asked(at, plain)
    wait, slow = Wait(), Wait()
    plain.routes[CHAT] = later(plain.routes[CHAT], Reply.stream(*remote_streams.words()[:3], wait))
    normal = drafting.routes[CHAT]
    assert isinstance(normal, Reply)
    compare(at)
    at.qtbot.waitUntil(lambda: "Two" in at.window.one.plain._text().view.content, timeout=WAIT_MS)
    drafting.routes[CHAT] = later(normal, Reply.stream(slow, *normal.content), 0, 0)
    assert at.chat.model.send("Are you there?")
    at.qtbot.waitUntil(slow.reached.is_set, timeout=WAIT_MS)  # at once, while the second server was writing
    at.qtbot.waitUntil(wait.left.is_set, timeout=WAIT_MS)
    assert at.presenter.runner.is_waiting()
    assert at.window.one.plain._text().progress.text() == "Starts when the answer in the chat has finished."
    slow.go_on.set()
    at.chat.settle()
    at.idle()
    assert at.chat.model.messages[-1].text == TEXT
    assert at.verdict().startswith("✓ Same text")
    assert len(plain.bodies(CHAT)) == 3
    assert at.window.one.plain._text().view.content == TEXT


# ------------------------------------------------------------ consent and offline


def far_engine(behavior: str = "far") -> LocalEngine:
    command = [sys.executable, "-m", "tests.ui.scripted_engine", behavior]
    return LocalEngine(command, Timings(quit=0.5), for_servers=command)


def boxes(at: Comparing) -> list[QMessageBox]:
    return [one for one in at.window.findChildren(QMessageBox) if one.isVisible()]


def test_a_chat_of_this_computer_is_asked_about(make: Make, drafting: ModelServer) -> None:
    at = make(drafting.url, second=far_engine())
    at.values.remember_plain_server(drafting.url, Pair("q", server=FAR))
    at.chat.ask("Only for this computer")
    before = len(drafting.bodies(CHAT))
    compare(at)
    at.idle()
    (box,) = boxes(at)
    assert box.text() == wording.ASK_PERMISSION.format(title="Only for this computer", host="far.example:8000")
    assert at.verdict() == wording.PERMISSION.format(host="far.example:8000")
    assert len(drafting.bodies(CHAT)) == before
    box.reject()
    at.window.one.footer.run_button.click()
    at.idle()
    (box,) = boxes(at)  # it is asked again
    next(one for one in box.buttons() if one.text() == "Send").click()
    at.qtbot.waitUntil(lambda: at.presenter._result is not None, timeout=WAIT_MS)
    assert at.window.one.plain._server.text() == "vLLM 0.29.0 at far.example:8000"
    at.window.one.footer.run_button.click()
    at.idle()
    assert at.presenter._result is not None and boxes(at) == []  # once for each chat and computer


def test_offline_only_this_computer_is_asked(make: Make, drafting: ModelServer) -> None:
    at = make(drafting.url, second=far_engine())
    at.values.remember_plain_server(drafting.url, Pair("q", server=FAR))
    at.chat.ask("Hello")
    at.values.offline = True
    compare(at)
    at.idle()
    assert at.verdict() == "The server without a draft can't be used. far.example:8000 is another computer."
    assert boxes(at) == []


def test_offline_a_server_in_use_is_left(make: Make, drafting: ModelServer) -> None:
    at = make(drafting.url, second=far_engine("far busy"))
    at.values.remember_plain_server(drafting.url, Pair("q", server=FAR))
    at.chat.ask("Hello")
    compare(at)
    at.qtbot.waitUntil(lambda: at.presenter.second.engine.state() is EngineState.LOADING, timeout=WAIT_MS)
    at.presenter.second.go_offline()
    assert at.verdict() == wording.OFFLINE
    assert at.presenter.second.engine.state() is EngineState.STOPPED
