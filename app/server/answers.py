"""Answers one after the other: those that wait for their turn, the one that is written, and its events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from app.client.process import GenerationFailedError, TooLargeError
from app.errors import KnownError
from app.protocol.commands import Generate
from app.protocol.events import Figures, GenerationFinished, GenerationStarted, PairLoaded, RoundsReceived
from app.protocol.statistics import Statistics
from app.server import figures as shown
from app.server.engine import AnswerEvent, Engine
from app.server.errors import ApiError, invalid
from app.server.limits import MAX_WAITING
from app.server.metrics import Metrics
from app.server.warnings import Warnings

_log = logging.getLogger("slipstream.server")
_LONGEST_RETRY_SECONDS = 60


class Answer:
    """The events of one answer, which is written whether somebody reads them or not.

    Attributes:
        has_begun: Whether it is being written, or has been.
        has_tokens: Whether something of it has been written.
        seed: What it is written with; ``None`` before that is known.
        statistics: The figures up to the last event that was read.
        valid: Whether it is valid by its schema; ``None``: that wasn't checked.
        warnings: What was left out of the request; the engine's own notes are added when it is begun.
    """

    def __init__(self, warnings: Warnings | None = None) -> None:
        self.warnings = warnings or Warnings()
        self.has_begun = self.has_tokens = False
        self.seed: int | None = None
        self.valid: bool | None = None
        self.statistics = Statistics()
        self._events: asyncio.Queue[AnswerEvent | ApiError] = asyncio.Queue()

    def put(self, event: AnswerEvent | ApiError) -> None:
        """Another event; an error is the last one."""
        if isinstance(event, GenerationStarted):
            self.seed = event.seed
            for note in event.notes:
                self.warnings.add(note, "A part of a schema is left to the model.")
        self.has_tokens |= isinstance(event, RoundsReceived)
        self._events.put_nowait(event)

    def figures(self, figures: Figures, pair: PairLoaded) -> dict[str, Any]:
        """What goes at the root of the answer, or of the last part of a streamed one, in all dialects."""
        return {
            "timings": shown.timings(figures),
            "metrics": shown.vllm_metrics(figures),
            "slipstream": {
                **shown.own_figures(figures, self.seed or 0, pair.plain_pass_seconds),
                "warnings": self.warnings.sentences,
                **({} if self.valid is None else {"valid": self.valid}),
            },
        }

    async def events(self, ping_seconds: float | None = None) -> AsyncGenerator[AnswerEvent | None, None]:
        """Up to `GenerationFinished`; ``None`` whenever there was nothing for ``ping_seconds``. Raises `ApiError`."""
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
    """Asks the engine for one answer at a time; a few more may wait.

    The engine is free as soon as it has written an answer, however slowly that is read.
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._seconds = 1.0
        """How long answers take, the latest counting most."""

    @contextlib.asynccontextmanager
    async def begun(self, command: Generate, warnings: Warnings | None = None) -> AsyncIterator[Answer]:
        """An answer, which is canceled at the end of the ``async with``. Raises `ApiError` if too many wait."""
        if self._metrics.running + self._metrics.waiting > MAX_WAITING:
            raise self.too_many()
        self._metrics.waiting += 1
        answer = Answer(warnings)
        task = asyncio.ensure_future(self._write(command, answer))
        task.add_done_callback(lambda _: self._has_left(answer))  # even if it is canceled before it begins
        try:
            yield answer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def too_many(self) -> ApiError:
        """What is answered instead."""
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
                answer.put(unavailable(self._engine.why_unavailable))
            except Exception:
                _log.exception("an answer failed")
                answer.put(ApiError("server_error", "The server has made a mistake."))
            finally:
                self._seconds += 0.2 * (time.monotonic() - begun - self._seconds)

    def _has_left(self, answer: Answer) -> None:
        if answer.has_begun:
            self._metrics.running -= 1
        else:
            self._metrics.waiting -= 1

    def _refusal(self, error: GenerationFailedError, *, has_started: bool) -> ApiError:
        """What went wrong before an answer began is the request's fault."""
        if error.prompt_tokens and (pair := self._engine.pair):
            return ApiError(
                "exceed_context_size_error",
                f"The request has {error.prompt_tokens:,} tokens, and the context holds {pair.context_length:,}, "
                "some of which the answer needs.",
                n_prompt_tokens=error.prompt_tokens,
                n_ctx=pair.context_length,
            )
        return ApiError("server_error", str(error)) if has_started else invalid(str(error))


def unavailable(why: str) -> ApiError:
    """What is answered while no model is loaded."""
    return ApiError("unavailable_error", why, headers={"Retry-After": "5"})
