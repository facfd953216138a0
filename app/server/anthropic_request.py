"""``/v1/messages``, Anthropic's form: a request as what an engine is asked."""

from __future__ import annotations

import msgspec

from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.server.chat_request import NO_TOOLS, Asked, continuing, text_of
from app.server.errors import not_supported
from app.server.fields import AnthropicMessage, MessagesRequest
from app.server.settings import command_for

_TOOL_BLOCKS = ("tool_use", "tool_result", "server_tool_use")
_THOUGHT_BLOCKS = ("thinking", "redacted_thinking")


def asked_by_messages(request: MessagesRequest, pair: PairLoaded) -> Asked:
    """What to ask the engine. Raises `ApiError`.

    Without ``thinking`` the model isn't to think, as at Anthropic's: clients take the first block for the answer.
    """
    if request.tools:
        raise not_supported(NO_TOOLS)
    if request.output_config and request.output_config.format:
        request.response_format = request.output_config.format
    messages = list(map(_message, request.messages))
    begun = messages.pop() if messages[-1].role == "assistant" else None
    if system := text_of(request.system):
        messages.insert(0, Message(role="system", content=system))
    thinking = request.thinking
    level = "on" if thinking and thinking.type != "disabled" else "off"
    command = msgspec.structs.replace(
        command_for(request, pair, messages),
        stop=list(filter(None, request.stop_sequences or [])),
        thinking=level if level in pair.thinking else "",
        thinking_budget=thinking.budget_tokens if thinking else None,
    )
    return continuing(command, begun)


def _message(message: AnthropicMessage) -> Message:
    if isinstance(message.content, str):
        return Message(role=message.role, content=message.content)
    if any(block.type in _TOOL_BLOCKS for block in message.content):
        raise not_supported(NO_TOOLS)
    text = text_of([block for block in message.content if block.type not in _THOUGHT_BLOCKS])
    thought = "".join(block.thinking or "" for block in message.content)
    return Message(role=message.role, content=text, thinking=thought if message.role == "assistant" else "")
