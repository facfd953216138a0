"""The child process as the window sees it: ordinary talk, ends, hangs and violations, all with real processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QProcess, QProcessEnvironment, QTimer
from pytestqt.qtbot import QtBot

from app import system
from app.client.connection import Timings
from app.protocol.commands import CountTokens, Generate, Load, Message
from app.protocol.events import Round, TokensCounted
from app.system import HOME_VARIABLE
from app.ui.engine import client
from app.ui.engine.client import CrashTracker, EngineClient, EngineExit, EngineState, ExitCause, child_environment

QUICK = Timings(tick=0.05, silence=0.2, no_progress=100.0, start=0.3, cancel=0.2, quit=0.3)
PATIENT = Timings(quit=0.5)
WAIT_MS = 20_000

HI = [Message(role="user", content="Hi")]
PAIR = Load(request=0, target="target.gguf", draft="draft.gguf")
TARGET = Load(request=0, target="target.gguf")
BIG = Load(request=0, target="big.gguf")
ANSWER = Generate(request=0, messages=HI, seed=1, max_tokens=16, draft_length=5)
MakeEngine = Callable[..., EngineClient]
pytestmark = pytest.mark.allow_logs  # deaths and hangs are what happens here


@pytest.fixture
def make_engine(qtbot: QtBot) -> Iterator[MakeEngine]:
    engines = []

    def make(behavior: str, timings: Timings = PATIENT) -> EngineClient:
        engine = EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", behavior], timings)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.shutdown()
        engine.deleteLater()
    qtbot.wait(0)


def load(qtbot: QtBot, engine: EngineClient) -> None:
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS):
        engine.load(PAIR)


def generate(engine: EngineClient) -> int:
    return engine.ask(ANSWER)


def ended(qtbot: QtBot, engine: EngineClient, action: Callable[[EngineClient], object]) -> EngineExit:
    with qtbot.waitSignal(engine.engine_exited, timeout=WAIT_MS) as blocker:
        action(engine)
    result = blocker.args[0]
    assert isinstance(result, EngineExit)
    return result


def test_load_then_answer_then_polite_end(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("well")
    states: list[EngineState] = []
    engine.state_changed.connect(states.append)
    load(qtbot, engine)
    assert engine.state() is EngineState.READY
    rounds: list[Round] = []
    engine.rounds_received.connect(lambda event: rounds.extend(event.rounds))
    with qtbot.waitSignals([engine.generation_started, engine.generation_finished], timeout=WAIT_MS, order="strict"):
        generate(engine)
    assert [piece.text for one in rounds for piece in one.pieces] == ["Hello there"]
    engine.shutdown()
    assert states == [
        EngineState.STARTING,
        EngineState.LOADING,
        EngineState.READY,
        EngineState.ANSWERING,
        EngineState.READY,
        EngineState.STOPPED,
    ]


def test_the_window_goes_on_while_a_long_chat_is_sent(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("well")
    load(qtbot, engine)
    chat = [Message(role="user", content="word " * 20_000) for _ in range(30)]
    turns, told = list[int](), list[object]()
    engine.tokens_counted.connect(told.append)
    timer = QTimer(interval=0)
    timer.timeout.connect(lambda: turns.append(len(told)))
    timer.start()
    number = engine.count_tokens(CountTokens(request=0, messages=chat, text="two words"))
    qtbot.waitUntil(lambda: bool(told), timeout=WAIT_MS)
    timer.stop()
    assert isinstance(told[0], TokensCounted) and told[0].request == number
    assert (told[0].messages, told[0].text) == (600_000, 2)
    assert turns.count(0) >= 30 - 1  # with one part of it in each turn


def test_load_can_be_canceled(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("slow load")
    with qtbot.waitSignal(engine.load_failed, timeout=WAIT_MS):
        engine.load(BIG)
        engine.cancel()  # before the engine is up
    qtbot.waitUntil(lambda: engine.state() is EngineState.EMPTY, timeout=WAIT_MS)
    with qtbot.waitSignal(engine.load_progressed, timeout=WAIT_MS):
        engine.load(BIG)
    with qtbot.waitSignal(engine.load_failed, timeout=WAIT_MS) as blocker:
        engine.cancel()
    assert blocker.args is not None
    assert blocker.args[0].cancelled


def test_events_of_other_requests_are_ignored(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("stale")
    load(qtbot, engine)
    texts: list[str] = []
    engine.rounds_received.connect(lambda event: texts.extend(p.text for one in event.rounds for p in one.pieces))
    with qtbot.waitSignal(engine.generation_finished, timeout=WAIT_MS):
        generate(engine)
    assert texts == ["Hello there"]


@pytest.mark.parametrize("behavior", ["garbage", "oversized", "wrong field", "unknown"])
def test_violation_ends_the_engine(qtbot: QtBot, make_engine: MakeEngine, behavior: str) -> None:
    engine = make_engine(behavior)
    load(qtbot, engine)
    exit_ = ended(qtbot, engine, generate)
    assert exit_.cause is ExitCause.PROTOCOL
    assert exit_.state is EngineState.ANSWERING
    assert engine.process_id() == 0


@pytest.mark.parametrize("behavior", ["early", "newer"])
def test_violation_at_the_start(qtbot: QtBot, make_engine: MakeEngine, behavior: str) -> None:
    assert ended(qtbot, make_engine(behavior), EngineClient.start).cause is ExitCause.PROTOCOL


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    ("behavior", "cause", "name"),
    [
        ("signal 6", ExitCause.ABORTED, "SIGABRT"),
        ("signal 9", ExitCause.KILLED, "SIGKILL"),
        ("signal 11", ExitCause.CRASHED, "SIGSEGV"),
    ],
)
def test_death_names_its_cause_and_last_words(
    qtbot: QtBot, make_engine: MakeEngine, behavior: str, cause: ExitCause, name: str
) -> None:
    engine = make_engine(behavior)
    load(qtbot, engine)
    exit_ = ended(qtbot, engine, generate)
    assert (exit_.cause, exit_.detail) == (cause, name)
    assert exit_.log_lines[-1] == "about to die"
    assert "about to die" in exit_.report()
    at_home = replace(exit_, detail=f"{Path.home()}/models/a.gguf")
    assert "detail: ~/models/a.gguf" in at_home.report()
    assert engine.state() is EngineState.DIED


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_kill_from_outside_then_restart(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("endless")
    load(qtbot, engine)
    with qtbot.waitSignal(engine.rounds_received, timeout=WAIT_MS):
        generate(engine)
    exit_ = ended(qtbot, engine, lambda one: os.kill(one.process_id(), signal.SIGKILL))
    assert exit_.cause in (ExitCause.KILLED, ExitCause.OUT_OF_MEMORY)
    engine.restart()
    load(qtbot, engine)
    assert engine.state() is EngineState.READY
    old = engine.process_id()
    engine.restart()
    engine.shutdown()  # the end of the app comes before a restart that waits
    assert engine.state() is EngineState.STOPPED
    with pytest.raises(ProcessLookupError):
        os.kill(old, 0)
    qtbot.wait(0)
    assert engine.process_id() == 0


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Process ids of those that were killed but do not end before the test ends them."""
    killed: list[int] = []

    def kill(process: QProcess) -> None:
        killed.append(int(process.processId()))

    with monkeypatch.context() as patch:
        patch.setattr(QProcess, "kill", kill)
        yield killed


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_restart_waits_for_the_end_of_the_old_process_but_not_in_the_windows_thread(
    qtbot: QtBot, make_engine: MakeEngine, unkillable: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine("well")
    load(qtbot, engine)
    old, waits, loaded = engine.process_id(), list[bool](), list[int]()
    monkeypatch.setattr(QProcess, "waitForFinished", lambda *_: waits.append(True))
    states: list[EngineState] = []
    engine.state_changed.connect(states.append)
    engine.pair_loaded.connect(lambda pair: loaded.append(pair.request))
    engine.restart()
    engine.load(TARGET)
    engine.restart()  # once more, while the old one still dies
    last = engine.load(TARGET)
    turned: list[bool] = []
    QTimer.singleShot(0, lambda: turned.append(True))
    qtbot.waitUntil(lambda: bool(turned))
    assert (unkillable, waits, engine.process_id()) == ([old], [], 0)
    assert engine.state() is EngineState.STARTING
    os.kill(old, signal.SIGKILL)
    qtbot.waitUntil(lambda: engine.state() is EngineState.READY, timeout=WAIT_MS)
    assert loaded == [last]
    stopped_and_started = [EngineState.STOPPED, EngineState.STARTING]
    assert states == [*stopped_and_started, *stopped_and_started, EngineState.LOADING, EngineState.READY]
    monkeypatch.undo()


def test_the_end_of_the_app_waits_for_a_hung_engine_only_so_long(
    qtbot: QtBot, make_engine: MakeEngine, unkillable: list[int]
) -> None:
    engine = make_engine("stubborn", Timings(quit=0.01))
    load(qtbot, engine)
    old = engine.process_id()
    engine.shutdown()
    assert unkillable == [old]
    assert engine.state() is EngineState.STOPPED
    left = client._LEFT_BEHIND.pop()
    os.kill(old, signal.SIGKILL)
    left.waitForFinished()


def test_an_engine_that_does_not_start(qtbot: QtBot, make_engine: MakeEngine) -> None:
    exit_ = ended(qtbot, make_engine("exit"), EngineClient.start)
    assert (exit_.cause, exit_.detail) == (ExitCause.EXITED, "exit code 3")
    assert exit_.log_lines[-1] == "nothing to live for"
    exit_ = ended(qtbot, make_engine("unable"), EngineClient.start)
    assert exit_.cause is ExitCause.REFUSED
    assert exit_.sentence() == "The engine didn't start. Nothing here runs on this processor."
    engine = EngineClient(["slipstream-no-such-program"])
    exit_ = ended(qtbot, engine, lambda one: one.load(TARGET))
    assert exit_.cause is ExitCause.FAILED_TO_START
    assert engine.state() is EngineState.DIED
    engine.deleteLater()
    silent = make_engine("mute", QUICK)
    with qtbot.waitSignal(silent.engine_stalled, timeout=WAIT_MS):
        silent.start()  # it never greets


@pytest.mark.parametrize("behavior", ["silent", "stuck", "deaf"])
def test_hang_is_noticed(qtbot: QtBot, make_engine: MakeEngine, behavior: str) -> None:
    engine = make_engine(behavior, QUICK)
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS):
        engine.load(TARGET)
    stalls: list[float] = []
    engine.engine_stalled.connect(stalls.append)
    with qtbot.waitSignal(engine.engine_stalled, timeout=WAIT_MS):
        generate(engine)
        if behavior == "deaf":
            engine.cancel()
    engine.restart()
    with qtbot.waitSignal(engine.pair_loaded, timeout=WAIT_MS):
        engine.load(TARGET)


def left_file() -> Path:
    path = system.chat_caches_dir() / "what-somebody-said.kept"
    path.write_bytes(b"words")
    return path


def logged(engine: EngineClient) -> tuple[str, ...]:
    return engine._connection.log.last()


def test_forgetting_is_told_to_an_engine_that_runs(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine = make_engine("well")
    load(qtbot, engine)
    with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
        engine.forget()
        engine.forget()
    assert logged(engine).count("forgotten") == 2  # said once, when both were carried out
    assert engine.state() is EngineState.READY


def test_forgetting_without_an_engine_erases_its_files_and_waits_for_one_that_starts(
    qtbot: QtBot, make_engine: MakeEngine
) -> None:
    engine, path = make_engine("well"), left_file()
    with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
        engine.forget()
    assert not path.exists()
    engine.start()
    engine.forget()
    with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
        engine.load(TARGET)  # it drops what waits, but not this
    assert "forgotten" in logged(engine)
    qtbot.waitUntil(lambda: engine.state() is EngineState.READY, timeout=WAIT_MS)


def test_an_engine_that_ends_without_having_forgotten_leaves_no_files(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine, path = make_engine("unforgetting"), left_file()
    load(qtbot, engine)
    with qtbot.assertNotEmitted(engine.forgotten):
        engine.forget()
        qtbot.waitUntil(lambda: "forgotten" in logged(engine), timeout=WAIT_MS)
        assert path.exists()
    with qtbot.waitSignal(engine.forgotten, timeout=WAIT_MS):
        engine.shutdown()
    assert not path.exists()


def test_an_engine_that_dies_before_it_could_forget_leaves_no_files(qtbot: QtBot, make_engine: MakeEngine) -> None:
    engine, path = make_engine("newer"), left_file()
    engine.start()
    engine.forget()
    assert path.exists()
    qtbot.waitUntil(lambda: engine.state() is EngineState.DIED, timeout=WAIT_MS)
    assert not path.exists()


def test_environment_carries_no_secrets_and_names_the_home_folder_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = QProcessEnvironment()
    own.insert(HOME_VARIABLE, "here")
    hub = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN")
    for name in (*hub, "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "https_proxy", "DB_PASSWORD", "PATH", "HOME"):
        own.insert(name, "x")
    environment = child_environment(own)
    assert sorted(environment.keys()) == ["HOME", "PATH", "PYINSTALLER_RESET_ENVIRONMENT", HOME_VARIABLE]
    assert environment.value(HOME_VARIABLE) == str(tmp_path / "here")


def test_three_deaths_in_five_minutes_are_too_many() -> None:
    tracker = CrashTracker()
    for now in (0.0, 100.0):
        tracker.record(now)
        assert not tracker.is_exhausted(now)
    tracker.record(400.0)
    assert not tracker.is_exhausted(400.0)
    tracker.record(401.0)
    assert not tracker.is_exhausted(401.0)
    tracker.record(402.0)
    assert tracker.is_exhausted(402.0)
    assert not tracker.is_exhausted(900.0)
