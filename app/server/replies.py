"""Answers as JSON, whole and in parts: the form of OpenAI's ``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any, Protocol

from app import __version__
from app.protocol.events import (
    Figures,
    GenerationFinished,
    PairLoaded,
    Piece,
    PromptProgressed,
    RoundsReceived,
)
from app.protocol.options import FinishReason
from app.server import figures as shown
from app.server.answers import Answer
from app.server.errors import ApiError
from app.server.fields import Settings
from app.server.http import server_sent

_REASONS: dict[FinishReason, str] = {
    "end": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "cancelled": "stop",
}
Json = dict[str, Any]


def split(pieces: list[Piece]) -> tuple[str, str]:
    """The thinking in ``pieces``, and the answer."""
    return (
        "".join(piece.text for piece in pieces if piece.thinking),
        "".join(piece.text for piece in pieces if not piece.thinking),
    )


class Replies(Protocol):
    """One answer's JSON: whole, or in the parts of a stream."""

    ping: bytes
    """What a stream has while there is nothing to say."""
    end: bytes
    """Behind the last part of a stream."""

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        """The answer at once."""

    def begin(self) -> Iterator[Json]:
        """What comes first."""

    def progress(self, event: PromptProgressed) -> Iterator[Json]:
        """How far the prompt is, where that was asked for."""

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        """The text of some rounds."""

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        """What comes last."""

    def failed(self, error: ApiError) -> Json:
        """An error in a stream whose status has been sent."""

    def encoded(self, part: Json) -> bytes:
        """A part as it is sent."""


class Dialect(Protocol):
    """What differs between the two."""

    prefix: str
    whole: str
    """The type of a whole answer."""
    part: str
    """Of a part of one."""

    def choice(self, thinking: str, text: str) -> Json:
        """Of a whole answer."""

    def begin(self) -> Iterator[Json]:
        """Choices of the part that comes first, if there is one."""

    def delta(self, thinking: str, text: str) -> Json:
        """Choice of a part."""


class ChatDialect:
    """``/v1/chat/completions``."""

    prefix, whole, part = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def choice(self, thinking: str, text: str) -> Json:
        thought = {"reasoning_content": thinking} if thinking else {}
        return {"message": {"role": "assistant", "content": text, **thought}}

    def begin(self) -> Iterator[Json]:
        yield {"delta": {"role": "assistant", "content": ""}}

    def delta(self, thinking: str, text: str) -> Json:
        thought = {"reasoning_content": thinking} if thinking else {}
        return {"delta": {**thought, **({"content": text} if text else {})}}


class CompletionDialect:
    """``/v1/completions``; what a model thinks is part of its text there."""

    prefix, whole, part = "cmpl-", "text_completion", "text_completion"

    def choice(self, thinking: str, text: str) -> Json:
        return {"text": thinking + text}

    def begin(self) -> Iterator[Json]:
        return iter(())

    def delta(self, thinking: str, text: str) -> Json:
        return {"text": thinking + text}


class OpenAIReplies:
    """In OpenAI's form; see `Replies`."""

    ping = b": ping\n\n"
    end = b"data: [DONE]\n\n"

    def __init__(self, dialect: Dialect, request: Settings, pair: PairLoaded, model: str, answer: Answer) -> None:
        self._dialect = dialect
        self._request = request
        self._pair = pair
        self._answer = answer
        self._begun = time.monotonic()
        self._frame = {
            "id": dialect.prefix + secrets.token_urlsafe(24),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"slipstream-{__version__}",
        }

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        choice = self._choice(self._dialect.choice(*split(pieces)), finished)
        return {
            **self._frame,
            "object": self._dialect.whole,
            "choices": [choice],
            "usage": shown.usage(finished.figures),
            **self._figures(finished.figures),
        }

    def begin(self) -> Iterator[Json]:
        for choice in self._dialect.begin():
            yield self._part(choice)

    def progress(self, event: PromptProgressed) -> Iterator[Json]:
        if self._request.return_progress:
            cached = self._answer.statistics.cached_tokens
            passed = int(1e3 * (time.monotonic() - self._begun))
            counts = {"total": event.total, "cache": cached, "processed": event.done, "time_ms": passed}
            yield {**self._part(self._dialect.delta("", "")), "prompt_progress": counts}

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        pieces = [piece for round_ in event.rounds for piece in round_.pieces]
        thinking, text = split(pieces)
        for delta in filter(any, ((thinking, ""), ("", text))):
            part = self._part(self._dialect.delta(*delta))
            if self._request.timings_per_token:
                part["timings"] = shown.timings(self._answer.statistics.figures(time.monotonic() - self._begun))
            yield part

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        last = self._part(self._dialect.delta("", ""), finished)
        found = self._figures(finished.figures)
        if not self._request.includes_usage:
            yield {**last, **found}
            return
        yield last
        yield {**self._part(None), "usage": shown.usage(finished.figures), **found}

    def failed(self, error: ApiError) -> Json:
        return error.body()

    def encoded(self, part: Json) -> bytes:
        return server_sent(part)

    def _part(self, choice: Json | None, finished: GenerationFinished | None = None) -> Json:
        choices = [] if choice is None else [self._choice(choice, finished)]
        return {**self._frame, "object": self._dialect.part, "choices": choices}

    @staticmethod
    def _choice(choice: Json, finished: GenerationFinished | None) -> Json:
        reason = _REASONS[finished.finish_reason] if finished else None
        return {"index": 0, **choice, "logprobs": None, "finish_reason": reason}

    def _figures(self, figures: Figures) -> Json:
        return shown.all_dialects(figures, self._answer.seed or 0, self._pair.plain_pass_seconds)
