"""The format of a file that holds a copy of a KV cache: header, tokens, the engine's own bytes, a SHA-256 of it all.

    8 bytes magic · 4 bytes length of the header · header (JSON) · tokens (int32) · state · 32 bytes digest

The digest is checked before anything of the file reaches the engine, which trusts what it reads back.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from app import decoders
from app.engine.decoding.kv_cache import State, Tokens
from app.errors import Canceled
from app.storage.chat_caches import PART_ENDING, chat_of, name_begins
from app.storage.json_file import NOT_UNDERSTOOD

_MAGIC = b"SLIPKV\x00\x01"
_LENGTH = struct.Struct("<I")
_LONGEST_HEADER = 4096
_CHUNK = 4 * 1024 * 1024
_DIGEST_BYTES = hashlib.sha256().digest_size
_TOKEN = np.dtype("<i4")

_Count = Annotated[int, msgspec.Meta(ge=0)]


class BadFileError(Exception):
    """The file is damaged, cut off, or not one of ours."""


class Header(msgspec.Struct, frozen=True):
    """What a file says about the state in it; see `StateFile`."""

    owner: str
    tokens: _Count
    size: _Count
    least: _Count


@dataclass(frozen=True, eq=False)
class StateFile:
    """What a file says about itself; only `read` checks everything."""

    path: Path
    owner: str
    tokens: Tokens
    size: int
    """The size of the state in bytes."""
    least: int
    """See `State.least`."""

    @property
    def chat(self) -> str:
        """The id of the chat; empty if that is unknown."""
        return chat_of(self.path)


def write(folder: Path, owner: str, chat: str, state: State, is_canceled: Callable[[], bool]) -> Path:
    """Write a file that only the user can read under a temporary name, and return its path.

    Raises `Canceled` if ``is_canceled``, which is called every few MiB, returns true, and `OSError`; nothing is left
    then. There is no ``fsync``: a file damaged by a power cut is detected when it is read, and only the time it would
    have saved is lost.
    """
    descriptor, name = tempfile.mkstemp(prefix=name_begins(owner, chat), suffix=PART_ENDING, dir=folder)
    part = Path(name)
    header = Header(owner, len(state.tokens), len(state.data), state.least)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - the descriptor is open already
            digest = hashlib.sha256()
            for chunk in chunks(header, state):
                if is_canceled():
                    raise Canceled
                file.write(chunk)
                digest.update(chunk)
            file.write(digest.digest())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def look(path: Path, owner: str) -> StateFile:
    """What ``path`` says about itself. Raises `BadFileError` if it can't be ``owner``'s, and `OSError`."""
    with path.open("rb") as file:
        _, header, tokens = _read_front(file, owner)
    return StateFile(path, owner, tokens, header.size, header.least)


def read(known: StateFile, is_canceled: Callable[[], bool]) -> State:
    """The state in a file, checked. Raises `Canceled` if ``is_canceled``, which is called every few MiB, returns true.

    Raises `BadFileError`, `OSError`, and `MemoryError` if there isn't enough memory for it.
    """
    with known.path.open("rb") as file:
        front, header, tokens = _read_front(file, known.owner)
        digest = hashlib.sha256(front)
        data = np.empty(header.size, np.uint8)
        for begin in range(0, header.size, _CHUNK):
            if is_canceled():
                raise Canceled
            chunk = data.data[begin : begin + _CHUNK]
            if file.readinto(chunk) != len(chunk):
                raise BadFileError("cut short")
            digest.update(chunk)
        if file.read() != digest.digest():
            raise BadFileError("the digest does not match")
    return State(tokens, data, header.least)


def chunks(header: Header, state: State) -> Iterator[memoryview | bytes]:
    """The content of a file, without the digest."""
    encoded = msgspec.json.encode(header)
    yield _MAGIC + _LENGTH.pack(len(encoded)) + encoded + state.tokens.astype(_TOKEN).tobytes()
    for begin in range(0, len(state.data), _CHUNK):
        yield state.data.data[begin : begin + _CHUNK]


def _read_front(file: BufferedReader, owner: str) -> tuple[bytes, Header, Tokens]:
    """Everything before the state: its bytes, and their meaning."""
    front = file.read(len(_MAGIC) + _LENGTH.size)
    if len(front) != len(_MAGIC) + _LENGTH.size or not front.startswith(_MAGIC):
        raise BadFileError("not a saved cache")
    (length,) = _LENGTH.unpack_from(front, len(_MAGIC))
    if length > _LONGEST_HEADER:
        raise BadFileError("not a saved cache")
    encoded = file.read(length)
    try:
        header = decoders.decode(encoded, Header)
    except NOT_UNDERSTOOD as error:
        raise BadFileError(str(error)) from error
    size = len(front) + length + header.tokens * _TOKEN.itemsize + header.size + _DIGEST_BYTES
    if header.owner != owner or header.least > header.tokens or os.fstat(file.fileno()).st_size != size:
        raise BadFileError("another owner or another size")
    text = file.read(header.tokens * _TOKEN.itemsize)
    if len(text) != header.tokens * _TOKEN.itemsize:
        raise BadFileError("cut short")
    return front + encoded + text, header, np.frombuffer(text, _TOKEN).astype(np.int32)
