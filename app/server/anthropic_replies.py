"""Answers as JSON in the form of Anthropic's ``/v1/messages``; see `app.server.replies.Replies`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from app.protocol.events import Figures, GenerationFinished, PairLoaded, Piece, PromptProgressed, RoundsReceived
from app.protocol.options import FinishReason
from app.server import figures as shown
from app.server.answers import Answer
from app.server.errors import ApiError
from app.server.http import server_sent
from app.server.replies import Json, split

_REASONS: dict[FinishReason, str] = {
    "end": "end_turn",
    "stop_string": "stop_sequence",
    "length": "max_tokens",
    "context": "max_tokens",
    "cancelled": "end_turn",
}


class AnthropicReplies:
    """One answer's JSON: its thinking is a block of its own in front of the text."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    end = b""

    def __init__(self, pair: PairLoaded, model: str, answer: Answer) -> None:
        self._pair = pair
        self._answer = answer
        self._blocks = 0
        """How many have begun."""
        self._kind = ""
        """Of the block that has begun last."""
        self._message: Json = {
            "id": "msg_" + secrets.token_urlsafe(24),
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        thinking, text = split(pieces)
        blocks = [{"type": "thinking", "thinking": thinking, "signature": ""}] if thinking else []
        if text or not blocks:
            blocks.append({"type": "text", "text": text})
        return {
            **self._message,
            "content": blocks,
            **_stop(finished),
            "usage": _usage(finished.figures),
            **self._figures(finished.figures),
        }

    def begin(self) -> Iterator[Json]:
        statistics = self._answer.statistics
        counts = Figures(prompt_tokens=statistics.prompt_tokens, cached_tokens=statistics.cached_tokens)
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(counts)}
        yield {"type": "message_start", "message": message}

    def progress(self, event: PromptProgressed) -> Iterator[Json]:  # noqa: ARG002
        return iter(())

    def rounds(self, event: RoundsReceived) -> Iterator[Json]:
        thinking, text = split([piece for round_ in event.rounds for piece in round_.pieces])
        for kind, new in (("thinking", thinking), ("text", text)):
            if new:
                yield from self._block(kind)
                delta = {"type": f"{kind}_delta", kind: new}
                yield {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        if not self._blocks:
            yield from self._block("text")
        yield self._stop_block()
        yield {
            "type": "message_delta",
            "delta": _stop(finished),
            "usage": _usage(finished.figures),
            **self._figures(finished.figures),
        }
        yield {"type": "message_stop"}

    def failed(self, error: ApiError) -> Json:
        return {"type": "error", **error.body()}

    def encoded(self, part: Json) -> bytes:
        return f"event: {part['type']}\n".encode() + server_sent(part)

    def _block(self, kind: str) -> Iterator[Json]:
        """Begin a block of a ``kind``, unless the last one is of it."""
        if kind == self._kind:
            return
        if self._blocks:
            yield self._stop_block()
        block = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}
        self._blocks, self._kind = self._blocks + 1, kind

    def _stop_block(self) -> Json:
        return {"type": "content_block_stop", "index": self._blocks - 1}

    def _figures(self, figures: Figures) -> Json:
        return shown.all_dialects(figures, self._answer.seed or 0, self._pair.plain_pass_seconds)


def _stop(finished: GenerationFinished) -> Json:
    return {"stop_reason": _REASONS[finished.finish_reason], "stop_sequence": finished.stop_string}


def _usage(figures: Figures) -> Json:
    return {
        "input_tokens": figures.prompt_tokens - figures.cached_tokens,
        "cache_read_input_tokens": figures.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": figures.completion_tokens,
    }
