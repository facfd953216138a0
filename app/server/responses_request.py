"""``/v1/responses``: a request as what an engine is asked. Nothing is kept from one request to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.server.chat_request import Asked, continuing, thinking_level
from app.server.errors import not_supported
from app.server.fields import Item, ResponsesRequest
from app.server.history import ROLES, History
from app.server.images import RequestImages
from app.server.settings import command_for
from app.server.tool_request import Namespaced, check_together, tool_use
from app.server.warnings import Warnings, quoted

_CALL, _RESULT = "_call", "_call_output"
"""How the types of calls and of their results end."""


def asked_by_responses(
    request: ResponsesRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings | None = None
) -> Asked:
    """What to ask the engine. Raises `ApiError`."""
    warnings = warnings or Warnings()
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
    elif item.call_id is None and kind != "function_call":  # it ran at OpenAI's, and has no result of its own
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
