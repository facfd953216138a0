"""Tools in a request: what the model may call, and earlier calls with their results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from app import decoders
from app.protocol.commands import Message
from app.protocol.events import PairLoaded
from app.protocol.tools import ID_LENGTH, MAX_TOOLS, Tool, ToolCall, ToolUse
from app.server.errors import invalid, not_supported
from app.server.fields import ChatTool, ChatToolCall, Function, Settings, ToolChoice

NO_TOOLS = (
    "The loaded model's chat template doesn't write tool calls in a form that this server knows. "
    "Send the request without tools."
)
_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")
_ID = re.compile(rf"[A-Za-z0-9]{{{ID_LENGTH}}}")
_NOT_READ = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def check_known(pair: PairLoaded) -> None:
    """Raises `ApiError` unless it is known how the model calls tools."""
    if not pair.tool_format:
        raise not_supported(NO_TOOLS)


def chat_tools(tools: Iterable[ChatTool]) -> list[Function]:
    """The functions among ``tools``, in OpenAI's form. Raises `ApiError` for others."""
    found = []
    for tool in tools:
        if tool.type != "function":
            raise not_supported("This server only takes tools that are functions.")
        if tool.function is None:
            raise invalid("A tool has no function.")
        found.append(tool.function)
    return found


def tool_use(
    functions: Sequence[Function], choice: ToolChoice | None, pair: PairLoaded, *, several: bool
) -> ToolUse | None:
    """What the model may call; ``None``: nothing. Raises `ApiError`."""
    if not functions:
        if choice not in (None, "none", "auto"):
            raise invalid("The request has a tool_choice without tools.")
        return None
    names = [one.name for one in functions]
    if len(names) > MAX_TOOLS or len(set(names)) < len(names):
        raise invalid(f"A request may have {MAX_TOOLS} tools, each with a name of its own.")
    if not all(map(_NAME.fullmatch, names)):
        raise invalid("The name of a tool may have up to 128 letters, digits and signs out of _ . : / -")
    if choice == "none":
        return None
    check_known(pair)
    tools = [
        Tool(name=one.name, description=one.description or "", parameters=one.parameters or {}) for one in functions
    ]
    return ToolUse(tools=tools, required=choice not in (None, "auto"), only=_named(choice, names), several=several)


def check_alone(request: Settings, use: ToolUse | None) -> None:
    """Raises `ApiError` for what doesn't go together with tools."""
    wanted = request.response_format
    if use and (request.grammar or (wanted and wanted.type != "text")):
        raise not_supported("This server doesn't support tools together with an answer format.")


def called(calls: Iterable[ChatToolCall]) -> tuple[ToolCall, ...]:
    """Earlier calls in OpenAI's form. Raises `ApiError`."""
    return tuple(earlier_call(call.id, call.function.name, _object(call.function.arguments)) for call in calls)


def earlier_call(identity: str, name: str, arguments: dict[str, Any]) -> ToolCall:
    """An earlier call. Raises `ApiError`."""
    if not _NAME.fullmatch(name):
        raise invalid("A message has a call without a valid name.")
    try:
        return ToolCall(template_id(identity), name, msgspec.json.encode(arguments).decode())
    except _NOT_READ:
        raise invalid("A message has a call with arguments that are no JSON.") from None


def result(identity: str, content: str, earlier: Sequence[Message]) -> Message:
    """The result of a call in one of the ``earlier`` messages. Raises `ApiError` if there is none."""
    known = template_id(identity)
    calls = (call for message in reversed(earlier) for call in message.tool_calls)
    name = next((call.name for call in calls if call.id == known), None)
    if name is None:
        raise invalid("A message has the result of a call that isn't in any earlier message.")
    return Message(role="tool", content=content, tool_call_id=known, tool_name=name)


def template_id(identity: str) -> str:
    """What the chat template sees of the id of a call: Mistral's take nine letters and digits only."""
    if _ID.fullmatch(identity):
        return identity
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:ID_LENGTH]


def _named(choice: ToolChoice | None, names: Sequence[str]) -> str:
    if choice is None or isinstance(choice, str):
        return ""
    if choice.type != "function":
        raise not_supported("This server only takes “none”, “auto”, “required” or one function as tool_choice.")
    name = choice.function.name if choice.function else choice.name or ""
    if name not in names:
        raise invalid("The tool_choice names a tool that the request doesn't have.")
    return name


def _object(text: str) -> dict[str, Any]:
    try:
        return decoders.decode(text, dict[str, Any])
    except _NOT_READ:
        raise invalid("A message has a call whose arguments aren't a JSON object.") from None
