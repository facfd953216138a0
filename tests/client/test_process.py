"""An engine process as a command drives it: the real one, and scripted ones for what a sound engine does not do."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from app.client.connection import EngineEndedError, ExitCause
from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message, ScoreTokens
from app.protocol.events import GenerationFinished, GenerationStarted, Round
from app.system import Canceled, KnownError
from tests.support.gguf_files import make_model

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")
HI = [Message(role="user", content="Hi")]
ANSWER = Generate(request=0, messages=HI, seed=1, max_tokens=16)
PAIR = Load(request=0, target="target.gguf", draft="draft.gguf")


def scripted(behavior: str) -> EngineProcess:
    return EngineProcess(command=[sys.executable, "-m", "tests.ui.scripted_engine", behavior])


def test_a_pair_is_loaded_and_answers_and_known_errors_are_raised(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target.gguf")
    stages: list[str] = []
    with EngineProcess() as engine:
        assert engine.hello().engine.startswith("llama.cpp")
        with pytest.raises(KnownError, match=r"gone\.gguf"):
            engine.load(Load(request=0, target=str(tmp_path / "gone.gguf")))
        pair = engine.load(Load(request=0, target=str(target)), lambda event: stages.append(event.stage))
        started, *events = engine.generate(ANSWER)
        with pytest.raises(KnownError):
            list(engine.generate(Generate(request=0, messages=[Message(role="user", content="x " * 90_000)])))
        again = list(engine.generate(ANSWER))
        ids = [piece.id for one in events if isinstance(one, Round) for piece in one.pieces]
        scored = engine.score_tokens(ScoreTokens(request=0, messages=HI, answer=ids[:2], candidates=ids[2:4], seed=1))
    assert pair.target.path == str(target) and "target" in stages
    assert isinstance(started, GenerationStarted) and isinstance(events[-1], GenerationFinished)
    assert len(ids) == 16 == events[-1].figures.completion_tokens
    assert [one.pieces for one in again if isinstance(one, Round)] == [
        one.pieces for one in events if isinstance(one, Round)
    ]
    assert len(scored.logits) == 2


def test_it_gets_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with scripted("well") as engine:
        engine.hello()
        environment = psutil.Process(engine.process_id).environ()
    assert "HF_TOKEN" not in environment and environment["PYINSTALLER_RESET_ENVIRONMENT"] == "1"


@posix
def test_ctrl_c_ends_an_answer_and_what_there_is_is_told() -> None:
    with scripted("endless") as engine:
        engine.load(PAIR)
        previous = signal.signal(signal.SIGINT, lambda *_: engine.cancel())
        try:
            events = []
            for event in engine.generate(ANSWER):
                events.append(event)
                if isinstance(event, Round):
                    signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, previous)
        assert isinstance(events[-1], GenerationFinished) and events[-1].finish_reason == "cancelled"
        with pytest.raises(Canceled):
            list(engine.generate(ANSWER))


@pytest.mark.parametrize("behavior", ["well", "slow load"])
def test_a_load_is_canceled(behavior: str) -> None:
    with scripted(behavior) as engine:
        if behavior == "well":
            engine.cancel()  # before it has greeted
        with pytest.raises(Canceled):
            engine.load(PAIR, lambda _: engine.cancel())


@posix
@pytest.mark.allow_logs
@pytest.mark.parametrize(
    ("behavior", "cause", "sentence"),
    [
        ("signal 6", ExitCause.ABORTED, "The engine stopped because of an internal error (SIGABRT)."),
        ("signal 11", ExitCause.CRASHED, "The engine crashed (SIGSEGV)."),
        ("garbage", ExitCause.PROTOCOL, "something that Slipstream doesn't understand"),
        ("oversized", ExitCause.PROTOCOL, "something that Slipstream doesn't understand"),
        ("wrong field", ExitCause.PROTOCOL, "something that Slipstream doesn't understand"),
    ],
)
def test_an_engine_that_ends_in_an_answer_is_one_sentence(behavior: str, cause: ExitCause, sentence: str) -> None:
    with scripted(behavior) as engine:
        engine.load(PAIR)
        with pytest.raises(EngineEndedError) as raised:
            list(engine.generate(ANSWER))
    assert raised.value.ended.cause is cause
    assert sentence in str(raised.value) and str(raised.value).count(".") == 1


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    ("behavior", "sentence"),
    [
        ("exit", "The engine stopped unexpectedly (exit code 3)."),
        ("unable", "The engine didn't start. Nothing here runs on this processor."),
        ("newer", "The engine sent something that Slipstream doesn't understand, so it was stopped."),
        ("early", "The engine sent something that Slipstream doesn't understand, so it was stopped."),
    ],
)
def test_an_engine_that_ends_at_the_start_is_one_sentence(behavior: str, sentence: str) -> None:
    with scripted(behavior) as engine, pytest.raises(EngineEndedError) as raised:
        engine.load(PAIR)
    assert str(raised.value) == sentence


@posix
@pytest.mark.allow_logs
def test_an_engine_that_takes_too_long_is_ended() -> None:
    mute = [sys.executable, "-m", "tests.ui.scripted_engine", "mute"]
    with (
        EngineProcess(command=mute, limit_seconds=0.2) as engine,
        pytest.raises(KnownError, match="did not finish within"),
    ):
        engine.hello()
