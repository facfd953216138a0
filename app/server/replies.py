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
from app.protocol.tools import ToolCall
from app.server import metrics as shown
from app.server.answers import Answer, Reader, Said, chat_logprobs, completion_logprobs
from app.server.fields import Settings
from app.server.guard import ApiError
from app.server.http import server_sent

_REASONS: dict[FinishReason, str] = {
    "end": "stop",
    "stop_string": "stop",
    "length": "length",
    "context": "length",
    "cancelled": "stop",
}
Json = dict[str, Any]


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
    calls_reason: str
    """Why an answer ends that has calls."""

    def choice(self, said: Said) -> Json:
        """Of a whole answer."""

    def begin(self) -> Iterator[Json]:
        """Choices of the part that comes first, if there is one."""

    def deltas(self, said: Said) -> Iterator[Json]:
        """Choices of parts."""

    def nothing(self) -> Json:
        """Choice of a part that says nothing."""


class ChatDialect:
    """``/v1/chat/completions``."""

    prefix, whole, part = "chatcmpl-", "chat.completion", "chat.completion.chunk"

    def __init__(self, *, logprobs: bool, old_calls: bool = False) -> None:
        """``old_calls``: a call is a ``function_call``, as the request has ``functions``."""
        self._logprobs = logprobs
        self._calls = 0
        self._old_calls = old_calls
        self.calls_reason = "function_call" if old_calls else "tool_calls"

    def choice(self, said: Said) -> Json:
        message: Json = {"role": "assistant", "content": said.text or (None if said.calls else "")}
        if said.thinking:
            message["reasoning_content"] = said.thinking
        if said.calls and self._old_calls:
            message["function_call"] = _call(said.calls[0])["function"]
        elif said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        return {"message": message, "logprobs": self._likely(said)}

    def begin(self) -> Iterator[Json]:
        yield {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def deltas(self, said: Said) -> Iterator[Json]:
        if said.thinking:
            yield {"delta": {"reasoning_content": said.thinking}, "logprobs": None}
        if said.text or said.pieces:
            yield {"delta": {"content": said.text}, "logprobs": self._likely(said)}
        for call in said.calls:
            new = {"tool_calls": [{"index": self._calls, **_call(call)}]}
            yield {"delta": {"function_call": _call(call)["function"]} if self._old_calls else new, "logprobs": None}
            self._calls += 1

    def nothing(self) -> Json:
        return {"delta": {}, "logprobs": None}

    def _likely(self, said: Said) -> Json | None:
        return chat_logprobs(said.pieces) if self._logprobs else None


class CompletionDialect:
    """``/v1/completions``; what a model thinks is part of its text there."""

    prefix, whole, part = "cmpl-", "text_completion", "text_completion"
    calls_reason = ""

    def __init__(self, *, logprobs: bool) -> None:
        self._logprobs = logprobs
        self._characters = 0
        """Of the answer so far."""

    def choice(self, said: Said) -> Json:
        text = said.thinking + said.text
        likely = completion_logprobs(said.pieces, self._characters) if self._logprobs else None
        self._characters += len(text)
        return {"text": text, "logprobs": likely}

    def begin(self) -> Iterator[Json]:
        return iter(())

    def deltas(self, said: Said) -> Iterator[Json]:
        if said:
            yield self.choice(said)

    def nothing(self) -> Json:
        return {"text": "", "logprobs": None}


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


class OpenAIReplies:
    """In OpenAI's form; see `Replies`."""

    ping = b": ping\n\n"
    end = b"data: [DONE]\n\n"

    def __init__(
        self, dialect: Dialect, reader: Reader, request: Settings, pair: PairLoaded, model: str, answer: Answer
    ) -> None:
        self._dialect = dialect
        self._reader = reader
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
        choice = self._choice(self._dialect.choice(self._reader.whole(pieces, finished)), finished)
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
            yield {**self._part(self._dialect.nothing()), "prompt_progress": counts}

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        said = self._reader.read([piece for round_ in event.rounds for piece in round_.pieces])
        for delta in self._dialect.deltas(said):
            part = self._part(delta)
            if self._request.timings_per_token:
                part["timings"] = shown.timings(self._answer.statistics.figures(time.monotonic() - self._begun))
            yield part

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        for delta in self._dialect.deltas(self._reader.end(finished)):
            yield self._part(delta)
        last = self._part(self._dialect.nothing(), finished)
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

    def _choice(self, choice: Json, finished: GenerationFinished | None) -> Json:
        reason = _REASONS[finished.finish_reason] if finished else None
        if finished and finished.finish_reason == "end" and self._reader.has_calls:
            reason = self._dialect.calls_reason
        return {"index": 0, **choice, "finish_reason": reason}

    def _figures(self, figures: Figures) -> Json:
        return self._answer.figures(figures, self._pair)
