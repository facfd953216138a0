"""Documents that a model writes beside its answers and changes later: ChatGPT's canvas, Claude's artifacts."""

from __future__ import annotations

import re

import msgspec

from app.chats.formats.values import file_text

_ANYTHING = re.compile(r"\(?(?:\.|\[\\s\\S\])[*+]\??\)?")
_SPECIAL = re.compile(r"(?<!\\)(?:\\\\)*[.^$*+?{}\[\]|()]|\\[A-Za-z0-9]")


class Document(msgspec.Struct, frozen=True):
    """One version of a document."""

    name: str
    language: str
    """Of the code it consists of; ``markdown`` for prose."""
    content: str

    def part(self) -> str:
        """As a part of an answer."""
        return file_text(self.name, self.content, self.language)


def changed(content: str, pattern: str, replacement: str, *, everywhere: bool = False) -> str | None:
    """``content`` after a change by a regular expression; ``None`` if that doesn't match or isn't a simple one.

    Simple are those that consist of text and of ``.*`` and its like. Others could take forever.
    """
    pieces = [re.sub(r"\\(\W)", r"\1", one) for one in _ANYTHING.split(pattern)]
    if any(_SPECIAL.search(one) for one in _ANYTHING.split(pattern)):
        return None
    if pieces == ["", ""]:
        return replacement
    if len(pieces) == 1:
        return content.replace(pieces[0], replacement, -1 if everywhere else 1) if pieces[0] in content else None
    begin, end = content.find(pieces[0]), -1
    for piece in pieces:
        if (at := content.find(piece, max(begin, end))) < 0:
            return None
        end = at + len(piece)
    return content[:begin] + replacement + (content[end:] if pieces[-1] else "")
