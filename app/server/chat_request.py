"""Turns ``/v1/chat/completions`` into a request to the engine; has the parts shared by all dialects."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from app.protocol.commands import CheckText, Generate, Image, Message
from app.protocol.events import PairLoaded
from app.protocol.images import HEAD_BYTES, ImageHead, is_bomb, problem_of, read_head
from app.protocol.options import Role, TemplateVariables
from app.protocol.tools import ToolCall, ToolUse, template_id
from app.server.fields import ChatMessage, ChatRequest, Content, Warnings, quoted
from app.server.guard import ApiError, invalid, not_supported
from app.server.settings import command_for, likely
from app.server.tools import as_object, check_together, is_name, tool_use

_DATA = re.compile(r"data:[a-zA-Z0-9.+/-]*;base64,")
MOST_IMAGES = 64


class RequestImages:
    """The images contained in one request, in a private folder that is deleted at the end of the ``with``."""

    def __init__(self, pair: PairLoaded) -> None:
        self._can_see = pair.projector is not None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._found: list[tuple[bytes, ImageHead]] = []

    def __enter__(self) -> RequestImages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._found = []
        if self._folder:
            with contextlib.suppress(OSError):  # Windows doesn't delete open files
                self._folder.cleanup()

    def from_url(self, url: str) -> Image:
        """The image in a ``data:`` URL; nothing is ever fetched. Raises `ApiError`."""
        match = _DATA.match(url)
        if not match:
            raise invalid("An image has to be in the request itself, as a data: URL with base64. Nothing is fetched.")
        return self.from_base64(url[match.end() :])

    def from_base64(self, text: str) -> Image:
        """Raises `ApiError`."""
        if not self._can_see:
            raise not_supported("The loaded model can't see images: it has no projector (mmproj).")
        if len(self._found) >= MOST_IMAGES:
            raise invalid(f"A request may have {MOST_IMAGES} images.")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise invalid("An image isn't valid base64.") from None
        name = f"Image {len(self._found) + 1}"
        head = read_head(data[:HEAD_BYTES])
        if problem := problem_of(head, name, len(data)):
            raise invalid(problem)
        assert head is not None
        self._found.append((data, head))
        return Image(hashlib.sha256(data).hexdigest(), str(self._path(len(self._found))))

    async def write(self) -> None:
        """Write the files for the engine. Raises `ApiError` for an image that would take too much memory."""
        if self._found:
            await asyncio.to_thread(self._write)

    def _write(self) -> None:
        for number, (data, head) in enumerate(self._found, 1):
            if is_bomb(data, head):
                raise invalid(f"Image {number} is larger than its size in pixels allows.")
            self._path(number).write_bytes(data)
        self._found = []

    def _path(self, number: int) -> Path:
        """An image's path, in a folder that only this user can read."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="slipstream-", ignore_cleanup_errors=True)
        return Path(self._folder.name) / f"Image {number}"


Call = tuple[Any, Any, Any]
"""Id, name and arguments."""
ROLES: dict[str, Role] = {
    "developer": "system",
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
}
_IMAGES = ("image_url", "input_image", "image")
"""Types of image parts; any part with an ``image_url`` is one, too."""
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_FILES = ("file", "input_file", "document", "input_audio", "audio", "video_url", "container_upload")
_TEXTS = (
    *("title", "name", "tool_name", "text", "refusal", "summary", "content", "output", "resource"),
    *("query", "url", "uri"),
)
"""Fields of other parts that are text, in this order."""
_TEXT_KINDS = ("text/", "application/json", "application/xml")
_HEADER = re.compile(r"\s*x-anthropic-[\w-]+:.*(?:\n|\Z)", re.IGNORECASE)
"""A line for Anthropic's own server that differs in each request, so that nothing after it could be cached."""
_UNSEEN = "[An image that you can't see.]"
_UNREAD = "[A file that you can't read.]"


class History:
    """Builds the engine's messages from those of a request in any dialect, added in order.

    A request fails only if the answer would be wrong: unusable parts of earlier messages are left out with a warning.
    """

    def __init__(self, images: RequestImages, warnings: Warnings) -> None:
        self.messages: list[Message] = []
        self._images = images
        self._warnings = warnings
        self._open: list[ToolCall] = []
        """Calls without results so far."""
        self._unusable: list[ApiError] = []
        """Errors about images and files since the last answer, which the current question may be about."""
        self._named: dict[str, str] = {}
        """The names of calls that are shown as text, by id."""
        self._calls = 0

    def add(self, role: str, content: Content) -> None:
        """Add a message by anyone but the assistant and tools."""
        if role not in ROLES:
            self._warnings.add(f"The role {quoted(role)} isn't known here; its messages were taken as the user's.")
        known = ROLES.get(role, "user")
        text, seen = self._content(content, known)
        self.messages.append(Message(role=known, content=text, images=seen))

    def answer(
        self, content: Content, thinking: Content = None, calls: Sequence[Call] = (), *, goes_on: bool = False
    ) -> None:
        """Add a message by the assistant. ``goes_on``: append it to the last message if that is an answer."""
        for error in self._unusable:
            self._tell_left_out(error)
        self._unusable = []
        parts = content if isinstance(content, list) else [content]
        thoughts = [part for part in parts if isinstance(part, dict) and part.get("type") in _THOUGHTS]
        texts = [thinking, *(part.get("thinking") or part.get("text") for part in thoughts)]
        thinking = "".join(map(_all_text, texts))
        text, seen = self._content([part for part in parts if part and part not in thoughts], "assistant")
        known, written = [], [text] if text else []
        for identity, name, arguments in calls:
            call = self._call(identity, name, arguments)
            if isinstance(call, str):
                written.append(call)
            else:
                known.append(call)
        new = Message(
            role="assistant", content="\n".join(written), thinking=thinking, images=seen, tool_calls=tuple(known)
        )
        if goes_on and self.messages and self.messages[-1].role == "assistant":
            last = self.messages.pop()
            new = msgspec.structs.replace(
                last,
                content="\n".join(filter(None, (last.content, new.content))),
                thinking=last.thinking + new.thinking,
                images=(*last.images, *seen),
                tool_calls=(*last.tool_calls, *known),
            )
        self.messages.append(new)

    def result(self, identity: Any, content: Content, name: Any = None) -> None:
        """Add the result of a call. Without an id, it belongs to the first open call (with this ``name``, if given)."""
        text, seen = self._content(content, "tool")
        call = self._called(identity, name)
        if call is None:
            known = self._named.get(template_id(str(identity or "")))
            if known is None:
                self._warnings.add("A result of a call that isn't in the chat is shown to the model as text.")
            title = f"Result of {known or name or 'a tool'}:\n"
            self.messages.append(Message(role="user", content=title + text, images=seen))
            return
        self._open = [one for one in self._open if one is not call]
        self.messages.append(Message(role="tool", content=text, images=seen, tool_call_id=call.id, tool_name=call.name))
        self._sort_results()

    def whole(self) -> list[Message]:
        """All messages. Leading system messages are joined, because many templates support just one; images in results
        move to the user's next message. Raises `ApiError` if the current question has unusable images or files."""
        if self._unusable:
            raise self._unusable[0]
        first = next((at for at, one in enumerate(self.messages) if one.role != "system"), len(self.messages))
        system = "\n\n".join(one.content for one in self.messages[:first] if one.content)
        found = [Message(role="system", content=system)] if system else []
        shown: tuple[Image, ...] = ()
        for message in self.messages[first:]:
            if message.role == "tool":
                shown += message.images
                found.append(msgspec.structs.replace(message, images=()))
                continue
            if shown and message.role != "user":
                found.append(_shown(shown))
            elif shown:
                message = msgspec.structs.replace(message, images=(*shown, *message.images))  # noqa: PLW2901
            shown = ()
            found.append(message)
        return [*found, _shown(shown)] if shown else found

    # ------------------------------------------------------------ calls

    def _sort_results(self) -> None:
        """Put the last results in the order of their calls, because many templates match them by order alone."""
        at = len(self.messages)
        while at and self.messages[at - 1].role == "tool":
            at -= 1
        places = {call.id: place for place, call in enumerate(self.messages[at - 1].tool_calls)} if at else {}
        self.messages[at:] = sorted(self.messages[at:], key=lambda one: places.get(one.tool_call_id, len(places)))

    def _call(self, identity: Any, name: Any, arguments: Any) -> ToolCall | str:
        """A call, or its text if templates can't take it as one."""
        self._calls += 1
        known = template_id(str(identity or f"call {self._calls}"))
        values = as_object(arguments)
        if values is not None and is_name(name):
            call = ToolCall(known, name, values)
            self._open.append(call)
            return call
        self._warnings.add(f"A call of {quoted(name)} is shown as text: its name or its arguments can't be used.")
        self._named[known] = str(name or "a tool")
        return f"{name or ''}({arguments if isinstance(arguments, str) else _json(arguments)})"

    def _called(self, identity: Any, name: Any) -> ToolCall | None:
        if not identity:
            return next((one for one in self._open if not name or one.name == name), None)
        known = template_id(str(identity))
        calls = (call for message in reversed(self.messages) for call in message.tool_calls)
        return next((call for call in calls if call.id == known), None)

    # ------------------------------------------------------------ contents

    def _content(self, content: Content, role: Role) -> tuple[str, tuple[Image, ...]]:
        texts: list[str] = []
        seen: list[Image] = []
        for part in _parts(content):
            if isinstance(part, dict) and (part.get("type") in _IMAGES or part.get("image_url")):
                try:
                    seen.append(_image(part, self._images))
                except ApiError as error:
                    texts.append(self._left_out(error, role, _UNSEEN))
            else:
                texts.append(self._text(part, role))
        if role == "system":
            texts = list(filter(None, map(self._without_headers, texts)))
        return "\n".join(texts), tuple(seen)

    def _text(self, part: Any, role: Role) -> str:
        if isinstance(part, str):
            return part
        if not isinstance(part, dict) or not (part.get("type") or isinstance(part.get("text"), str)):
            return _json(part)  # a tool's result
        kind = part.get("type")
        text = _text_file(part) if kind in _FILES else _all_text(part)
        if text:
            return text
        if kind in _FILES:
            return self._left_out(not_supported("This server takes text and images, no other files."), role, _UNREAD)
        if part.get("text") is None:
            self._warnings.add(f"A part of the type {quoted(kind)} was left out of a message: it has no text.")
        return ""

    def _left_out(self, error: ApiError, role: Role, instead: str) -> str:
        if role == "user":
            self._unusable.append(error)
        else:
            self._tell_left_out(error)
        return instead

    def _tell_left_out(self, error: ApiError) -> None:
        self._warnings.add(f"{error.message} It was left out of an earlier message or a result, and the model is told.")

    def _without_headers(self, text: str) -> str:
        while match := _HEADER.match(text):
            self._warnings.add("A line for another server (x-anthropic-…) was left out of the system prompt.")
            text = text[match.end() :]
        return text


def _parts(content: Content) -> list[Any]:
    """The parts of a message's content."""
    if isinstance(content, dict) and isinstance(content.get("content"), list) and "type" not in content:
        content = content["content"]  # MCP's form of a result
    if isinstance(content, list) and all(part is None or isinstance(part, str | dict) for part in content):
        return [part for part in content if part is not None]
    return [] if content is None else [content]


def _shown(images: tuple[Image, ...]) -> Message:
    return Message(role="user", content="This is what the tool has shown.", images=images)


def _image(part: dict[str, Any], images: RequestImages) -> Image:
    """An image in OpenAI's, Anthropic's or MCP's form. Raises `ApiError`."""
    source, url = part.get("source"), part.get("image_url")
    if isinstance(part.get("data"), str):
        return images.from_base64(part["data"])
    if isinstance(source, dict):
        if source.get("type") != "base64":
            raise invalid("An image has to be in the request itself, as base64. Nothing is fetched.")
        return images.from_base64(str(source.get("data") or ""))
    return images.from_url(str((url.get("url") if isinstance(url, dict) else url) or ""))


def _all_text(value: Any) -> str:
    """All text in a part of any kind."""
    match value:
        case str():
            return value
        case list():
            return "\n".join(filter(None, map(_all_text, value)))
        case dict():
            texts = [_all_text(value[name]) for name in _TEXTS if value.get(name)]
            texts += [_json(value[name]) for name in ("input", "action", "arguments") if value.get(name)]
            return "\n".join(filter(None, texts))
    return ""


def _text_file(part: dict[str, Any]) -> str:
    """A file's text; empty if it isn't text or not in the request."""
    inner = part.get("file") or part.get("source") or part
    if not isinstance(inner, dict):
        return ""
    title = part.get("title") or inner.get("filename") or part.get("filename") or ""
    if inner.get("type") in ("text", "content"):
        text = _all_text(inner.get("data") or inner.get("content"))
    else:
        head, _, data = str(inner.get("file_data") or inner.get("data") or "").rpartition(";base64,")
        kind = head.removeprefix("data:") or str(inner.get("media_type"))
        if not kind.startswith(_TEXT_KINDS):
            return ""
        try:
            text = base64.b64decode(data, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return ""
    return "\n".join(filter(None, (str(title), text))) if text else ""


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SPELLED_THINKING = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
"""Thinking that other servers leave in an answer's text."""
_OFF = ("none", "off", "disabled")
_LESS_EFFORT = ("minimal", "low", "medium", "high", "xhigh", "max")
"""In order."""


@dataclass(frozen=True)
class EngineRequest:
    """A request in the engine's terms; the tokens of ``continued`` aren't in ``command`` yet."""

    command: Generate
    warnings: Warnings
    continued: CheckText | None = None
    """The beginning of the answer, if the request contains it."""

    @property
    def begun(self) -> str:
        """The text of ``continued``."""
        return self.continued.text if self.continued else ""


def prepare_chat(request: ChatRequest, pair: PairLoaded, images: RequestImages, warnings: Warnings) -> EngineRequest:
    """Adds ``warnings`` about fields that are left out. Raises `ApiError`."""
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
        template_variables=template_variables(request.chat_template_kwargs or {}, pair, warnings),
        tools=use,
        logprobs=_logprobs(request, use, warnings),
    )
    return continuing(command, warnings, goes_on=goes_on is not False)


def continuing(command: Generate, warnings: Warnings, *, goes_on: bool = True) -> EngineRequest:
    """The request for ``command``. With ``goes_on``, a last message by the assistant begins the answer. Raises
    `ApiError`."""
    messages = command.messages
    begun = messages[-1] if goes_on and messages and messages[-1].role == "assistant" else None
    if begun and begun.tool_calls:
        raise invalid("The results of the last calls are missing.")
    messages = messages[:-1] if begun else messages
    if all(one.role == "system" for one in messages):
        messages = [*messages, Message(role="user", content="")]
    command = msgspec.structs.replace(command, messages=messages)
    if begun is None or not (begun.content or begun.thinking):
        return EngineRequest(command, warnings)
    spelled = _SPELLED_THINKING.match(begun.content)
    question = CheckText(
        request=0,
        text=begun.content[spelled.end() :] if spelled else begun.content,
        thought=begun.thinking + (spelled[1] if spelled else ""),
        thinking=command.thinking,
        template_variables=command.template_variables,
    )
    return EngineRequest(command, warnings, question)


def template_variables(wanted: Mapping[str, Any], pair: PairLoaded, warnings: Warnings) -> TemplateVariables:
    """The variables that the template declares; clients send ``enable_thinking`` to any model."""
    declared = {name: value for name, value in wanted.items() if name in pair.template_variables and value is not None}
    for name, value in declared.items():
        if not isinstance(value, bool | int | float | str):
            warnings.add(f"The variable {quoted(name)} was left out: it is neither text nor number.")
    return {name: value for name, value in declared.items() if isinstance(value, bool | int | float | str)}


def thinking_level(effort: str | None, levels: Sequence[str], warnings: Warnings) -> str:
    """The model's level for an effort in OpenAI's words or its own; empty: the default.

    If it doesn't have that level, the nearest one, preferably lower.
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


def _tool_use(request: ChatRequest, warnings: Warnings) -> ToolUse | None:
    """The tools, including ``functions`` in the old form, which allow at most one call."""
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
