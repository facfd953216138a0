"""An engine process in an event loop: the real one, and scripted ones for what a sound engine does not do."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from app.client.connection import EngineEndedError, ExitCause
from app.client.process import AsyncEngineProcess, GenerationFailedError
from app.protocol.commands import CheckText, Generate, Load, Message, Tokenize
from app.protocol.events import GenerationFinished, GenerationStarted, RoundsReceived, TextChecked, Tokenized
from app.protocol.options import LoadSettings
from app.system import KnownError
from tests.support.gguf_files import make_model
from tests.support.mtp_models import make_table_model

HI = [Message(role="user", content="Hi")]
ANSWER = Generate(request=0, messages=HI, seed=1, max_tokens=16)


async def answered(engine: AsyncEngineProcess, command: Generate = ANSWER) -> list[object]:
    async with aclosing(engine.generate(command)) as events:
        return [event async for event in events]


def test_a_pair_is_loaded_and_answers_and_what_fails_says_why(tmp_path: Path) -> None:
    target = make_model(tmp_path / "target.gguf")

    async def run() -> None:
        engine = AsyncEngineProcess()
        await engine.start()
        try:
            with pytest.raises(KnownError, match="No model"):
                await engine.ask_aside(Tokenize(request=0, text="a"))
            with pytest.raises(KnownError, match=r"gone\.gguf"):
                await engine.load(Load(request=0, target=str(tmp_path / "gone.gguf")))
            pair = await engine.load(Load(request=0, target=str(target)))
            assert pair.target.path == str(target)
            too_long = [Message(role="user", content="x " * 2000)]
            with pytest.raises(GenerationFailedError) as failed:
                await answered(engine, Generate(request=0, messages=too_long, overflow="stop"))
            assert failed.value.prompt_tokens > 512
            first, *_, last = await answered(engine)
            assert isinstance(first, GenerationStarted) and isinstance(last, GenerationFinished)
            assert last.figures.completion_tokens == 16
            tokens = await engine.ask_aside(Tokenize(request=0, text="hello"))
            assert isinstance(tokens, Tokenized)
            assert b"".join(tokens.pieces).strip() == b"hello"
            checked = await engine.ask_aside(CheckText(request=0, text="hello"))
            assert isinstance(checked, TextChecked) and checked.tokens
        finally:
            await engine.close()
        assert engine.ended.is_set()
        with pytest.raises(EngineEndedError):
            await answered(engine)

    asyncio.run(run())


@pytest.mark.allow_logs
def test_one_that_is_killed(tmp_path: Path) -> None:
    target = make_table_model(tmp_path / "endless.gguf", "glm4moe", context_length=32_768)

    async def run() -> None:
        engine = AsyncEngineProcess()
        await engine.start()
        try:
            await engine.load(Load(request=0, target=str(target)))
            with pytest.raises(EngineEndedError) as ended:
                async with aclosing(engine.generate(Generate(request=0, messages=HI, seed=1))) as events:
                    is_killed = False
                    async for event in events:
                        if isinstance(event, RoundsReceived) and not is_killed:
                            assert engine.process_id
                            psutil.Process(engine.process_id).kill()
                            is_killed = True
            assert ended.value.ended.cause in (ExitCause.KILLED, ExitCause.EXITED)
            with pytest.raises(EngineEndedError):
                await engine.ask_aside(Tokenize(request=0, text="a"))
        finally:
            await engine.close()

    asyncio.run(run())


def test_who_asks_after_one_that_was_canceled_twice(tmp_path: Path) -> None:
    """As the server does when a client goes and its connection is closed: the engine may still be busy then."""
    target = make_table_model(tmp_path / "endless.gguf", "glm4moe", context_length=8192)

    async def run() -> None:
        engine = AsyncEngineProcess()
        await engine.start()
        try:
            await engine.load(Load(request=0, target=str(target), settings=LoadSettings(context_length=8192)))
            has_begun = asyncio.Event()

            async def endless() -> None:
                async with aclosing(engine.generate(Generate(request=0, messages=HI, seed=1))) as events:
                    async for event in events:
                        if isinstance(event, RoundsReceived):
                            has_begun.set()

            for _ in range(3):
                task = asyncio.ensure_future(endless())
                await has_begun.wait()
                has_begun.clear()
                for _ in range(2):
                    task.cancel()
                    await asyncio.sleep(0)
                assert await asyncio.gather(task, return_exceptions=True)
                assert isinstance((await answered(engine))[-1], GenerationFinished)
        finally:
            await engine.close()

    asyncio.run(run())


@pytest.mark.allow_logs
@pytest.mark.parametrize(
    "command", [["slipstream-has-no-such-program"], [sys.executable, "-c", "print('nonsense' * 99)"]]
)
def test_what_is_no_engine(command: list[str]) -> None:
    async def run() -> None:
        engine = AsyncEngineProcess()
        try:
            with pytest.raises(EngineEndedError):
                await engine.start(command)
                await engine.load(Load(request=0, target="target.gguf"))
            assert engine.ended.is_set()
        finally:
            await engine.close()

    asyncio.run(run())
