"""An engine process of the server's own, which is started again if it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from app.client.process import AsyncEngineProcess, GenerationEvent
from app.client.state import EngineEndedError
from app.errors import KnownError
from app.protocol.commands import CheckText, CountPrompt, Generate, Load, Tokenize
from app.protocol.events import GenerationFinished, LoadProgressed, PairLoaded, PromptCounted, TextChecked, Tokenized
from app.protocol.options import DrafterChoice, DraftLength

_log = logging.getLogger("slipstream.server")
_MOST_ENDS = 3
"""How often an engine may end without an answer in between."""


@dataclass(frozen=True)
class Drafting:
    """How a server drafts."""

    drafter: DrafterChoice = "auto"
    length: DraftLength = "auto"


class OwnEngine:
    """The pair of one `Load`, in an engine process; see `app.server.engine.Engine`."""

    why_unavailable = "The model isn't loaded now. Try again in a moment."

    def __init__(self, command: Load, drafting: Drafting | None = None) -> None:
        """``drafting``: for requests that say nothing about it."""
        self.pair: PairLoaded | None = None
        self._command = command
        self._drafting = drafting or Drafting()
        self._process: AsyncEngineProcess | None = None
        self._ends = 0

    async def start(self, on_progress: Callable[[LoadProgressed], None] = lambda _: None) -> PairLoaded:
        """Load the pair. Raises `KnownError`."""
        self._process = AsyncEngineProcess()
        await self._process.start()
        self.pair = await self._process.load(self._command, on_progress)
        return self.pair

    async def keep_running(self) -> None:
        """Start the engine again whenever it ends, until this is canceled. Raises `KnownError` if that is no use."""
        while self._process is not None:
            await self._process.ended.wait()
            self.pair = None
            await self._process.close()
            self._ends += 1
            if self._ends > _MOST_ENDS:
                raise KnownError("The engine ended several times in a row, so the server stops.")
            _log.warning("the engine has ended and is started again")
            try:
                await self.start()
            except EngineEndedError as error:
                _log.warning("%s", error)
                await asyncio.sleep(self._ends)

    async def close(self) -> None:
        """End the process."""
        self.pair = None
        if self._process:
            await self._process.close()

    async def generate(self, command: Generate) -> AsyncGenerator[GenerationEvent, None]:
        usual = self._drafting
        command = msgspec.structs.replace(
            command,
            drafter=usual.drafter if command.drafter == "auto" else command.drafter,
            draft_length=usual.length if command.draft_length == command.drafter == "auto" else command.draft_length,
        )
        async with aclosing(self._loaded().generate(command)) as events:
            async for event in events:
                if isinstance(event, GenerationFinished):
                    self._ends = 0
                yield event

    async def check_text(self, question: CheckText) -> TextChecked:
        answer = await self._loaded().ask_aside(question)
        assert isinstance(answer, TextChecked)
        return answer

    async def count_prompt(self, question: CountPrompt) -> PromptCounted:
        answer = await self._loaded().ask_aside(question)
        assert isinstance(answer, PromptCounted)
        return answer

    async def tokenize(self, question: Tokenize) -> Tokenized:
        answer = await self._loaded().ask_aside(question)
        assert isinstance(answer, Tokenized)
        return answer

    def _loaded(self) -> AsyncEngineProcess:
        if self.pair is None or self._process is None:
            raise KnownError("The model is being loaded. Try again in a moment.")
        return self._process
