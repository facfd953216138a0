"""``/v1/responses``: a request as what an engine is asked. Nothing is kept from one request to the next."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.server.chat_request import ROLES, Asked, content_of, continuing, merged, thinking_level
from app.server.errors import invalid, not_supported
from app.server.fields import CalledFunction, ChatToolCall, Function, Item, ResponsesRequest
from app.server.images import RequestImages
from app.server.settings import command_for, most_tokens
from app.server.tool_request import called, check_alone, check_known, result, tool_use


def asked_by_responses(request: ResponsesRequest, pair: PairLoaded, images: RequestImages) -> Asked:
    """What to ask the engine. Raises `ApiError`."""
    _check_supported(request)
    if any(tool.type != "function" for tool in request.tools or []):
        raise not_supported("This server only takes tools that are functions.")
    functions = [Function(one.name, one.description, one.parameters) for one in request.tools or []]
    use = tool_use(functions, request.tool_choice, pair, several=request.parallel_tool_calls is not False)
    if request.text and request.text.format:
        request.response_format = request.text.format
    check_alone(request, use)
    messages = _messages(request, pair, images)
    begun = messages.pop() if messages[-1].role == "assistant" else None
    effort = request.reasoning.effort if request.reasoning else None
    command = command_for(request, pair, messages)
    longest = request.max_output_tokens
    command = msgspec.structs.replace(
        command,
        max_tokens=command.max_tokens if longest is None else most_tokens(longest),
        thinking=thinking_level(effort, pair.thinking),
        tools=use,
    )
    return continuing(command, begun)


def _messages(request: ResponsesRequest, pair: PairLoaded, images: RequestImages) -> list[Message]:
    items = [Item(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    found = [Message(role="system", content=request.instructions)] if request.instructions else []
    for item in items:
        match item.type:
            case "message":
                _add_message(found, item, images)
            case "function_call":
                check_known(pair)
                call = ChatToolCall(CalledFunction(item.name, item.arguments), item.call_id)
                last = _answer(found)
                found[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, *called([call])))
            case "function_call_output":
                check_known(pair)
                output, seen = content_of(item.output, images)
                if seen:
                    raise not_supported("This server only takes text in the result of a tool.")
                found.append(result(item.call_id, output, found))
            case "reasoning":
                last = _answer(found)
                found[-1] = msgspec.structs.replace(last, thinking=last.thinking + _thought(item))
            case _:
                raise not_supported("This server only takes messages, function calls, their outputs and reasoning.")
    if not found:
        raise invalid("The request has no input.")
    return merged(found)


def _add_message(found: list[Message], item: Item, images: RequestImages) -> None:
    content, seen = content_of(item.content, images)
    role = ROLES[item.role or "user"]
    if role == "assistant":
        last = _answer(found)
        text = f"{last.content}\n{content}" if last.content else content
        found[-1] = msgspec.structs.replace(last, content=text, images=(*last.images, *seen))
    else:
        found.append(Message(role=role, content=content, images=seen))


def _answer(found: list[Message]) -> Message:
    """The answer at the end, which may have several items; a new one where there is none."""
    if not found or found[-1].role != "assistant":
        found.append(Message(role="assistant", content=""))
    return found[-1]


def _thought(item: Item) -> str:
    parts: Sequence[object] = item.content if isinstance(item.content, list) else []
    texts = [*parts, *(item.summary or [] if not parts else [])]
    return "\n".join(getattr(part, "text", "") or "" for part in texts)


def _check_supported(request: ResponsesRequest) -> None:
    if request.previous_response_id or request.conversation or request.prompt:
        raise not_supported("This server stores nothing: send the whole chat as input.")
    if request.background:
        raise not_supported("This server doesn't do answers in the background.")
    if request.top_logprobs:
        raise not_supported("This server gives logprobs in chat completions only.")
