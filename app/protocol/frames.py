"""Messages on the pipes between our processes: a 4-byte little-endian length followed by that many bytes of JSON.

The engine's messages (`app.protocol.frames`) and the helper's (`app.helper.messages`) both travel like this.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import IO, TYPE_CHECKING, TypeVar

import msgspec

from app import system

if TYPE_CHECKING:  # the helper has messages of its own, and starts without these
    from app.protocol.commands import Command
    from app.protocol.events import Event

MAX_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")
_encoder = msgspec.json.Encoder()

T = TypeVar("T")


class ProtocolError(Exception):
    """A message that is too large or can't be understood."""


def encode(message: msgspec.Struct) -> bytes:
    """A message as JSON. Half a surrogate pair in a text (from a bad paste) becomes a question mark."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:
        return _encoder.encode(without_surrogates(msgspec.to_builtins(message)))


def decode(decoder: system.Decoder[T], body: bytes) -> T:
    """A message from its JSON. Raises `ProtocolError` for anything that ``decoder`` can't read."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # A wrong message; bytes that aren't UTF-8; lists or objects nested too deeply.
        raise ProtocolError(str(error)) from error


def without_surrogates(value: object) -> object:
    """``value`` (of JSON's types) with a question mark for each half of a surrogate pair, which UTF-8 can't encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: without_surrogates(item) for key, item in value.items()}
    return value


def framed(body: bytes) -> bytes:
    """``body`` in a frame. Raises `ProtocolError` if it is too large."""
    if len(body) > MAX_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes is larger than {MAX_BYTES}")
    return _LENGTH.pack(len(body)) + body


def encode_frame(message: msgspec.Struct) -> bytes:
    """A message in a frame. Raises `ProtocolError` if it is too large."""
    return framed(encode(message))


def write(stream: IO[bytes], body: bytes) -> None:
    """Write a frame and flush it. Raises `ProtocolError`, and `OSError` if the other end is closed."""
    stream.write(framed(body))
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """Wait for the next body; ``None`` at the end of the stream, even inside a frame. Raises `ProtocolError`."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    length = _body_length(head)
    body = stream.read(length)
    return body if len(body) == length else None


class FrameReader:
    """Cuts a stream into bodies, for readers that must not block."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; returns the bodies they complete. Raises `ProtocolError` for one that is too large."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _body_length(self._buffer)
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies


def _body_length(head: bytes | bytearray) -> int:
    (length,) = _LENGTH.unpack_from(head)
    if length > MAX_BYTES:
        raise ProtocolError(f"a message of {length} bytes is larger than {MAX_BYTES}")
    return int(length)


# Decoding checks every type: whatever a broken or malicious engine sends, the window only gets the classes of
# `app.protocol.commands` and `app.protocol.events`.


@cache
def _commands() -> system.Decoder[Command]:
    from app.protocol.commands import Command

    return system.decoder(Command)


@cache
def _events() -> system.Decoder[Event]:
    from app.protocol.events import Event

    return system.decoder(Event)


def decode_command(body: bytes) -> Command:
    """Raises `ProtocolError` if ``body`` isn't a command."""
    return decode(_commands(), body)


def decode_event(body: bytes) -> Event:
    """Raises `ProtocolError` if ``body`` isn't an event."""
    return decode(_events(), body)
