"""Answers as JSON, whole or streamed: the base class for all dialects, and OpenAI's ``/v1/chat/completions`` and
``/v1/completions``.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from app import __version__
from app.protocol.events import GenerationFinished, PairLoaded, Piece, PromptProgressed, RoundsReceived
from app.protocol.options import FinishReason
from app.protocol.tools import ToolCall
from app.server import metrics as shown
from app.server.answers import Answer, AnswerContent, Reader, chat_logprobs, completion_logprobs
from app.server.chat_request import EngineRequest
from app.server.guard import ApiError
from app.server.http import server_sent

Json = dict[str, Any]


class Replies:
    """One answer's JSON, whole or in the parts of a stream. Each dialect is a subclass."""

    ping: ClassVar[bytes] = b": ping\n\n"
    """Sent while a stream is silent."""
    end: ClassVar[bytes] = b""
    """Sent after the last part of a stream."""

    def __init__(self, request: Any, wanted: EngineRequest, pair: PairLoaded, model: str, answer: Answer) -> None:
        """``request``: one of `app.server.fields`. ``model``: the model's id in replies."""
        self._request = request
        self._has_logprobs = wanted.command.logprobs is not None
        self._reader = Reader(pair, wanted.command, wanted.begun)
        self._pair = pair
        self._model = model
        self._answer = answer

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        """The whole answer."""
        raise NotImplementedError

    def begin(self) -> Iterator[Json]:
        """The first parts of a stream."""
        return iter(())

    def progress(self, event: PromptProgressed) -> Iterator[Json]:  # noqa: ARG002
        """The progress of the prompt, if requested."""
        return iter(())

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        """The parts for some rounds."""
        return self._parts(self._reader.read([piece for round_ in event.rounds for piece in round_.pieces]))

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        """The last parts of a stream."""
        raise NotImplementedError

    def failed(self, error: ApiError) -> Json:
        """An error after the stream has begun."""
        return error.body()

    def encoded(self, part: Json) -> bytes:
        """The bytes of a part."""
        return f"event: {part['type']}\n".encode() + server_sent(part)

    def _parts(self, said: AnswerContent) -> Iterator[Json]:
        raise NotImplementedError

    def _figures(self, finished: GenerationFinished) -> Json:
        return self._answer.figures(finished.figures, self._pair)


class ChatReplies(Replies):
    """``/v1/chat/completions``."""

    end = b"data: [DONE]\n\n"
    _kinds = "chatcmpl-", "chat.completion", "chat.completion.chunk"
    """The prefix of ids, and the types of whole answers and of parts."""
    _nothing: ClassVar[Json] = {"delta": {}, "logprobs": None}
    """The choice in a part without content."""
    _reasons: ClassVar[dict[FinishReason, str]] = {
        "end": "stop",
        "stop_string": "stop",
        "length": "length",
        "context": "length",
        "cancelled": "stop",
    }

    def __init__(self, request: Any, wanted: EngineRequest, pair: PairLoaded, model: str, answer: Answer) -> None:
        super().__init__(request, wanted, pair, model, answer)
        self._begun = time.monotonic()
        self._count = 0
        """Calls so far; in text completions, characters."""
        self._frame = {
            "id": self._kinds[0] + secrets.token_urlsafe(24),
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"slipstream-{__version__}",
        }

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        choice = self._choice(self._reader.whole(pieces, finished))
        return {
            **self._frame,
            "object": self._kinds[1],
            "choices": [self._ended(choice, finished)],
            "usage": shown.usage(finished.figures),
            **self._figures(finished),
        }

    def begin(self) -> Iterator[Json]:
        yield self._part({"delta": {"role": "assistant", "content": ""}, "logprobs": None})

    def progress(self, event: PromptProgressed) -> Iterator[Json]:
        if self._request.return_progress:
            cached = self._answer.statistics.cached_tokens
            passed = int(1e3 * (time.monotonic() - self._begun))
            counts = {"total": event.total, "cache": cached, "processed": event.done, "time_ms": passed}
            yield {**self._part(self._nothing), "prompt_progress": counts}

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        for part in super().rounds(event):
            if self._request.timings_per_token:
                part["timings"] = shown.timings(self._answer.statistics.figures(time.monotonic() - self._begun))
            yield part

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        yield from self._parts(self._reader.end(finished))
        last, found = self._part(self._nothing, finished), self._figures(finished)
        if not self._request.includes_usage:
            yield {**last, **found}
            return
        yield last
        yield {**self._part(None), "usage": shown.usage(finished.figures), **found}

    def encoded(self, part: Json) -> bytes:
        return server_sent(part)

    @property
    def _old_calls(self) -> bool:
        """Whether calls are in the old form, because the request has ``functions``."""
        return bool(self._request.functions and not self._request.tools)

    def _choice(self, said: AnswerContent) -> Json:
        message: Json = {"role": "assistant", "content": said.text or (None if said.calls else "")}
        if said.thinking:
            message["reasoning_content"] = said.thinking
        if said.calls and self._old_calls:
            message["function_call"] = _call(said.calls[0])["function"]
        elif said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        return {"message": message, "logprobs": self._likely(said)}

    def _parts(self, said: AnswerContent) -> Iterator[Json]:
        if said.thinking:
            yield self._part({"delta": {"reasoning_content": said.thinking}, "logprobs": None})
        if said.text or said.pieces:
            yield self._part({"delta": {"content": said.text}, "logprobs": self._likely(said)})
        for call in said.calls:
            new = {"tool_calls": [{"index": self._count, **_call(call)}]}
            delta = {"function_call": _call(call)["function"]} if self._old_calls else new
            yield self._part({"delta": delta, "logprobs": None})
            self._count += 1

    def _likely(self, said: AnswerContent) -> Json | None:
        return chat_logprobs(said.pieces) if self._has_logprobs else None

    def _part(self, choice: Json | None, finished: GenerationFinished | None = None) -> Json:
        choices = [] if choice is None else [self._ended(choice, finished)]
        return {**self._frame, "object": self._kinds[2], "choices": choices}

    def _ended(self, choice: Json, finished: GenerationFinished | None) -> Json:
        reason = self._reasons[finished.finish_reason] if finished else None
        if finished and finished.finish_reason == "end" and self._reader.has_calls:
            reason = "function_call" if self._old_calls else "tool_calls"
        return {"index": 0, **choice, "finish_reason": reason}


class CompletionReplies(ChatReplies):
    """``/v1/completions``, where thinking is part of the text."""

    _kinds = "cmpl-", "text_completion", "text_completion"
    _nothing: ClassVar[Json] = {"text": "", "logprobs": None}

    def begin(self) -> Iterator[Json]:
        return iter(())

    def _choice(self, said: AnswerContent) -> Json:
        text = said.thinking + said.text
        likely = completion_logprobs(said.pieces, self._count) if self._has_logprobs else None
        self._count += len(text)
        return {"text": text, "logprobs": likely}

    def _parts(self, said: AnswerContent) -> Iterator[Json]:
        if said:
            yield self._part(self._choice(said))


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
