"""How messages travel: a 4-byte little-endian length followed by that many bytes of JSON.

Decoding checks every type, so a broken or hostile engine cannot hand the window anything but the classes of
`app.engine.protocol` (`ProtocolError` otherwise).
"""

from __future__ import annotations

import struct

import msgspec

from app.engine.protocol import Command, Event

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class ProtocolError(Exception):
    """The other side sent something that is not a message of this protocol."""


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises: for a wrong message, for bytes that are no UTF-8, and for too many nested lists or objects."""
_encoder = msgspec.json.Encoder()
_command_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_frame(message: Command | Event) -> bytes:
    """The bytes of one framed message. Half a surrogate pair in a text (a bad paste) becomes a question mark."""
    try:
        body = _encoder.encode(message)
    except UnicodeEncodeError:
        body = _encoder.encode(without_surrogates(msgspec.to_builtins(message)))
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"message of {len(body)} bytes is larger than {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {key: without_surrogates(item) for key, item in value.items()}
    return value


def decode_command(body: bytes) -> Command:
    """Raises `ProtocolError` when ``body`` is no command."""
    try:
        return _command_decoder.decode(body)
    except _UNREADABLE as error:
        raise ProtocolError(str(error)) from error


def decode_event(body: bytes) -> Event:
    """Raises `ProtocolError` when ``body`` is no event."""
    try:
        return _event_decoder.decode(body)
    except _UNREADABLE as error:
        raise ProtocolError(str(error)) from error


class FrameReader:
    """Cuts a byte stream into message bodies, however it arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the bodies that are complete. Raises `ProtocolError` for an oversized frame."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"frame of {length} bytes is larger than {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            bodies.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return bodies
