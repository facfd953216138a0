"""One engine object, two kinds of processes: what computes here, and what talks to a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app import system
from app.client.connection import Timings
from app.protocol.commands import CheckText, Load
from app.protocol.events import MemoryRead, PairLoaded
from app.protocol.remote import Connect, FindServers
from app.settings import Settings
from app.ui import notices
from app.ui.engine.client import EngineClient, EngineState
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_names import LoadingMarker, PairFiles
from app.ui.notices import NoticeList
from tests.support import remote_streams
from tests.support.model_server import ModelServer
from tests.ui.parts import WAIT_MS, Rig
from tests.ui.scripted_engine import DEVICES


@pytest.fixture
def engine(qtbot: QtBot) -> Iterator[EngineClient]:
    """Ours is scripted, the one for servers is real."""
    engine = EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "sound"], Timings(quit=0.5))
    yield engine
    engine.shutdown()
    engine.deleteLater()
    qtbot.wait(0)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(remote_streams.vllm(remote_streams.VLLM_METRICS)) as server:
        yield server


def load(qtbot: QtBot, engine: EngineClient) -> PairLoaded:
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS) as found:
        engine.load(Load(request=0, target="target.gguf"))
    assert found.args is not None
    pair: PairLoaded = found.args[0]
    return pair


def connect(qtbot: QtBot, engine: EngineClient, address: str) -> PairLoaded:
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS) as found:
        engine.load(Connect(request=0, address=address))
    assert found.args is not None
    pair: PairLoaded = found.args[0]
    return pair


def test_the_process_follows_what_is_used(qtbot: QtBot, engine: EngineClient, server: ModelServer) -> None:
    assert load(qtbot, engine).remote is None
    first = engine.process_id()
    read: list[MemoryRead] = []
    engine.memory_read.connect(read.append)
    pair = connect(qtbot, engine, server.url)
    assert pair.remote is not None and pair.remote.server.kind == "vllm"
    second = engine.process_id()
    assert engine.state() is EngineState.READY
    assert "scripted" not in engine.description()
    assert engine.ask_aside(CheckText(request=0, text="Two draft")) == 0  # a server has no tokens to check
    engine.read_memory()
    connect(qtbot, engine, server.url)  # by now it has answered
    assert read == [MemoryRead(devices=DEVICES)]  # what our engine took is free again, and a server says nothing
    assert engine.process_id() == second != first  # one process for all servers
    assert load(qtbot, engine).remote is None
    assert engine.process_id() not in (first, second)


def test_what_is_forgotten_while_a_server_is_used_is_erased_here_too(
    qtbot: QtBot, engine: EngineClient, server: ModelServer
) -> None:
    kept = system.chat_caches_dir() / "0123456789abcdef.kept"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"of a chat")
    connect(qtbot, engine, server.url)
    with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
        engine.forget()
    assert not kept.exists()
    assert engine.state() is EngineState.READY


def test_what_our_engine_was_still_to_forget_is_erased_when_it_goes(
    qtbot: QtBot, server: ModelServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.ui.scripted_engine", "unforgetting"]
    engine = EngineClient(command, Timings(quit=0.5))
    try:
        load(qtbot, engine)
        kept = system.chat_caches_dir() / "0123456789abcdef.kept"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(b"of a chat")
        engine.forget()
        with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
            engine.load(Connect(request=0, address=server.url))
        assert not kept.exists()
    finally:
        engine.shutdown()
        engine.deleteLater()


def test_a_process_is_ended_without_waiting_for_it(qtbot: QtBot, engine: EngineClient) -> None:
    engine.search(FindServers(request=0))
    engine.end()
    assert (engine.state(), engine.process_id()) == (EngineState.STOPPED, 0)
    load(qtbot, engine)  # and another one can begin


class ServerRig(Rig):
    """With the real process for servers."""

    @staticmethod
    def _engine(behavior: str, timings: Timings) -> EngineClient:
        return EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", behavior], timings)


@pytest.fixture
def rig(qtbot: QtBot, tmp_path: Path) -> Iterator[ServerRig]:
    rig = ServerRig(qtbot, tmp_path, "sound")
    yield rig
    rig.close()


def test_what_is_remembered_is_what_the_server_says(rig: ServerRig, server: ModelServer) -> None:
    opened: list[PairFiles] = []
    rig.pair_loader.pair_opened.connect(opened.append)
    rig.connect(f"127.0.0.1:{server.port}/v1")
    assert opened == [PairFiles("m", server=server.url)]
    assert rig.pair_loader.files() == opened[0]
    assert rig.pair_loader.is_remote()
    assert rig.marker.left_behind() is None  # a server can't crash the app by being loaded
    rig.load()
    assert not rig.pair_loader.is_remote() and rig.pair_loader.remote() is None


def test_a_server_is_never_taken_for_what_crashed_the_app(qtbot: QtBot, tmp_path: Path, engine: EngineClient) -> None:
    marker = LoadingMarker(tmp_path / "loading.json")
    marker.set(PairFiles("m"))
    loader = PairLoader(engine, NoticeList(), marker, Settings())
    with qtbot.waitSignal(engine.load_failed, timeout=WAIT_MS):
        loader.open_at_start(PairFiles("m", server="http://127.0.0.1:9"))
    loader.shutdown()
    loader.deleteLater()


def test_a_server_that_loads_its_model_is_waited_for_until_canceled(qtbot: QtBot, tmp_path: Path) -> None:
    rig = Rig(qtbot, tmp_path, "far busy")
    rig.pair_loader.load(PairFiles("m", server="http://127.0.0.1:8000"))
    qtbot.waitUntil(lambda: "load" in rig.notice_list.notices(), timeout=WAIT_MS)
    assert rig.notice_list.notices()["load"] == notices.server_loading()
    rig.engine.cancel()
    qtbot.waitUntil(lambda: rig.notice_list.notices()["load"] == notices.not_connected(), timeout=WAIT_MS)
    rig.close()
