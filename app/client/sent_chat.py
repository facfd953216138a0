"""Which messages of a chat an engine still has to be sent."""

from __future__ import annotations

from collections.abc import Sequence

from app.protocol import frames
from app.protocol.commands import ChatPart, Message
from app.protocol.frames import ProtocolError

PART_CHARACTERS = 100_000
"""A chat is sent in parts of so many characters, or one message, for whoever sends must not be kept for long."""
_MAX_BYTES_PER_CHARACTER = 6
"""In JSON: ``\\u0001``."""


def longest_text() -> int:
    """In characters: two such texts fit into a frame in any case."""
    return frames.MAX_BYTES // (2 * _MAX_BYTES_PER_CHARACTER)


class SentChat:
    """The messages of the chat that was sent to the process last."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def forget(self) -> None:
        """The process has no messages any more, or must not use them."""
        self._messages = []

    def beginning(self, chat: Sequence[Message]) -> tuple[list[ChatPart], int, list[Message]]:
        """What is new of a chat: parts to be sent first, and what goes with the command that is about the chat (how
        many messages the process has by then, and the others).

        Raises `ProtocolError` when a message is too large.
        """
        kept = _length_of_same(self._messages, chat)
        *parts, rest = _parts(chat[kept:])
        self._messages = list(chat)
        commands = []
        for part in parts:
            commands.append(ChatPart(messages=part, kept=kept))
            kept += len(part)
        return commands, kept, rest


def _length_of_same(first: Sequence[Message], second: Sequence[Message]) -> int:
    """How many messages at the beginning of both lists are the same."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one is not other and one != other:
            break
        length += 1
    return length


def _parts(chat: Sequence[Message]) -> list[list[Message]]:
    """A chat in parts that can be sent; one without messages where there are none."""
    parts: list[list[Message]] = [[]]
    size, limit = 0, longest_text()
    for message in chat:
        length = len(message.content) + len(message.thinking) + sum(len(one.arguments) for one in message.tool_calls)
        if length > limit:
            raise ProtocolError(f"a message of {length} characters is too large")
        if size + length > PART_CHARACTERS and size:
            parts.append([])
            size = 0
        parts[-1].append(message)
        size += length
    return parts
