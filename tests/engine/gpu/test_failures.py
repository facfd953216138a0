"""A driver that crashes, and a kill while a GPU computes: only the engine's process ends, and the next one works."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from app.client.connection import EngineEndedError, ExitCause
from app.client.process import EngineProcess
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import PromptProgressed, Round
from app.protocol.options import LoadSettings, Sampling
from tests.support.gguf_files import CHATML_TEMPLATE, make_model

SETTINGS = LoadSettings(context_length=512, batch_size=32, micro_batch_size=32, threads=1, chat_cache_mib=0)
ON_CPU = msgspec.structs.replace(SETTINGS, target_gpu_layers=0, draft_gpu_layers=0)
SECONDS = 500.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model.gguf", chat_template=CHATML_TEMPLATE)


def answer(engine: EngineProcess, model: Path, settings: LoadSettings) -> int:
    """Load and answer; returns how many tokens."""
    engine.load(Load(request=0, target=str(model), settings=settings))
    events = engine.generate(asked())
    return sum(len(event.pieces) for event in events if isinstance(event, Round))


def asked(tokens: int = 4) -> Generate:
    message = Message(role="user", content="several batches " * 8)
    return Generate(request=0, messages=[message], sampling=Sampling(temperature=0), max_tokens=tokens, draft_length=0)


def ended_by(number: signal.Signals, model: Path, stage: str) -> ExitCause:
    """Let an engine end in this way while it computes on the GPU; returns what is said of it."""
    with EngineProcess(limit_seconds=SECONDS) as engine:

        def end() -> None:
            os.kill(engine.process_id, number)

        with pytest.raises(EngineEndedError) as ended:
            load = Load(request=0, target=str(model), settings=SETTINGS)
            engine.load(load, lambda _: end() if stage == "load" else None)
            for event in engine.generate(asked(tokens=200)):
                if isinstance(event, PromptProgressed if stage == "prompt" else Round):
                    end()
    return ended.value.ended.cause


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    ("number", "cause"), [(signal.SIGSEGV, ExitCause.CRASHED), (signal.SIGABRT, ExitCause.ABORTED)]
)
def test_a_crash_ends_only_the_engine_and_the_processor_does_it(
    model: Path, number: signal.Signals, cause: ExitCause
) -> None:
    """As when a driver crashes."""
    assert ended_by(number, model, "answer") is cause
    with EngineProcess(limit_seconds=SECONDS) as engine:
        assert answer(engine, model, ON_CPU) == 4


@pytest.mark.allow_logs
@pytest.mark.parametrize("stage", ["load", "prompt", "answer"])
def test_a_kill_while_it_computes_leaves_the_gpu_to_the_next(model: Path, stage: str) -> None:
    assert ended_by(signal.SIGKILL, model, stage) is ExitCause.KILLED
    with EngineProcess(limit_seconds=SECONDS) as engine:
        assert answer(engine, model, SETTINGS) == 4
