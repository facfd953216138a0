"""The server's process alone: what it is asked, and in which order processes come and go."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import psutil
import pytest
from pytestqt.qtbot import QtBot

from app.protocol.serving import Listening, Serve
from app.ui.server import serving as process_module
from app.ui.server.serving import ServerProcess
from tests.support.leftovers import Running, left_since
from tests.ui.parts import WAIT_MS


class Heard:
    """A server, and what it said."""

    def __init__(self, qtbot: QtBot) -> None:
        self._qtbot = qtbot
        self._others = Running.now()
        self.process = ServerProcess()
        self.messages: list[object] = []
        self.process.received.connect(self.messages.append)
        self.process.ended.connect(lambda: self.messages.append("ended"))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def start(self) -> None:
        """At the same port each time: two of them at once would get into each other's way."""
        self.process.start(Serve(host=None, port=self._port, key=None))

    def until_listening(self) -> None:
        self.messages.clear()
        self._qtbot.waitUntil(lambda: bool(self.messages), timeout=WAIT_MS)
        assert [type(message) for message in self.messages] == [Listening]

    def running(self) -> psutil.Process:
        return psutil.Process(self.process.process_id())

    def has_left(self) -> list[str]:
        return left_since(self._others)


@pytest.fixture
def heard(qtbot: QtBot) -> Iterator[Heard]:
    made = Heard(qtbot)
    yield made
    made.process.close()
    made.process.deleteLater()


@pytest.mark.skipif(sys.platform == "win32", reason="suspended in another way there")
def test_stopping_does_not_wait_for_one_that_hangs(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_QUIT_MS", 200)
    heard.start()
    heard.until_listening()
    hanging = heard.running()
    hanging.suspend()
    heard.process.stop()
    assert not heard.process.process_id() and hanging.is_running(), "it is let go, and nobody has waited for its end"
    heard.start()
    heard.until_listening()
    assert not hanging.is_running() and heard.running().pid != hanging.pid


@pytest.mark.parametrize("wishes", [(True, False), (False, True, False, True)], ids=str)
def test_the_last_wish_counts(heard: Heard, wishes: tuple[bool, ...]) -> None:
    heard.start()
    heard.until_listening()
    first = heard.running()
    for is_on in wishes:
        if is_on:
            heard.start()
        else:
            heard.process.stop()
    if wishes[-1]:
        heard.until_listening()
        assert not first.is_running() and heard.running().is_running()
    heard.process.close()
    assert heard.has_left() == []


def test_closed_while_it_starts(heard: Heard) -> None:
    heard.start()
    heard.process.close()
    assert heard.has_left() == []
    heard.start()
    heard.until_listening()
    heard.process.stop()
    heard.start()
    heard.process.close()
    assert heard.has_left() == [] and not heard.process.process_id(), "the one that waited for its turn isn't started"
