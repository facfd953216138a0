"""The engine of a window, which a server asks over its pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import count

import msgspec

from app.client.process import GenerationFailedError, TooLargeError
from app.errors import KnownError
from app.protocol.commands import CheckText, CountPrompt, Generate, Tokenize
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    PairLoaded,
    PromptCounted,
    TextChecked,
    Tokenized,
)
from app.protocol.frames import ProtocolError
from app.protocol.serving import AnsweredQuestion, AnswerEvent, AsideQuestion, Asked, FromServer, GivenUp, Unavailable
from app.server import engine as needed
from app.server.engine import asking

NOTHING_LOADED = "No model is loaded in Slipstream's window."


class WindowEngine:
    """One pair of the window, from its load to the next; see `app.server.engine.Engine`."""

    def __init__(self, pair: PairLoaded | None, why: str, send: Callable[[FromServer], None]) -> None:
        """``why`` there is no pair, if there is none. ``send`` raises `ProtocolError` for what is too large."""
        self.pair = pair
        self.why_unavailable = why or NOTHING_LOADED
        self._send = send
        self._answer: tuple[int, asyncio.Queue[AnswerEvent | Unavailable]] = (0, asyncio.Queue())
        """The number of the answer that is wanted, and what came of it."""
        self._questions: dict[int, asyncio.Future[AnsweredQuestion]] = {}

    def receive(self, event: AnswerEvent | AnsweredQuestion | Unavailable) -> None:
        """Something came from the window; what nobody waits for is left out."""
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
        """The pair isn't loaded any more; whoever waits is told that."""
        self.pair, self.why_unavailable = None, why or NOTHING_LOADED
        number, events = self._answer
        events.put_nowait(Unavailable(request=number))
        for question in self._questions.values():
            if not question.done():
                question.set_exception(KnownError(self.why_unavailable))

    async def generate(self, command: Generate) -> AsyncGenerator[needed.AnswerEvent, None]:
        number, events = self._answer = next(_numbers), asyncio.Queue()
        self._ask(Asked(client=asking.get(), command=msgspec.structs.replace(command, request=number)))
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

    async def check_text(self, question: CheckText) -> TextChecked:
        found = await self._answered(msgspec.structs.replace(question, request=next(_numbers)))
        assert isinstance(found, TextChecked)
        return found

    async def count_prompt(self, question: CountPrompt) -> PromptCounted:
        found = await self._answered(msgspec.structs.replace(question, request=next(_numbers)))
        assert isinstance(found, PromptCounted)
        return found

    async def tokenize(self, question: Tokenize) -> Tokenized:
        found = await self._answered(msgspec.structs.replace(question, request=next(_numbers)))
        assert isinstance(found, Tokenized)
        return found

    async def _answered(self, question: AsideQuestion) -> AnsweredQuestion:
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
"""Of requests and questions together, over all pairs."""
