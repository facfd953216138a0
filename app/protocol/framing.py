"""The engine's messages as bytes, and back.

Decoding checks every type, so a broken or malicious engine can send the window nothing but the classes of
`app.protocol.commands` and `app.protocol.events`.
"""

from __future__ import annotations

from app import decoders
from app.protocol import frames
from app.protocol.commands import Command
from app.protocol.events import Event

_commands: decoders.Decoder[Command] = decoders.decoder(Command)
_events: decoders.Decoder[Event] = decoders.decoder(Event)


def encode_frame(message: Command | Event) -> bytes:
    """The bytes of one framed message. Raises `app.protocol.frames.ProtocolError` when it is too large."""
    return frames.framed(frames.encode(message))


def decode_command(body: bytes) -> Command:
    """Raises `app.protocol.frames.ProtocolError` if ``body`` isn't a command."""
    return frames.decode(_commands, body)


def decode_event(body: bytes) -> Event:
    """Raises `app.protocol.frames.ProtocolError` if ``body`` isn't an event."""
    return frames.decode(_events, body)
