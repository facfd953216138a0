"""``/v1/messages``, Anthropic's form: requests and replies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from app.protocol.events import Figures, GenerationFinished, PairLoaded, Piece
from app.protocol.options import FinishReason
from app.protocol.tools import ToolCall
from app.server.answers import Answer, AnswerContent
from app.server.chat_request import ROLES, EngineRequest, History, RequestImages, continuing
from app.server.fields import AnthropicMessage, MessagesRequest, Warnings
from app.server.guard import ApiError
from app.server.replies import Json, Replies
from app.server.settings import command_for
from app.server.tools import check_together, tool_use

_REASONS: dict[FinishReason, str] = {
    "end": "end_turn",
    "stop_string": "stop_sequence",
    "length": "max_tokens",
    "context": "max_tokens",
    "cancelled": "end_turn",
}


class AnthropicReplies(Replies):
    """One answer's JSON: thinking is a separate block before the text."""

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, request: Any, wanted: EngineRequest, pair: PairLoaded, model: str, answer: Answer) -> None:
        super().__init__(request, wanted, pair, model, answer)
        self._blocks = 0
        """The number begun so far."""
        self._kind = ""
        """The last block's kind."""
        self._message: Json = {
            "id": "msg_" + secrets.token_urlsafe(24),
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        said = self._reader.whole(pieces, finished)
        blocks: list[Json] = []
        if said.thinking:
            blocks.append({"type": "thinking", "thinking": said.thinking, "signature": ""})
        if said.text or not (blocks or said.calls):
            blocks.append({"type": "text", "text": said.text})
        blocks += [{**_call(call), "input": msgspec.Raw(call.arguments.encode())} for call in said.calls]
        return {
            **self._message,
            "content": blocks,
            **self._stop(finished),
            "usage": _usage(finished.figures),
            **self._figures(finished),
        }

    def begin(self) -> Iterator[Json]:
        statistics = self._answer.statistics
        counts = Figures(prompt_tokens=statistics.prompt_tokens, cached_tokens=statistics.cached_tokens)
        message = {**self._message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(counts)}
        yield {"type": "message_start", "message": message}

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        yield from self._parts(self._reader.end(finished))
        if not self._blocks:
            yield from self._block("text")
        yield self._stop_block()
        yield {
            "type": "message_delta",
            "delta": self._stop(finished),
            "usage": _usage(finished.figures),
            **self._figures(finished),
        }
        yield {"type": "message_stop"}

    def failed(self, error: ApiError) -> Json:
        return {"type": "error", **error.body()}

    def _parts(self, said: AnswerContent) -> Iterator[Json]:
        for kind, new in (("thinking", said.thinking), ("text", said.text)):
            if new:
                yield from self._block(kind)
                yield self._delta({"type": f"{kind}_delta", kind: new})
        for call in said.calls:
            self._kind = ""
            yield from self._block("tool_use", {**_call(call), "input": {}})
            yield self._delta({"type": "input_json_delta", "partial_json": call.arguments})

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._blocks - 1, "delta": delta}

    def _block(self, kind: str, block: Json | None = None) -> Iterator[Json]:
        """Begin a block (by default an empty one) unless the last one is of this ``kind``."""
        if kind == self._kind:
            return
        if self._blocks:
            yield self._stop_block()
        block = block or {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})}
        yield {"type": "content_block_start", "index": self._blocks, "content_block": block}
        self._blocks, self._kind = self._blocks + 1, kind

    def _stop_block(self) -> Json:
        return {"type": "content_block_stop", "index": self._blocks - 1}

    def _stop(self, finished: GenerationFinished) -> Json:
        reason = _REASONS[finished.finish_reason]
        if finished.finish_reason == "end" and self._reader.has_calls:
            reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": finished.stop_string}


def _call(call: ToolCall) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name}


def _usage(figures: Figures) -> Json:
    return {
        "input_tokens": figures.prompt_tokens - figures.cached_tokens,
        "cache_read_input_tokens": figures.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": figures.completion_tokens,
    }


_CALL, _RESULT = "tool_use", "tool_result"


def prepare_message(
    request: MessagesRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings
) -> EngineRequest:
    """Raises `ApiError`. Without ``thinking``, the model doesn't think, like Anthropic's: clients expect the answer in
    the first block."""
    choice = request.tool_choice
    several = not (isinstance(choice, dict) and choice.get("disable_parallel_tool_use"))
    use = tool_use(request.tools or [], choice, warnings, several=several, custom=True)
    request.response_format = (request.output_config and request.output_config.format) or request.output_format
    check_together(request, use, pair)
    history = History(images, warnings)
    if request.system:
        history.add("system", request.system)
    for message in request.messages:
        _add(history, message)
    thinking = request.thinking
    level = "on" if thinking and thinking.type != "disabled" else "off"
    command = msgspec.structs.replace(
        command_for(request, pair, history.whole(), warnings, pair.usable_thinking(level)),
        stop=list(filter(None, request.stop_sequences or [])),
        tools=use,
    )
    return continuing(command, warnings)


def _add(history: History, message: AnthropicMessage) -> None:
    """Add one of Anthropic's messages; results of calls become separate messages."""
    blocks: list[Any] = message.content if isinstance(message.content, list) else [message.content or ""]
    said = [block for block in blocks if _kind(block) != _RESULT]
    for block in blocks:
        if _kind(block) == _RESULT:
            history.result(block.get("tool_use_id"), block.get("content"))
    if ROLES.get(message.role) == "assistant":
        calls = [block for block in said if _kind(block) == _CALL]
        said = [block for block in said if _kind(block) != _CALL]
        history.answer(said, calls=[(one.get("id"), one.get("name"), one.get("input")) for one in calls])
    elif said or not blocks:
        history.add(message.role, said)


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else "text"
