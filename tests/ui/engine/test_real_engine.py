"""The real engine process through the window's client, with the bundled pair."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.client.connection import Timings
from app.protocol.commands import Generate, Load, MeasurePlain, Message
from app.protocol.options import Sampling
from app.ui.engine.client import EngineClient, EngineState

WAIT_MS = 60_000
STORY = [Message(role="user", content="Tell me a short story")]


@pytest.fixture
def engine(qtbot: QtBot, guide_pair: tuple[Path, Path]) -> Iterator[EngineClient]:
    made = EngineClient(timings=Timings(tick=0.2, silence=1.0))
    with qtbot.waitSignal(made.pair_loaded, timeout=WAIT_MS):
        made.load(Load(request=0, target=str(guide_pair[0]), draft=str(guide_pair[1])))
    yield made
    made.shutdown()
    made.deleteLater()


def tell_a_story(engine: EngineClient) -> int:
    return engine.ask(Generate(request=0, messages=STORY, sampling=Sampling(temperature=2.0), seed=3, draft_length=5))


def test_cancel_right_behind_the_request_is_not_lost(qtbot: QtBot, engine: EngineClient, tmp_path: Path) -> None:
    assert engine.description().startswith("llama.cpp")
    for _ in range(5):
        with qtbot.waitSignal(engine.generation_finished, timeout=WAIT_MS) as finished:
            tell_a_story(engine)
            engine.cancel()
        assert finished.args is not None
        assert finished.args[0].finish_reason == "cancelled"
    with qtbot.waitSignal(engine.generation_failed, timeout=WAIT_MS):
        engine.ask(MeasurePlain(request=0, messages=STORY, max_tokens=2000))
        engine.cancel()
    assert engine.state() is EngineState.READY
    broken = tmp_path / "broken.gguf"
    for content in (b"", b"GGUF", b"not a model " * 1000):
        broken.write_bytes(content)
        with qtbot.waitSignal(engine.load_failed, timeout=WAIT_MS) as failed:
            engine.load(Load(request=0, target=str(broken)))
        assert failed.args is not None and failed.args[0].message.endswith(".")
        assert engine.state() is EngineState.EMPTY


@pytest.mark.allow_logs
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_frozen_process_is_noticed_and_can_be_replaced(
    qtbot: QtBot, engine: EngineClient, guide_pair: tuple[Path, Path]
) -> None:
    with qtbot.waitSignal(engine.engine_stalled, timeout=WAIT_MS):
        tell_a_story(engine)
        os.kill(engine.process_id(), signal.SIGSTOP)
    engine.restart()
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS):
        engine.load(Load(request=0, target=str(guide_pair[0]), draft=str(guide_pair[1])))
    with qtbot.waitSignal(engine.generation_started, timeout=WAIT_MS):
        tell_a_story(engine)
