"""Tool calls in a chat: how its template writes them.

A format counts as known only if the template, given a chat with two calls, writes exactly what the format says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from app.engine.decoding.chat_template import TemplateInputs
from app.errors import KnownError
from app.protocol.commands import Image, Message
from app.protocol.tools import (
    ARGUMENTS,
    FORMATS,
    ID,
    KEY,
    NAME,
    VALUE,
    Tool,
    ToolCall,
    ToolFormat,
    ToolFormatName,
)

_NOW = datetime(2026, 1, 1)
_CALLS = (
    ToolCall("firstcal1", "first_tool", '{"place": "Rome"}'),
    ToolCall("secondca2", "second_tool", '{"count": 3}'),
)
_TOOLS = [
    Tool(
        name="first_tool",
        description="Oneword.",
        parameters={"type": "object", "properties": {"place": {"type": "string", "description": "Where"}}},
    ),
    Tool(
        name="second_tool",
        description="Otherword.",
        parameters={"type": "object", "properties": {"count": {"type": "integer", "description": "How many"}}},
    ),
]


class Template(Protocol):
    """What is needed of `app.engine.decoding.chat_template.ChatTemplate`."""

    @property
    def source(self) -> str: ...
    def render(self, chat: Sequence[Message], inputs: TemplateInputs | None = None) -> str: ...


# ------------------------------------------------------------ what a template writes


def found_format(template: Template) -> tuple[ToolFormatName, bool]:
    """How ``template`` writes calls, and whether it wants their arguments as text; ``general`` where that isn't known,
    or the template doesn't show the tools and their results."""
    if "tool" not in template.source:
        return "general", False
    for text_arguments in (False, True):
        for count in (2, 1):
            text = _rendered(template, _CALLS[:count], text_arguments=text_arguments)
            for name, known in FORMATS.items():
                if known.several == (count == 2) and written(known, _CALLS[:count]) in text:
                    return name, text_arguments
    return "general", False


def _rendered(template: Template, calls: Sequence[ToolCall], *, text_arguments: bool) -> str:
    """A chat with ``calls``; empty where the template refuses it, or leaves out the tools or their results."""
    results = [
        Message(role="tool", content=f"result{place}word", tool_call_id=call.id, tool_name=call.name)
        for place, call in enumerate(calls)
    ]
    chat = [
        Message(role="user", content="Well?"),
        Message(role="assistant", content="", tool_calls=tuple(calls)),
        *results,
    ]
    try:
        text = template.render(chat, TemplateInputs(_NOW, {}, _TOOLS, text_arguments))
    except KnownError:
        return ""
    expected = [*(result.content for result in results), "Oneword", "Otherword"]
    return text if all(word in text for word in expected) else ""


def written(known: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """The ``calls`` of an answer in the form ``known``."""
    texts = [
        known.call.replace(NAME, call.name).replace(ID, call.id).replace(ARGUMENTS, _arguments(known, call))
        for call in calls
    ]
    return known.opening + known.separator.join(texts) + known.closing


def _arguments(known: ToolFormat, call: ToolCall) -> str:
    if not known.parameter:
        return call.arguments
    pairs = json.loads(call.arguments).items()
    return "".join(known.parameter.replace(KEY, name).replace(VALUE, str(value)) for name, value in pairs)


class Hiding:
    """Puts words that nobody can have typed in the place of control tokens' texts within tools and calls."""

    def __init__(
        self,
        patterns: Sequence[re.Pattern[str]],
        hidden: MutableMapping[str, str | Image],
        new_word: Callable[[], str],
    ) -> None:
        """``patterns`` match what is to be hidden; ``hidden`` gets the texts, by their words."""
        self._patterns = patterns
        self._hidden = hidden
        self._new_word = new_word

    def call(self, call: ToolCall) -> ToolCall:
        """The same without such texts."""
        arguments = json.dumps(self._safe(json.loads(call.arguments)), ensure_ascii=False)
        return ToolCall(call.id, call.name, arguments)

    def tool(self, tool: Tool) -> Tool:
        """The same without such texts."""
        return msgspec.structs.replace(
            tool, description=self._text(tool.description), parameters=self._safe(tool.parameters)
        )

    def _safe(self, value: Any) -> Any:
        match value:
            case str():
                return self._text(value)
            case list():
                return [self._safe(one) for one in value]
            case dict():
                return {self._text(name): self._safe(one) for name, one in value.items()}
        return value

    def _text(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(self._word, text)
        return text

    def _word(self, match: re.Match[str]) -> str:
        word = self._new_word()
        self._hidden[word] = match.group()
        return word
