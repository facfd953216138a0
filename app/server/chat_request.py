"""``/v1/chat/completions``: a request's messages and options as what an engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.protocol.commands import CheckText, Generate, Image, Message
from app.protocol.events import PairLoaded
from app.protocol.options import Role, TemplateVariables
from app.server.errors import invalid, not_supported
from app.server.fields import ChatMessage, ChatRequest, ImageUrl, Part
from app.server.images import RequestImages
from app.server.settings import command_for, most_tokens
from app.server.tool_request import called, chat_tools, check_alone, check_known, result, tool_use

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_IMAGE_PARTS = ("image_url", "input_image")
_OFF = ("none", "off", "disabled")
_LESS_EFFORT = ("minimal", "low", "medium", "high", "xhigh", "max")
"""In order."""
ROLES: dict[str, Role] = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True)
class Asked:
    """A chat request for an engine; the tokens of ``continued`` have yet to be put into ``command``."""

    command: Generate
    continued: CheckText | None = None
    """The beginning of the answer, where the request has it."""


def asked(request: ChatRequest, pair: PairLoaded, images: RequestImages) -> Asked:
    """What to ask the engine. Raises `ApiError`."""
    _check_supported(request)
    several = request.parallel_tool_calls is not False
    use = tool_use(chat_tools(request.tools or []), request.tool_choice, pair, several=several)
    messages = merged(_messages(request.messages, pair, images))
    variables = template_variables(request.chat_template_kwargs or {}, pair)
    level = thinking_level(request.reasoning_effort, pair.thinking)
    begun = None
    if messages[-1].role == "assistant" and request.continue_final_message is not False:
        begun = messages.pop()
    elif request.continue_final_message:
        raise invalid("Only an answer can be continued, and the last message isn't the assistant's.")
    command = command_for(request, pair, messages)
    check_alone(request, use)
    longest = request.max_completion_tokens
    command = msgspec.structs.replace(
        command,
        max_tokens=command.max_tokens if longest is None else most_tokens(longest),
        thinking=level,
        thinking_budget=None if request.thinking_budget_tokens == -1 else request.thinking_budget_tokens,
        template_variables=variables,
        tools=use,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
    if begun and request.continue_final_message == "reasoning_content":
        begun = msgspec.structs.replace(begun, content="")
    return continuing(command, begun)


def continuing(command: Generate, begun: Message | None) -> Asked:
    """``command`` for an answer that has begun with a message, if there is one. Raises `ApiError`."""
    if begun and begun.tool_calls:
        raise invalid("The results of the last calls are missing.")
    if begun is None or not (begun.content or begun.thinking):
        return Asked(command)
    if command.tools:
        raise not_supported("This server can't continue an answer that may call tools.")
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


def content_of(content: str | Sequence[Part] | None, images: RequestImages) -> tuple[str, tuple[Image, ...]]:
    """The text and the images of a message. Raises `ApiError` for other content."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    seen: list[Image] = []
    for part in content:
        if part.type in _TEXT_PARTS:
            texts.append(part.text or "")
        elif part.type in _IMAGE_PARTS:
            url = part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url
            seen.append(images.from_url(url or ""))
        elif part.type == "image":
            seen.append(_anthropic_image(part, images))
        else:
            raise not_supported("This server only takes text and images in messages.")
    return "\n".join(texts), tuple(seen)


def _anthropic_image(part: Part, images: RequestImages) -> Image:
    if part.source is None or part.source.type != "base64":
        raise invalid("An image has to be in the request itself, as base64. Nothing is fetched.")
    return images.from_base64(part.source.data or "")


def _messages(sent: Sequence[ChatMessage], pair: PairLoaded, images: RequestImages) -> list[Message]:
    found: list[Message] = []
    for message in sent:
        if message.role == "function":
            raise not_supported("This server takes the results of tools with the role tool, not function.")
        content, seen = content_of(message.content, images)
        if message.role == "tool" or message.tool_calls:
            check_known(pair)
        if message.role == "tool":
            found.append(result(message.tool_call_id, content, found))
            continue
        role: Role = ROLES[message.role]
        if role != "assistant":
            found.append(Message(role=role, content=content, images=seen))
            continue
        thought = message.reasoning_content or message.reasoning or ""
        calls = called(message.tool_calls or [])
        found.append(Message(role=role, content=content, thinking=thought, images=seen, tool_calls=calls))
    return found


def _check_supported(request: ChatRequest) -> None:
    if request.functions:
        raise not_supported("This server takes functions as tools only.")
    if request.tools and request.logprobs:
        raise not_supported("This server doesn't give logprobs together with tools.")
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs needs logprobs to be true.")
