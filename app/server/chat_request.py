"""``/v1/chat/completions``: a request's messages and options as what an engine is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from app.protocol.commands import CheckText, Generate, Message
from app.protocol.events import PairLoaded
from app.protocol.limits import MAX_COUNT
from app.protocol.options import TemplateVariables
from app.protocol.tools import ToolUse
from app.server.errors import invalid
from app.server.fields import ChatMessage, ChatRequest
from app.server.history import ROLES, Call, History
from app.server.images import RequestImages
from app.server.settings import command_for, likely
from app.server.tool_request import check_together, tool_use
from app.server.warnings import Warnings, quoted

_SPELLED_THINKING = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
"""What other servers leave in the text of an answer."""
_OFF = ("none", "off", "disabled")
_LESS_EFFORT = ("minimal", "low", "medium", "high", "xhigh", "max")
"""In order."""


@dataclass(frozen=True)
class Asked:
    """A chat request for an engine; the tokens of ``continued`` have yet to be put into ``command``."""

    command: Generate
    warnings: Warnings
    continued: CheckText | None = None
    """The beginning of the answer, where the request has it."""

    @property
    def begun(self) -> str:
        """Its text."""
        return self.continued.text if self.continued else ""


def asked(request: ChatRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings | None = None) -> Asked:
    """What to ask the engine; what is left out of it is added to ``warnings``. Raises `ApiError`."""
    warnings = warnings or Warnings()
    use = _tool_use(request, warnings)
    check_together(request, use, pair)
    messages = _messages(request.messages, images, warnings)
    goes_on = request.continue_final_message
    if goes_on and not (messages and messages[-1].role == "assistant"):
        raise invalid("Only an answer can be continued, and the last message isn't the assistant's.")
    if goes_on == "reasoning_content":
        messages[-1] = msgspec.structs.replace(messages[-1], content="")
    effort = request.reasoning_effort or (request.reasoning.effort if request.reasoning else None)
    command = msgspec.structs.replace(
        command_for(request, pair, messages, warnings, thinking_level(effort, pair.thinking, warnings)),
        thinking_budget=budget(request.thinking_budget_tokens),
        template_variables=template_variables(request.chat_template_kwargs or {}, pair, warnings),
        tools=use,
        logprobs=_logprobs(request, use, warnings),
    )
    return continuing(command, warnings, goes_on=goes_on is not False)


def continuing(command: Generate, warnings: Warnings, *, goes_on: bool = True) -> Asked:
    """What a ``command`` asks. If its last message is the assistant's, that is the beginning of the answer, if it
    ``goes_on``. Raises `ApiError`."""
    messages = command.messages
    begun = messages[-1] if goes_on and messages and messages[-1].role == "assistant" else None
    if begun and begun.tool_calls:
        raise invalid("The results of the last calls are missing.")
    messages = messages[:-1] if begun else messages
    if all(one.role == "system" for one in messages):
        messages = [*messages, Message(role="user", content="")]
    command = msgspec.structs.replace(command, messages=messages)
    if begun is None or not (begun.content or begun.thinking):
        return Asked(command, warnings)
    spelled = _SPELLED_THINKING.match(begun.content)
    question = CheckText(
        request=0,
        text=begun.content[spelled.end() :] if spelled else begun.content,
        thought=begun.thinking + (spelled[1] if spelled else ""),
        thinking=command.thinking,
        template_variables=command.template_variables,
    )
    return Asked(command, warnings, question)


def template_variables(wanted: Mapping[str, Any], pair: PairLoaded, warnings: Warnings) -> TemplateVariables:
    """Those of the template's variables that it declares. Clients send ``enable_thinking`` to any model."""
    declared = {name: value for name, value in wanted.items() if name in pair.template_variables and value is not None}
    for name, value in declared.items():
        if not isinstance(value, bool | int | float | str):
            warnings.add(f"The variable {quoted(name)} was left out: it is neither text nor number.")
    return {name: value for name, value in declared.items() if isinstance(value, bool | int | float | str)}


def thinking_level(effort: str | None, levels: Sequence[str], warnings: Warnings) -> str:
    """The model's level for an effort in OpenAI's words, or in its own; empty: as if nothing had been said.

    The nearest of those it has, rather less than more.
    """
    if effort is None or effort in levels:
        return effort or ""
    if effort in _OFF:
        return "off" if "off" in levels else ""
    if effort not in _LESS_EFFORT:
        warnings.add(f"The effort {quoted(effort)} isn't known here; the model thinks as it usually does.")
        return ""
    place = _LESS_EFFORT.index(effort)
    for level in (*reversed(_LESS_EFFORT[:place]), *_LESS_EFFORT[place:], "on"):
        if level in levels:
            return level
    return ""


def budget(tokens: int | None) -> int | None:
    """Tokens to think; ``None``, like a negative number: no limit."""
    return None if tokens is None or tokens < 0 else min(tokens, MAX_COUNT)


def _tool_use(request: ChatRequest, warnings: Warnings) -> ToolUse | None:
    """With the old ``functions``, of which an answer calls one."""
    several = request.parallel_tool_calls is not False and not request.functions
    choice = request.tool_choice
    if request.functions and choice is None:
        choice = request.function_call
        choice = {"type": "function", **choice} if isinstance(choice, dict) else choice
    return tool_use([*(request.tools or []), *(request.functions or [])], choice, warnings, several=several)


def _messages(sent: Sequence[ChatMessage], images: RequestImages, warnings: Warnings) -> list[Message]:
    history = History(images, warnings)
    for message in sent:
        role = message.role or "user"
        if role in ("tool", "function"):
            history.result(message.tool_call_id, message.content, message.name)
        elif ROLES.get(role) == "assistant":
            thought = message.reasoning_content or message.reasoning
            history.answer(message.content, thought, _calls(message))
        else:
            history.add(role, message.content)
    return history.whole()


def _calls(message: ChatMessage) -> list[Call]:
    found: list[Call] = []
    for call in filter(None, message.tool_calls or []):
        if call.function:
            found.append((call.id, call.function.name, call.function.arguments))
        elif call.custom:
            found.append((call.id, call.custom.get("name"), {"input": call.custom.get("input")}))
    if message.function_call:
        found.append((None, message.function_call.name, message.function_call.arguments))
    return found


def _logprobs(request: ChatRequest, use: ToolUse | None, warnings: Warnings) -> int | None:
    others = request.top_logprobs or 0
    if not request.logprobs:
        if others:
            warnings.add("The top_logprobs were left out: logprobs isn't true.")
        return None
    if use:
        warnings.add("The logprobs were left out: this server doesn't give them together with tools.")
        return None
    return likely(others, warnings)
