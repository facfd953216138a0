"""The importable formats: recognizing a file's format and reading its chats, a batch at a time."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec

from app.chats.formats import chatgpt, claude, jan, llama_cpp, lm_studio, markdown, open_webui, slipstream, turns
from app.chats.formats.json_stream import JsonStream, Readable
from app.chats.formats.records import Batch, Beside, ChatRecord, LeftOut, UnusableError
from app.words import shortened

# The sources of an import: files, folders and archives. Nothing is unpacked to the disk, no name in an archive is used
# as a path, and links in a folder aren't followed.

MOST_FILES = 100_000
"""The most files in a folder or an archive."""
MOST_BYTES = 4 * 1024**3
"""The most bytes in total, unpacked."""
MOST_RATIO = 200
"""An archive with a higher compression ratio can't be chats."""
_SMALL_BYTES = 64 * 1024**2
"""The ratio only matters above this size."""
_LARGEST_SIBLING = 4 * 1024**2
_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may take any amount of memory
_IS_ENCRYPTED = 1
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError)
"""What a broken archive may raise."""


@dataclass(frozen=True)
class Source:
    """One open file."""

    name: str
    """The name without folders."""
    file: Readable
    beside: Beside


class Sources:
    """Opens files one after another. ``total`` is their size in bytes, as stored; ``left_out`` counts failures."""

    def __init__(self, paths: Sequence[Path], left_out: LeftOut) -> None:
        """Raises `OSError`."""
        self._files = [found for path in paths for found in _files_of(path)]
        self._left_out = left_out
        self._before = 0
        self._current: IO[bytes] | None = None
        self._unpacked = 0
        self.total = sum(path.stat().st_size for path in self._files)

    def read(self) -> int:
        """How many bytes of ``total`` have been read."""
        return self._before + (self._current.tell() if self._current is not None else 0)

    def __iter__(self) -> Iterator[Source]:
        """Each source is closed when the next one is requested. Raises `OSError`."""
        for path in self._files:
            with path.open("rb") as file:
                self._current = file
                try:
                    if file.read(4) in _MAGIC:
                        yield from self._in_archive(file)
                    else:
                        file.seek(0)
                        yield Source(path.name, file, partial(_read_beside, path))
                finally:
                    self._current = None
            self._before += path.stat().st_size

    def _in_archive(self, file: IO[bytes]) -> Iterator[Source]:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                if len(entries) > MOST_FILES:
                    self._left_out["too_much"] += len(entries) - MOST_FILES
                by_name = {entry.filename: entry for entry in entries}
                for entry in entries[:MOST_FILES]:
                    yield from self._entry(archive, entry, by_name)
        except _BROKEN:
            self._left_out["unreadable"] += 1

    def _entry(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, by_name: dict[str, zipfile.ZipInfo]
    ) -> Iterator[Source]:
        if not _is_safe(entry.filename):
            self._left_out["unsafe_names"] += 1
        elif entry.flag_bits & _IS_ENCRYPTED:
            self._left_out["encrypted"] += 1
        elif entry.compress_type not in _METHODS:
            self._left_out["unreadable"] += 1
        else:
            name = PurePosixPath(entry.filename)

            def beside(other: str) -> bytes:
                found = by_name.get(str(name.with_name(other)))
                if found is None or found.flag_bits & _IS_ENCRYPTED or found.compress_type not in _METHODS:
                    return b""
                with archive.open(found) as file:
                    return _Unpacked(file, found, self).read(_LARGEST_SIBLING)

            try:
                with archive.open(entry) as file:
                    yield Source(name.name, _Unpacked(file, entry, self), beside)
            except _BROKEN:
                self._left_out["unreadable"] += 1

    def count_unpacked(self, size: int) -> None:
        """Raises `UnusableError` if the total becomes too large."""
        self._unpacked += size
        if self._unpacked > MOST_BYTES:
            raise UnusableError("too_much")


class _Unpacked:
    """A file in an archive. Raises `UnusableError` if it is broken or becomes too large."""

    def __init__(self, file: IO[bytes], entry: zipfile.ZipInfo, owner: Sources) -> None:
        self._file = file
        self._most = max(MOST_RATIO * entry.compress_size, _SMALL_BYTES)
        self._owner = owner
        self._size = 0

    def read(self, size: int, /) -> bytes:
        try:
            data = self._file.read(size)
        except _BROKEN as error:
            raise UnusableError("unreadable") from error
        self._size += len(data)
        if self._size > self._most:
            raise UnusableError("too_much")
        self._owner.count_unpacked(len(data))
        return data


def _files_of(path: Path) -> Iterator[Path]:
    """The file itself, or the files in the folder sorted by name. Raises `OSError`."""
    if not path.is_dir():
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe may never end
            raise OSError(f"{path.name} isn't a regular file")
        yield path
        return
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            found = Path(folder, name)
            if not found.is_symlink() and found.is_file():
                count += 1
                if count > MOST_FILES:
                    return
                yield found


def _read_beside(path: Path, name: str) -> bytes:
    found = path.with_name(name)
    if found.is_symlink() or not found.is_file():
        return b""
    with found.open("rb") as file:
        return file.read(_LARGEST_SIBLING)


def _is_safe(name: str) -> bool:
    """Whether a name in an archive stays inside it. We don't use it as a path, but any other name is malicious."""
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in name and "\0" not in name


# The formats: how each is recognized and read.


@dataclass(frozen=True)
class ReadFormat:
    """A format that can be read, recognized by a file's first record."""

    name: str
    title: str
    """The name on screen."""
    recognizes: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any], LeftOut], ChatRecord] | None = None
    """Reads a record that is one chat. Raises `UnusableError`."""
    read_all: Callable[[Iterator[Any], Beside, LeftOut], Iterator[ChatRecord]] | None = None
    """Reads all records of a file, for formats where a record is only part of a chat."""


READ: tuple[ReadFormat, ...] = (
    ReadFormat(slipstream.NAME, "Slipstream", slipstream.recognizes, slipstream.read),
    ReadFormat(llama_cpp.NAME, "llama.cpp", llama_cpp.recognizes, read_all=llama_cpp.read_all),
    ReadFormat(llama_cpp.NAME, "llama.cpp", llama_cpp.recognizes_older, llama_cpp.read_older),
    ReadFormat(chatgpt.NAME, "ChatGPT", chatgpt.recognizes, chatgpt.read),
    ReadFormat(claude.NAME, "Claude", claude.recognizes, claude.read),
    ReadFormat(open_webui.NAME, "Open WebUI", open_webui.recognizes, open_webui.read),
    ReadFormat(lm_studio.NAME, "LM Studio", lm_studio.recognizes, lm_studio.read),
    ReadFormat(jan.NAME, "Jan", jan.recognizes, read_all=jan.read_all),
    ReadFormat(turns.SHAREGPT, "ShareGPT", turns.recognizes_sharegpt, turns.read_sharegpt),
    ReadFormat(turns.OPENAI, "OpenAI messages", turns.recognizes_openai, turns.read_openai),
    ReadFormat(turns.OPENAI, "OpenAI messages", turns.is_message, read_all=turns.read_all),
)
"""In the order in which they are tried."""

TITLES = {**{one.name: one.title for one in READ}, markdown.NAME: "Slipstream"}


BATCH_CHATS = 200
BATCH_CHARACTERS = 1024 * 1024
BATCH_BYTES = 16 * 1024 * 1024
"""A batch ends after this many bytes even if it has no chats, so that progress is reported."""
MOST_CHARACTERS = 12 * 1024 * 1024
"""The largest chat: it has to fit into one message between processes."""
_SHORT_RESULT = 10_000
_SOUGHT = 3
"""How many records of a file are tried before it counts as unknown."""
_WRONG_TYPES = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""What a format may raise on a record with unexpected values."""


class ChatReading:
    """The chats of some files or folders."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises `OSError`."""
        self._left_out = LeftOut()
        self._sources = Sources(paths, self._left_out)
        self._other_files = 0
        self._chats = self._all()

    def next(self) -> Batch:
        """The next batch; empty ones after the last. Raises `OSError`."""
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
        """The chats; ``None`` in between where something else was read."""
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
            for one in found.read_all(records, source.beside, self._left_out):
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
    """The chat without its images, and how many it had. Long results of tools are cut."""
    messages = [
        msgspec.structs.replace(
            one,
            attachments=[part for part in one.attachments if part.kind != "image"],
            calls=[msgspec.structs.replace(call, result=shortened(call.result, _SHORT_RESULT)) for call in one.calls],
        )
        for one in chat.messages
    ]
    images = sum(len(one.attachments) for one in chat.messages) - sum(len(one.attachments) for one in messages)
    return msgspec.structs.replace(chat, messages=messages), images


def _characters(chat: ChatRecord) -> int:
    """The approximate size of a chat in a message."""
    return sum(one.size() + 12 * (len(one.provenance) + len(one.tokens)) for one in chat.messages) + sum(
        len(part.text) + 4 * len(part.data) // 3 for one in chat.messages for part in one.attachments
    )
