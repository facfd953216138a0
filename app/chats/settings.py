"""The settings of a chat: how its answers are written. Stored with it."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app import system
from app.protocol.answering import AnswerSettings, PerChat, SamplingChoice, with_fields_of
from app.protocol.options import MAX_GRAMMAR_CHARACTERS, AnswerFormat, FormatChoice
from app.storage.json_file import NOT_UNDERSTOOD, lenient


class ChatSettings(PerChat, frozen=True, kw_only=True):
    """The settings of one chat or preset; some defaults differ from an answer's."""

    preset: str = ""
    """The preset these values came from; empty for none. They may have been changed since."""
    sampling: SamplingChoice = SamplingChoice()
    tools: list[str] | None = None
    """Which tools the model may call, each as ``server.tool`` (built-in ones as ``.tool``); ``None``: those that the
    settings offer in every chat."""
    folders: list[str] = msgspec.field(default_factory=list)
    """Folders that the built-in tools may read in this chat. Presets, exports and imported chats don't have them."""
    answer_format: FormatChoice = "text"
    format_source: Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARACTERS)] = ""

    @classmethod
    def of_answer(cls, asked: AnswerSettings) -> ChatSettings:
        """The settings to ask for this answer again."""
        wanted = asked.format
        return with_fields_of(
            cls,
            asked,
            sampling=with_fields_of(SamplingChoice, asked.sampling),
            answer_format=wanted.kind if wanted else "text",
            format_source=wanted.source if wanted else "",
        )

    def format(self) -> AnswerFormat | None:
        """What answers have to follow; ``None`` for free text."""
        if self.answer_format == "text":
            return None
        source = "" if self.answer_format == "json_object" else self.format_source
        return AnswerFormat(kind=self.answer_format, source=source)

    def to_json(self) -> str:
        """The stored form; `chat_settings` reads it."""
        text = json.dumps(msgspec.to_builtins(self), ensure_ascii=False)
        return text.encode(errors="replace").decode()  # SQLite rejects half a surrogate pair


def chat_settings(text: str) -> ChatSettings | None:
    """Read the stored form, ignoring invalid values; ``None`` for an empty text, which stands for the defaults."""
    if not text:
        return None
    try:
        content = system.decode(text.encode(errors="replace"), dict[str, Any])
    except NOT_UNDERSTOOD:
        return None
    return lenient(ChatSettings, content, [])


def without_folders(settings: ChatSettings) -> ChatSettings:
    """For presets and other computers: nobody else says which folders may be read here."""
    return msgspec.structs.replace(settings, folders=[])


def stop_strings_from(text: str) -> list[str]:
    r"""One stop string per line; ``\n``, ``\t`` and ``\\`` stand for a line break, a tab and a backslash."""
    return [re.sub(r"\\(.)", _unescaped, line) for line in text.splitlines() if line]


def stop_strings_as_text(stop: list[str]) -> str:
    """The reverse of `stop_strings_from`."""
    escaped = (text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t") for text in stop)
    return "\n".join(escaped)


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "\\": "\\"}.get(escape[1], escape[0])
