"""``/v1/messages``, Anthropic's form: a request as what an engine is asked."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.protocol.tools import ToolUse
from app.server.chat_request import Asked, content_of, continuing
from app.server.errors import not_supported
from app.server.fields import AnthropicMessage, Block, Function, MessagesRequest, NamedChoice, NamedFunction, ToolChoice
from app.server.images import RequestImages
from app.server.settings import command_for
from app.server.tool_request import check_alone, check_known, earlier_call, result, tool_use

_CALL, _RESULT = "tool_use", "tool_result"
_THOUGHT_BLOCKS = ("thinking", "redacted_thinking")


def asked_by_messages(request: MessagesRequest, pair: PairLoaded, images: RequestImages) -> Asked:
    """What to ask the engine. Raises `ApiError`.

    Without ``thinking`` the model isn't to think, as at Anthropic's: clients take the first block for the answer.
    """
    use = _tool_use(request, pair)
    if request.output_config and request.output_config.format:
        request.response_format = request.output_config.format
    check_alone(request, use)
    messages: list[Message] = []
    for message in request.messages:
        messages += _turn(message, messages, pair, images)
    begun = messages.pop() if messages and messages[-1].role == "assistant" else None
    system, _ = content_of(request.system, images)
    if system:
        messages.insert(0, Message(role="system", content=system))
    thinking = request.thinking
    level = "on" if thinking and thinking.type != "disabled" else "off"
    command = msgspec.structs.replace(
        command_for(request, pair, messages),
        stop=list(filter(None, request.stop_sequences or [])),
        thinking=level if level in pair.thinking else "",
        thinking_budget=thinking.budget_tokens if thinking else None,
        tools=use,
    )
    return continuing(command, begun)


def _turn(
    message: AnthropicMessage, earlier: Sequence[Message], pair: PairLoaded, images: RequestImages
) -> list[Message]:
    """The messages that one of Anthropic's is made of: the results of calls are messages of their own."""
    if isinstance(message.content, str):
        return [Message(role=message.role, content=message.content)]
    results: list[Message] = []
    others: list[Block] = []
    for block in message.content:
        if block.type in (_CALL, _RESULT):
            check_known(pair)
        if block.type == _RESULT:
            text, seen = content_of(block.content, images)
            if seen:
                raise not_supported("This server only takes text in the result of a tool.")
            results.append(result(block.tool_use_id, text, earlier))
        else:
            others.append(block)
    calls = tuple(earlier_call(one.id, one.name, one.input or {}) for one in others if one.type == _CALL)
    thought = "".join(block.thinking or "" for block in others)
    said = [block for block in others if block.type not in (*_THOUGHT_BLOCKS, _CALL)]
    text, seen = content_of(said, images)
    if results and not said:
        return results
    thinking = thought if message.role == "assistant" else ""
    own = Message(role=message.role, content=text, thinking=thinking, images=seen, tool_calls=calls)
    return [*results, own]


def _tool_use(request: MessagesRequest, pair: PairLoaded) -> ToolUse | None:
    if any(tool.type not in (None, "custom") for tool in request.tools or []):
        raise not_supported("This server only takes tools that are functions.")
    functions = [Function(one.name, one.description, one.input_schema) for one in request.tools or []]
    wanted = request.tool_choice
    choice: ToolChoice | None = None
    match wanted.type if wanted else "auto":
        case "any":
            choice = "required"
        case "none":
            choice = "none"
        case "tool":
            assert wanted is not None
            choice = NamedChoice("function", NamedFunction(wanted.name))
    several = not (wanted and wanted.disable_parallel_tool_use)
    return tool_use(functions, choice, pair, several=several)
