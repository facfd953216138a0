"""The server's engine: its own process, or the window's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from itertools import count
from typing import Protocol

import msgspec

from app.client.connection import EngineEndedError
from app.client.process import AsyncEngineProcess, GenerationEvent, GenerationFailedError, TooLargeError
from app.protocol.answering import AnswerSettings
from app.protocol.commands import Generate, Load
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    LoadProgressed,
    PairLoaded,
    PromptProgressed,
    RoundsReceived,
)
from app.protocol.frames import ProtocolError
from app.protocol.serving import (
    AnsweredQuestion,
    AnswerEvent,
    AnswerRequested,
    AsideQuestion,
    FromServer,
    GivenUp,
    Unavailable,
)
from app.system import KnownError

client_name: ContextVar[str] = ContextVar("client_name", default="?")
"""What the client calls itself whose request is being answered."""
AnswerPart = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished


class Engine(Protocol):
    """Where answers come from. Every method raises `KnownError` if it can't be carried out."""

    @property
    def pair(self) -> PairLoaded | None:
        """The loaded pair, if any."""

    @property
    def why_unavailable(self) -> str:
        """For clients, while nothing is loaded."""

    def generate(self, command: Generate) -> AsyncGenerator[AnswerPart, None]:
        """Answer a chat, one at a time. Closing the iterator cancels the answer within one verify pass."""

    async def ask_aside(self, question: AsideQuestion) -> AnsweredQuestion:
        """Answer a question, even while an answer is being written."""


_log = logging.getLogger("slipstream.server")
_MOST_ENDS = 3
"""How many times in a row an engine may end before it finishes an answer."""


class OwnEngine:
    """An `Engine` that runs a process with one pair."""

    why_unavailable = "The model isn't loaded now. Try again in a moment."

    def __init__(self, command: Load, usual: AnswerSettings = AnswerSettings()) -> None:  # noqa: B008 - frozen
        """``usual``: how to draft unless a request says otherwise."""
        self.pair: PairLoaded | None = None
        self._command = command
        self._usual = usual
        self._process: AsyncEngineProcess | None = None
        self._ends = 0

    async def start(self, on_progress: Callable[[LoadProgressed], None] = lambda _: None) -> PairLoaded:
        """Load the pair. Raises `KnownError`."""
        self._process = AsyncEngineProcess()
        await self._process.start()
        self.pair = await self._process.load(self._command, on_progress)
        return self.pair

    async def keep_running(self) -> None:
        """Restart the engine whenever it ends, until canceled. Raises `KnownError` if it keeps ending."""
        while self._process is not None:
            await self._process.ended.wait()
            self.pair = None
            await self._process.close()
            self._ends += 1
            if self._ends > _MOST_ENDS:
                raise KnownError("The engine ended several times in a row, so the server stops.")
            _log.warning("the engine ended and is being restarted")
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
        if command.drafter == "auto":
            length = self._usual.draft_length if command.draft_length == "auto" else command.draft_length
            command = msgspec.structs.replace(command, drafter=self._usual.drafter, draft_length=length)
        async with aclosing(self._loaded().generate(command)) as events:
            async for event in events:
                if isinstance(event, GenerationFinished):
                    self._ends = 0
                yield event

    async def ask_aside(self, question: AsideQuestion) -> AnsweredQuestion:
        return await self._loaded().ask_aside(question)

    def _loaded(self) -> AsyncEngineProcess:
        if self.pair is None or self._process is None:
            raise KnownError("The model is being loaded. Try again in a moment.")
        return self._process


NOTHING_LOADED = "No model is loaded in Slipstream's window."


class WindowEngine:
    """An `Engine` for one pair of the window, until another one is loaded."""

    def __init__(self, pair: PairLoaded | None, why: str, send: Callable[[FromServer], None]) -> None:
        """``why``: why there is no pair. ``send`` raises `ProtocolError` if a message is too large."""
        self.pair = pair
        self.why_unavailable = why or NOTHING_LOADED
        self._send = send
        self._answer: tuple[int, asyncio.Queue[AnswerEvent | Unavailable]] = (0, asyncio.Queue())
        """The current answer's number, and its events."""
        self._questions: dict[int, asyncio.Future[AnsweredQuestion]] = {}

    def receive(self, event: AnswerEvent | AnsweredQuestion | Unavailable) -> None:
        """Handle a message from the window; drop it if nothing is waiting for it."""
        number, events = self._answer
        if (question := self._questions.get(event.request)) is not None:
            if question.done():
                return
            if isinstance(event, AnsweredQuestion):
                question.set_result(event)
            else:
                question.set_exception(KnownError(self.why_unavailable))
        elif event.request == number and not isinstance(event, AnsweredQuestion):
            events.put_nowait(event)

    def close(self, why: str) -> None:
        """The pair was unloaded: everything waiting fails, with ``why`` as the reason."""
        self.pair, self.why_unavailable = None, why or NOTHING_LOADED
        number, events = self._answer
        events.put_nowait(Unavailable(request=number))
        for question in self._questions.values():
            if not question.done():
                question.set_exception(KnownError(self.why_unavailable))

    async def generate(self, command: Generate) -> AsyncGenerator[AnswerPart, None]:
        number, events = self._answer = next(_numbers), asyncio.Queue()
        self._ask(AnswerRequested(client=client_name.get(), command=msgspec.structs.replace(command, request=number)))
        is_over = False
        try:
            while not is_over:
                event = await events.get()
                is_over = isinstance(event, GenerationFinished | GenerationFailed | Unavailable)
                if isinstance(event, Unavailable):
                    raise KnownError(self.why_unavailable)
                if isinstance(event, GenerationFailed):
                    raise GenerationFailedError(event)
                yield event
        finally:
            self._answer = 0, asyncio.Queue()
            if not is_over:
                self._send(GivenUp(request=number))

    async def ask_aside(self, question: AsideQuestion) -> AnsweredQuestion:
        question = msgspec.structs.replace(question, request=next(_numbers))
        answer: asyncio.Future[AnsweredQuestion] = asyncio.get_running_loop().create_future()
        self._questions[question.request] = answer
        try:
            self._ask(question)
            return await answer
        finally:
            del self._questions[question.request]

    def _ask(self, message: FromServer) -> None:
        if self.pair is None:
            raise KnownError(self.why_unavailable)
        try:
            self._send(message)
        except ProtocolError as error:
            raise TooLargeError from error


_numbers = count(1)
"""For requests and questions together, across all pairs."""
