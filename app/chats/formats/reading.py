"""Reads the chats of files, a batch at a time. Runs in the helper process, whose limits stop what hangs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from app.chats.formats import jan, markdown
from app.chats.formats.json_stream import JsonStream
from app.chats.formats.records import Batch, ChatRecord, LeftOut, UnusableError
from app.chats.formats.sources import Source, Sources
from app.chats.formats.table import READ, ReadFormat

BATCH_CHATS = 200
BATCH_CHARACTERS = 1024 * 1024
BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends when so much was read, even if no chat was found in it: somebody waits for news."""
MOST_CHARACTERS = 12 * 1024 * 1024
"""Of one chat, which has to fit into a message between processes."""
_MESSAGE_CHARACTERS = 100
"""What a message takes besides its texts, about."""
_SOUGHT = 3
"""How many records of a file are looked at for one of a known format."""
_WRONG_TYPES = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""What a format may raise on a record whose values aren't what they should be."""


class ChatReading:
    """The chats of some files or folders."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises `OSError`."""
        self._left_out = LeftOut()
        self._sources = Sources(paths, self._left_out)
        self._other_files = 0
        self._chats = self._all()

    def next(self) -> Batch:
        """The next batch; after the last one, empty batches. Raises `OSError`."""
        chats: list[ChatRecord] = []
        characters, begun = 0, self._sources.read()
        is_over = True
        for chat in self._chats:
            if chat is not None:
                chats.append(chat)
                characters += _characters(chat)
            enough = len(chats) >= BATCH_CHATS or characters >= BATCH_CHARACTERS
            if enough or self._sources.read() - begun >= BATCH_BYTES:
                is_over = False
                break
        left_out = {reason: count for reason, count in self._left_out.items() if count}
        self._left_out.clear()
        others, self._other_files = self._other_files, 0
        return Batch(chats, left_out, others, self._sources.read(), self._sources.total, is_over)

    def _all(self) -> Iterator[ChatRecord | None]:
        """The chats; ``None`` where something else was read."""
        for source in self._sources:
            try:
                for chat in self._in_file(source):
                    yield self._usable(chat) if chat is not None else None
            except UnusableError as error:
                self._left_out[error.reason] += 1
                if error.reason == "too_much":
                    return

    def _usable(self, chat: ChatRecord) -> ChatRecord | None:
        if not chat.messages:
            self._left_out["empty"] += 1
            return None
        if _characters(chat) > MOST_CHARACTERS:
            chat, images = _without_images(chat)
            self._left_out["images"] += images
        if _characters(chat) > MOST_CHARACTERS:
            self._left_out["too_large"] += 1
            return None
        return chat

    def _in_file(self, source: Source) -> Iterator[ChatRecord | None]:
        stream = JsonStream(source.file, self._left_out)
        if markdown.recognizes(stream.beginning(markdown.BEGINNING)):
            yield self._written_by_us(stream)
            return
        if stream.begins() not in ("[", "{"):
            self._other_files += 1
            return
        records = stream.records()
        begun: list[Any] = []
        for record in records:
            begun.append(record)
            if (found := _format_of(record)) is not None:
                yield from self._read(found, chain(begun, records), source)
                return
            if len(begun) == _SOUGHT:
                break
        is_thread = bool(begun) and isinstance(begun[0], dict) and jan.is_thread(begun[0])
        self._other_files += not is_thread

    def _written_by_us(self, stream: JsonStream) -> ChatRecord | None:
        content = stream.rest(MOST_CHARACTERS)
        if content is None:
            self._left_out["too_large"] += 1
            return None
        return msgspec.structs.replace(markdown.read(content, self._left_out), source=markdown.NAME)

    def _read(self, found: ReadFormat, records: Iterator[Any], source: Source) -> Iterator[ChatRecord | None]:
        if found.read_all is not None:
            for one in found.read_all(records, source, self._left_out):
                yield msgspec.structs.replace(one, source=found.name)
            return
        assert found.read is not None
        for record in records:
            chat: ChatRecord | None = None
            try:
                if isinstance(record, dict) and found.recognizes(record):
                    chat = msgspec.structs.replace(found.read(record, self._left_out), source=found.name)
                else:
                    self._left_out["damaged"] += 1
            except UnusableError as error:
                self._left_out[error.reason] += 1
            except _WRONG_TYPES:
                self._left_out["damaged"] += 1
            yield chat


def _format_of(record: object) -> ReadFormat | None:
    if not isinstance(record, dict):
        return None
    return next((one for one in READ if one.recognizes(record)), None)


def _without_images(chat: ChatRecord) -> tuple[ChatRecord, int]:
    """The chat, and how many images it had."""
    messages = [
        msgspec.structs.replace(one, attachments=[part for part in one.attachments if part.kind != "image"])
        for one in chat.messages
    ]
    images = sum(len(one.attachments) for one in chat.messages) - sum(len(one.attachments) for one in messages)
    return msgspec.structs.replace(chat, messages=messages), images


def _characters(chat: ChatRecord) -> int:
    """About how much a chat takes in a message."""
    return sum(
        len(one.text) + len(one.thinking) + 12 * (len(one.provenance) + len(one.tokens)) + _MESSAGE_CHARACTERS
        for one in chat.messages
    ) + sum(len(part.text) + 4 * len(part.data) // 3 for one in chat.messages for part in one.attachments)
