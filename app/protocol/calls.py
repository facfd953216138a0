"""Finds tool calls in the text of an answer."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence

from app.protocol.tool_schemas import Schema
from app.protocol.tools import ARGUMENTS, ID, ID_LENGTH, INDEX, NAME, Tool, ToolCall, ToolFormat

_decode = json.JSONDecoder().raw_decode


class CallReader:
    """Finds the calls in one answer. The engine enforces the format's grammar: only calls come after the first mark."""

    def __init__(self, known: ToolFormat, tools: Sequence[Tool]) -> None:
        before, after = known.call.split(ARGUMENTS)
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._format = known
        self._before, self._after = re.compile(pattern_of(before)), re.compile(pattern_of(after))
        self._text = ""
        """Text that `read` hasn't returned yet."""
        self.in_calls = False
        """Whether the calls have begun, so that no text follows."""
        self._has_text = False

    def go_on(self, begun: str) -> None:
        """Continue an answer that begins with the text ``begun``."""
        if begun.strip() and (self._format.mark in begun or not self._format.anywhere):
            self.read(begun)

    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """Parse more of the answer; returns plain text and the calls that are complete now."""
        self._text += text
        shown = "" if self.in_calls else self._decided()
        if not self.in_calls:
            return shown, []
        self._text = self._text.removeprefix(self._format.opening)
        return shown, list(iter(self._next_call, None))

    def end(self, *, cut: bool) -> str:
        """The text held back at the end of the answer. If ``cut``, a possible beginning of a call is dropped."""
        if self.in_calls:
            return ""
        held, self._text = self._text, ""
        return held[: len(held) - _partial(held, self._format.mark)] if cut else held

    def _decided(self) -> str:
        """The text that can't be the beginning of a mark, or spaces before one."""
        held, mark = self._text, self._format.mark
        if not self._format.anywhere:
            begins = held.lstrip()
            if not self._has_text and (mark.startswith(begins) or begins.startswith(mark)):
                self.in_calls = begins.startswith(mark)
                self._text = begins if self.in_calls else held
                return ""
            self._has_text, self._text = True, ""
            return held
        before, found, _ = held.partition(mark)
        if found:
            self.in_calls, self._text = True, held[len(before) :]
            return before.rstrip()
        certain = len(held[: len(held) - _partial(held, mark)].rstrip())
        self._text = held[certain:]
        return held[:certain]

    def _next_call(self) -> ToolCall | None:
        text = self._text.removeprefix(self._format.separator)
        head = self._before.match(text)
        if not head:
            return None
        try:
            arguments, end = self._arguments(text, head.end(), self._schemas.get(head["name"], {}))
        except (ValueError, RecursionError):
            return None
        tail = self._after.match(text, end)
        if not tail:
            return None
        self._text = text[tail.end() :]
        parts = {**head.groupdict(), **tail.groupdict()}
        identity = parts.get("id") or f"call_{secrets.token_hex(12)}"
        return ToolCall(identity, parts["name"], arguments)

    def _arguments(self, text: str, at: int, schema: Schema) -> tuple[str, int]:
        """The arguments as JSON, and where they end. Raises `ValueError` if they are incomplete."""
        known = self._format
        if not known.parameter:
            _, end = _decode(text, at)
            return text[at:end], end
        values, end = known.notation.read_entries(text, at, ("", known.between, ""), known.members, schema)
        return json.dumps(values, ensure_ascii=False), end


def pattern_of(text: str) -> str:
    """A regular expression for a part of `ToolFormat.call`."""
    escaped = re.escape(text)
    named = escaped.replace(NAME, r"(?P<name>[A-Za-z0-9_.:/-]+)")
    named = named.replace(INDEX, r"[0-9]+")
    return named.replace(ID, rf"(?P<id>[A-Za-z0-9]{{{ID_LENGTH}}})")


def _partial(text: str, mark: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``mark``."""
    return next((length for length in range(len(mark) - 1, 0, -1) if text.endswith(mark[:length])), 0)
