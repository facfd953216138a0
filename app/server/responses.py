"""``/v1/responses``: requests and replies. Nothing is stored between requests."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from app.protocol.commands import Message
from app.protocol.events import Figures, GenerationFinished, PairLoaded, Piece
from app.protocol.tools import ToolCall
from app.server import metrics as shown
from app.server.answers import Answer, AnswerContent
from app.server.chat_request import ROLES, EngineRequest, History, RequestImages, continuing, thinking_level
from app.server.fields import Item, ResponsesRequest, Warnings, quoted
from app.server.guard import ApiError, not_supported
from app.server.replies import Json, Replies
from app.server.settings import command_for
from app.server.tools import Namespaced, check_together, namespaced, tool_use

_KINDS = {"message": ("output_text", "msg_"), "reasoning": ("reasoning_text", "rs_")}
"""For text items: the type of their only part, and the prefix of their ids."""


class ResponsesReplies(Replies):
    """One answer's JSON: thinking, text and each call are separate items."""

    def __init__(
        self, request: ResponsesRequest, wanted: EngineRequest, pair: PairLoaded, model: str, answer: Answer
    ) -> None:
        super().__init__(request, wanted, pair, model, answer)
        self._namespaced = namespaced(request.tools or [])
        self._items: list[Json] = []
        self._is_open = False
        """Whether the last item is incomplete."""
        self._count = 0
        """The number of events so far."""
        self._response: Json = {
            "id": "resp_" + secrets.token_urlsafe(24),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "previous_response_id": None,
            "store": False,
            "background": False,
            "truncation": "disabled",
            "metadata": {},
            **_echoed(request),
        }

    def whole(self, pieces: list[Piece], finished: GenerationFinished) -> Json:
        for _ in self._parts(self._reader.whole(pieces, finished)):
            pass
        for _ in self._close_item(_status(finished)):
            pass
        return self._finished(finished)

    def begin(self) -> Iterator[Json]:
        for name in ("created", "in_progress"):
            yield self._event(f"response.{name}", response={**self._response, "output": [], "usage": None})

    def finish(self, finished: GenerationFinished) -> Iterator[Json]:
        yield from self._parts(self._reader.end(finished))
        yield from self._close_item(_status(finished))
        response = self._finished(finished)
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> Json:
        details = error.body()["error"]
        return self._event("error", code=details["type"], message=details["message"], param=None)

    # ------------------------------------------------------------ items

    def _parts(self, said: AnswerContent) -> Iterator[Json]:
        for kind, new in (("reasoning", said.thinking), ("message", said.text)):
            if new:
                yield from self._open_item(kind)
                item, (part, _) = self._items[-1], _KINDS[kind]
                item["content"][0]["text"] += new
                extra: Json = {"logprobs": []} if kind == "message" else {}
                yield self._event(f"response.{part}.delta", **self._place(0), delta=new, **extra)
        for call in said.calls:
            yield from self._call(call)

    def _open_item(self, kind: str) -> Iterator[Json]:
        """Begin a text item, unless the open one is of this ``kind``."""
        if self._is_open and self._items[-1]["type"] == kind:
            return
        yield from self._close_item()
        part_type, prefix = _KINDS[kind]
        part: Json = {"type": part_type, "text": ""}
        item: Json = {"id": prefix + secrets.token_hex(16), "type": kind, "status": "in_progress"}
        if kind == "message":
            part |= {"annotations": [], "logprobs": []}
            item["role"] = "assistant"
        else:
            item["summary"] = []
        self._items.append(item)
        self._is_open = True
        place = {"output_index": len(self._items) - 1}
        yield self._event("response.output_item.added", **place, item={**item, "content": []})
        item["content"] = [part]
        yield self._event("response.content_part.added", **self._place(0), part=dict(part))

    def _close_item(self, status: str = "completed") -> Iterator[Json]:
        if not self._is_open:
            return
        self._is_open = False
        item = self._items[-1]
        item["status"] = status
        (part,) = item["content"]
        extra: Json = {"logprobs": []} if item["type"] == "message" else {}
        yield self._event(f"response.{part['type']}.done", **self._place(0), text=part["text"], **extra)
        yield self._event("response.content_part.done", **self._place(0), part=part)
        yield self._event("response.output_item.done", output_index=len(self._items) - 1, item=item)

    def _call(self, call: ToolCall) -> Iterator[Json]:
        yield from self._close_item()
        item: Json = {
            "id": "fc_" + secrets.token_hex(16),
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
        }
        if own := self._namespaced.get(call.name):
            item |= {"name": own.name, "namespace": own.namespace}
        index = len(self._items)
        started = {**item, "arguments": "", "status": "in_progress"}
        self._items.append({**item, "arguments": call.arguments, "status": "completed"})
        place = self._place()
        yield self._event("response.output_item.added", output_index=index, item=started)
        yield self._event("response.function_call_arguments.delta", **place, delta=call.arguments)
        yield self._event("response.function_call_arguments.done", **place, name=item["name"], arguments=call.arguments)
        yield self._event("response.output_item.done", output_index=index, item=self._items[-1])

    def _place(self, content_index: int | None = None) -> Json:
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        return place if content_index is None else {**place, "content_index": content_index}

    # ------------------------------------------------------------ the response

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": kind, "sequence_number": self._count, **fields}
        self._count += 1
        return event

    def _finished(self, finished: GenerationFinished) -> Json:
        status = _status(finished)
        return {
            **self._response,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": self._items,
            "usage": _usage(finished.figures),
            **self._figures(finished),
        }


def _status(finished: GenerationFinished) -> str:
    return "incomplete" if finished.finish_reason in ("length", "context") else "completed"


def _echoed(request: ResponsesRequest) -> Json:
    """The fields of its request that an answer repeats."""
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
        "temperature": request.temperature,
        "text": {"format": _format(request)},
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "top_p": request.top_p,
    }


def _format(request: ResponsesRequest) -> Json:
    wanted = request.text.format if request.text else None
    if wanted is None or wanted.type != "json_schema":
        return {"type": wanted.type if wanted else "text"}
    return {"type": "json_schema", "name": wanted.name or "answer", "schema": wanted.schema, "strict": True}


def _usage(figures: Figures) -> Json:
    counts = shown.usage(figures)
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": figures.cached_tokens},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": figures.thinking_tokens},
        "total_tokens": counts["total_tokens"],
    }


_CALL, _RESULT = "_call", "_call_output"
"""Suffixes of the types of calls and results."""


def prepare_response(
    request: ResponsesRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings
) -> EngineRequest:
    """Raises `ApiError`."""
    _check_supported(request, warnings)
    several = request.parallel_tool_calls is not False
    use = tool_use(request.tools or [], request.tool_choice, warnings, several=several)
    if request.text and request.text.format:
        request.response_format = request.text.format
    check_together(request, use, pair)
    request.max_completion_tokens = request.max_output_tokens
    effort = request.reasoning.effort if request.reasoning else None
    level = thinking_level(effort, pair.thinking, warnings)
    command = command_for(request, pair, _messages(request, images, warnings), warnings, level)
    command = msgspec.structs.replace(command, tools=use)
    return continuing(command, warnings)


def _messages(request: ResponsesRequest, images: RequestImages, warnings: Warnings) -> list[Message]:
    items = [Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    history = History(images, warnings)
    if request.instructions:
        history.add("system", request.instructions)
    for item in items:
        kind = item.type or "message"
        if kind == "message" and ROLES.get(item.role or "") != "assistant":
            history.add(item.role or "user", item.content)
        elif kind.endswith(_RESULT):
            history.result(item.call_id, item.output, item.name)
        elif kind in ("message", "reasoning") or kind.endswith(_CALL):
            _add_to_answer(history, item, kind)
        elif text := item.content or item.output:
            history.add("user", text)
        else:
            warnings.add(f"An item of the type {quoted(kind)} was left out of the input: it has no text.")
    return history.whole()


def _add_to_answer(history: History, item: Item, kind: str) -> None:
    if kind == "message":
        history.answer(item.content, goes_on=True)
    elif kind == "reasoning":
        history.answer("", _thought(item), goes_on=True)
    elif item.call_id is None and kind != "function_call":  # ran at OpenAI, and has no separate result
        history.answer(msgspec.to_builtins(item), goes_on=True)
    else:
        name = str(item.name or kind.removesuffix(_CALL))
        if isinstance(item.namespace, str) and item.namespace:
            name = Namespaced(item.namespace, name).whole
        arguments = item.arguments
        if arguments is None and (item.input is not None or item.action is not None):
            arguments = {"input": item.input} if item.input is not None else item.action
        history.answer("", calls=[(item.call_id, name, arguments)], goes_on=True)


def _thought(item: Item) -> str:
    parts: Sequence[Any] = item.content if isinstance(item.content, list) else item.summary or []
    return "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))


def _check_supported(request: ResponsesRequest, warnings: Warnings) -> None:
    if request.previous_response_id or request.conversation or request.prompt:
        raise not_supported("This server stores nothing: send the whole chat as input.")
    if request.background:
        warnings.add("This server doesn't answer in the background: this is the whole answer.")
    if request.top_logprobs:
        warnings.add("The top_logprobs were left out: this server gives logprobs in chat completions only.")
