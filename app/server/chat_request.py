"""``/v1/chat/completions``: a request's messages and options as what an engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.protocol.commands import CheckText, Generate, Message
from app.protocol.events import PairLoaded
from app.protocol.options import Role, TemplateVariables
from app.server.errors import invalid, not_supported
from app.server.fields import ChatMessage, ChatRequest, Part
from app.server.settings import command_for, most_tokens

_TEXT_PARTS = ("text", "input_text", "output_text")
NO_TOOLS = "This server doesn't do tools yet. Send the request without tools."
_OFF = ("none", "off", "disabled")
_LESS_EFFORT = ("minimal", "low", "medium", "high", "xhigh", "max")
"""In order."""


@dataclass(frozen=True)
class Asked:
    """A chat request for an engine; the tokens of ``continued`` have yet to be put into ``command``."""

    command: Generate
    continued: CheckText | None = None
    """The beginning of the answer, where the request has it."""


def asked(request: ChatRequest, pair: PairLoaded) -> Asked:
    """What to ask the engine. Raises `ApiError`."""
    _check_supported(request)
    messages = merged(list(map(_message, request.messages)))
    variables = template_variables(request.chat_template_kwargs or {}, pair)
    level = thinking_level(request.reasoning_effort, pair.thinking)
    begun = None
    if messages[-1].role == "assistant" and request.continue_final_message is not False:
        begun = messages.pop()
    elif request.continue_final_message:
        raise invalid("Only an answer can be continued, and the last message isn't the assistant's.")
    command = command_for(request, pair, messages)
    longest = request.max_completion_tokens
    command = msgspec.structs.replace(
        command,
        max_tokens=command.max_tokens if longest is None else most_tokens(longest),
        thinking=level,
        thinking_budget=None if request.thinking_budget_tokens == -1 else request.thinking_budget_tokens,
        template_variables=variables,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
    if begun and request.continue_final_message == "reasoning_content":
        begun = msgspec.structs.replace(begun, content="")
    return continuing(command, begun)


def continuing(command: Generate, begun: Message | None) -> Asked:
    """``command`` for an answer that has begun with a message, if there is one."""
    if begun is None or not (begun.content or begun.thinking):
        return Asked(command)
    question = CheckText(
        request=0,
        text=begun.content,
        thought=begun.thinking,
        thinking=command.thinking,
        template_variables=command.template_variables,
    )
    return Asked(command, question)


def template_variables(wanted: dict[str, bool | int | float | str | None], pair: PairLoaded) -> TemplateVariables:
    """Those of the template's variables that it declares. Clients send ``enable_thinking`` to any model."""
    declared = pair.template_variables
    return {name: value for name, value in wanted.items() if name in declared and value is not None}


def thinking_level(effort: str | None, levels: Sequence[str]) -> str:
    """The model's level for an effort in OpenAI's words, or in its own; empty: as if nothing had been said.

    The nearest of those it has, rather less than more. Raises `ApiError` for a word that nobody knows.
    """
    if effort is None or effort in levels:
        return effort or ""
    if effort in _OFF:
        return "off" if "off" in levels else ""
    if effort not in _LESS_EFFORT:
        raise invalid(f"reasoning_effort can be none, {', '.join(_LESS_EFFORT)}.")
    place = _LESS_EFFORT.index(effort)
    for level in (*reversed(_LESS_EFFORT[:place]), *_LESS_EFFORT[place:], "on"):
        if level in levels:
            return level
    return ""


def merged(messages: Sequence[Message]) -> list[Message]:
    """With one system prompt: many templates know only one, and some clients send several."""
    texts = []
    for message in messages:
        if message.role != "system":
            break
        texts.append(message.content)
    if len(texts) < 2:
        return list(messages)
    return [Message(role="system", content="\n\n".join(texts)), *messages[len(texts) :]]


def text_of(content: str | Sequence[Part] | None) -> str:
    """The text of a message. Raises `ApiError` for other content."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in _TEXT_PARTS:
            raise not_supported("This server only takes text in messages.")
    return "\n".join(part.text or "" for part in content)


def _message(message: ChatMessage) -> Message:
    if message.role in ("tool", "function") or message.tool_calls:
        raise not_supported(NO_TOOLS)
    roles: dict[str, Role] = {"developer": "system", "system": "system", "assistant": "assistant"}
    role: Role = roles.get(message.role, "user")
    thought = message.reasoning_content or message.reasoning or ""
    return Message(role=role, content=text_of(message.content), thinking=thought if role == "assistant" else "")


def _check_supported(request: ChatRequest) -> None:
    if request.tools or request.functions:
        raise not_supported(NO_TOOLS)
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs needs logprobs to be true.")
