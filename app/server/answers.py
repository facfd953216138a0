"""Writes answers one after the other, and parses them into thinking, text and tool calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from app import words
from app.client.process import GenerationFailedError, TooLargeError
from app.protocol.calls import CallReader
from app.protocol.commands import Generate
from app.protocol.events import (
    Figures,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    Piece,
    RoundsReceived,
    TokenLogprob,
)
from app.protocol.serving import AsideQuestion
from app.protocol.statistics import Statistics
from app.protocol.tools import FORMATS, ToolCall
from app.server import metrics as shown
from app.server.engines import AnswerPart, Engine
from app.server.fields import Warnings
from app.server.guard import MAX_WAITING, ApiError, invalid
from app.server.metrics import Metrics
from app.system import KnownError

T = TypeVar("T")
_log = logging.getLogger("slipstream.server")
_LONGEST_RETRY_SECONDS = 60


class Answer:
    """The events of one answer, which is written independently of their being read.

    Attributes:
        has_begun: Whether its turn has come.
        has_tokens: Whether any of it has been written.
        seed: ``None`` until it is known.
        statistics: The figures up to the last event that was read.
        valid: Whether it matches its schema; ``None``: not checked.
        warnings: About the request; the engine adds its notes when it begins.
    """

    def __init__(self, warnings: Warnings) -> None:
        self.warnings = warnings
        self.has_begun = self.has_tokens = False
        self.seed: int | None = None
        self.valid: bool | None = None
        self.statistics = Statistics()
        self._events: asyncio.Queue[AnswerPart | ApiError] = asyncio.Queue()

    def put(self, event: AnswerPart | ApiError) -> None:
        """Add an event. An error ends the answer."""
        if isinstance(event, GenerationStarted):
            self.seed = event.seed
            for note in event.notes:
                self.warnings.add(note, "A part of a schema is left to the model.")
        self.has_tokens |= isinstance(event, RoundsReceived)
        self._events.put_nowait(event)

    def figures(self, figures: Figures, pair: PairLoaded) -> dict[str, Any]:
        """The figures that every dialect has at the root of an answer, or in the last part of a stream."""
        return {
            "timings": shown.timings(figures),
            "metrics": shown.vllm_metrics(figures),
            "slipstream": {
                **shown.own_figures(figures, self.seed or 0, pair.plain_pass_seconds),
                "warnings": self.warnings.sentences,
                **({} if self.valid is None else {"valid": self.valid}),
            },
        }

    async def events(self, ping_seconds: float | None = None) -> AsyncGenerator[AnswerPart | None, None]:
        """Up to `GenerationFinished`; ``None`` after each ``ping_seconds`` without an event. Raises `ApiError`."""
        while True:
            try:
                async with asyncio.timeout(ping_seconds):
                    event = await self._events.get()
            except TimeoutError:
                yield None
                continue
            match event:
                case ApiError():
                    raise event
                case GenerationStarted():
                    self.statistics.prompt_tokens = event.prompt_tokens
                    self.statistics.cached_tokens = event.cached_tokens
                case RoundsReceived():
                    for round_ in event.rounds:
                        self.statistics.add(round_)
                case GenerationFinished():
                    self.valid = event.valid
            yield event
            if isinstance(event, GenerationFinished):
                return


class Answers:
    """Has the engine write one answer at a time; a few more may wait.

    The engine is free once it has written an answer, however slowly a client reads it.
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._seconds = 1.0
        """A moving average of the time for an answer."""

    @contextlib.asynccontextmanager
    async def begun(self, command: Generate, warnings: Warnings) -> AsyncIterator[Answer]:
        """An answer, canceled at the end of the ``async with``. Raises `ApiError` if too many are waiting."""
        if self._metrics.running + self._metrics.waiting > MAX_WAITING:
            raise self.too_many()
        self._metrics.waiting += 1
        answer = Answer(warnings)
        task = asyncio.ensure_future(self._write(command, answer))
        task.add_done_callback(lambda _: self._has_left(answer))  # called even if canceled before it begins
        try:
            yield answer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def too_many(self) -> ApiError:
        """The error for one request too many."""
        seconds = math.ceil(self._seconds * (self._metrics.waiting + 1) / 2)
        retry = min(max(seconds, 1), _LONGEST_RETRY_SECONDS)
        message = "Too many requests are waiting. Try again later."
        self._metrics.refused += 1
        return ApiError("rate_limit_error", message, headers={"Retry-After": str(retry)})

    async def _write(self, command: Generate, answer: Answer) -> None:
        async with self._turn:
            self._metrics.waiting -= 1
            self._metrics.running += 1
            answer.has_begun = True
            begun = time.monotonic()
            try:
                async with aclosing(self._engine.generate(command)) as events:
                    async for event in events:
                        answer.put(event)
                        if isinstance(event, GenerationFinished):
                            self._metrics.count(event)
            except GenerationFailedError as error:
                answer.put(self._refusal(error, has_started=answer.has_tokens))
            except TooLargeError as error:
                answer.put(invalid(str(error)))
            except KnownError:
                answer.put(unavailable(self._engine))
            except Exception:
                _log.exception("an answer failed")
                answer.put(ApiError("server_error", "Something went wrong in the server; its log has the details."))
            finally:
                self._seconds += 0.2 * (time.monotonic() - begun - self._seconds)

    def _has_left(self, answer: Answer) -> None:
        if answer.has_begun:
            self._metrics.running -= 1
        else:
            self._metrics.waiting -= 1

    def _refusal(self, error: GenerationFailedError, *, has_started: bool) -> ApiError:
        """A failure before the answer began is blamed on the request."""
        if error.prompt_tokens and (pair := self._engine.pair):
            return ApiError(
                "exceed_context_size_error",
                f"The request has {words.number(error.prompt_tokens)} tokens, and the context holds "
                f"{words.number(pair.context_length)}, some of which the answer needs.",
                n_prompt_tokens=error.prompt_tokens,
                n_ctx=pair.context_length,
            )
        return ApiError("server_error", str(error)) if has_started else invalid(str(error))


def unavailable(engine: Engine) -> ApiError:
    """The error while no model is loaded."""
    return ApiError("unavailable_error", engine.why_unavailable, headers={"Retry-After": "5"})


def loaded_pair(engine: Engine) -> PairLoaded:
    """The loaded pair. Raises `ApiError` if there is none."""
    if engine.pair is None:
        raise unavailable(engine)
    return engine.pair


async def ask_aside(engine: Engine, question: AsideQuestion, answer: type[T]) -> T:
    """The engine's answer to a question. Raises `ApiError`."""
    try:
        found = await engine.ask_aside(question)
    except KnownError:
        raise unavailable(engine) from None
    assert isinstance(found, answer)
    return found


@dataclass(frozen=True)
class AnswerContent:
    """The parsed content of an answer or of a part of one."""

    thinking: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    """The text's pieces, if the request wants log probabilities."""

    def __bool__(self) -> bool:
        return bool(self.thinking or self.text or self.calls or self.pieces)


class Reader:
    """Parses one answer.

    Attributes:
        has_calls: Whether there was a call.
    """

    def __init__(self, pair: PairLoaded, command: Generate, begun: str = "") -> None:
        """``begun``: the answer so far."""
        tools = command.tools
        known = FORMATS[pair.tool_format] if tools else None
        if known and command.format is not None:  # then no text comes before calls
            known = replace(known, anywhere=False)
        self._calls = CallReader(known, tools.tools) if known and tools else None
        if self._calls:
            self._calls.go_on(begun)
        self._names = {tool.name for tool in tools.tools} if tools else set()
        self._has_logprobs = command.logprobs is not None
        self._thought: list[str] = []
        self._has_text = False
        self.has_calls = False

    def read(self, pieces: Sequence[Piece]) -> AnswerContent:
        """Parse more of the answer."""
        thinking = "".join(piece.text for piece in pieces if piece.thinking)
        text = "".join(piece.text for piece in pieces if not piece.thinking)
        calls: list[ToolCall] = []
        if self._calls:
            text, calls = self._calls.read(text)
            self.has_calls |= bool(calls)
        self._thought.append(thinking)
        self._has_text |= bool(text.strip())
        likely = [piece for piece in pieces if piece.logprobs and not piece.thinking] if self._has_logprobs else []
        return AnswerContent(thinking, text, calls, likely)

    def end(self, finished: GenerationFinished) -> AnswerContent:
        """The text held back at the end of the answer. If the model only thought, its thinking is the answer, including
        any calls."""
        held = self._calls.end(cut=finished.finish_reason != "end") if self._calls else ""
        if finished.tool_calls:
            self.has_calls = True
            return AnswerContent(text=held, calls=finished.tool_calls)
        thought = "".join(self._thought)
        said = "said" if self._has_text or self.has_calls else held
        if not finished.has_only_thought(thought, said):
            return AnswerContent(text=held)
        text, calls = self._calls.read(thought) if self._calls else (thought, [])
        self.has_calls = bool(calls) and all(call.name in self._names for call in calls)
        return AnswerContent(text=text, calls=calls) if self.has_calls else AnswerContent(text=thought)

    def whole(self, pieces: Sequence[Piece], finished: GenerationFinished) -> AnswerContent:
        """Parse a whole answer."""
        said, last = self.read(pieces), self.end(finished)
        return AnswerContent(said.thinking, said.text + last.text, said.calls + last.calls, said.pieces)


Json = dict[str, Any]


def chat_logprobs(pieces: Sequence[Piece]) -> Json:
    """``logprobs`` of a choice of ``/v1/chat/completions``."""
    content = []
    for piece in pieces:
        own, *others = piece.logprobs
        content.append({**_entry(own), "top_logprobs": list(map(_entry, others))})
    return {"content": content, "refusal": None}


def completion_logprobs(pieces: Sequence[Piece], offset: int) -> Json:
    """``logprobs`` of a choice of ``/v1/completions``; the text of ``pieces`` begins at ``offset`` in the answer."""
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece.text)
    return {
        "tokens": [_named(piece.logprobs[0]) for piece in pieces],
        "token_logprobs": [piece.logprobs[0].logprob for piece in pieces],
        "top_logprobs": [{_named(one): one.logprob for one in piece.logprobs[1:]} for piece in pieces],
        "text_offset": offsets,
    }


def _entry(token: TokenLogprob) -> Json:
    return {"token": token.text.decode("utf-8", "replace"), "logprob": token.logprob, "bytes": list(token.text)}


def _named(token: TokenLogprob) -> str:
    """A token as text; one that isn't valid UTF-8 is spelled in bytes."""
    try:
        return token.text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.text)
