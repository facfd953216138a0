"""Messages between the window and the API server's process: `ToServer` and `FromServer`, as frames on its pipes.

The process has no engine of its own: it forwards requests to the window's, one at a time, and gets the events back.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from app import system
from app.protocol import frames
from app.protocol.commands import CheckText, CountPrompt, Generate, Tokenize
from app.protocol.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    PairLoaded,
    PromptCounted,
    PromptProgressed,
    RoundsReceived,
    TextChecked,
    Tokenized,
)

DEFAULT_PORT = 8642
MAX_CLIENT_CHARACTERS = 80
AsideQuestion = CheckText | CountPrompt | Tokenize
"""About the loaded pair; numbered, and answered even during a request."""
AnsweredQuestion = TextChecked | PromptCounted | Tokenized
AnswerEvent = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished | GenerationFailed


class Serve(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """The first message to the process: where to listen, and who has access. A message, because other programs can read
    arguments and environment variables."""

    host: str | None
    """``None``: both loopback addresses; empty: all addresses."""
    port: int
    key: str | None
    """Required of clients; ``None``: no key."""
    hosts: list[str] = []
    """Additional names for this computer, in lower case."""
    origins: list[str] = []
    """Additional web origins, in lower case."""

    def __repr__(self) -> str:
        return f"Serve(host={self.host!r}, port={self.port}, key=…)"


class PairServed(msgspec.Struct, frozen=True, kw_only=True, tag="pair_served"):
    """The pair that is loaded now. Open requests to an earlier one have failed."""

    pair: PairLoaded | None
    why: str = ""
    """Why none is loaded, in one or two sentences for clients."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable"):
    """The engine can't handle this request or question at the moment."""

    request: int


class Listening(msgspec.Struct, frozen=True, kw_only=True, tag="listening"):
    addresses: list[tuple[str, int]]


class NotListening(msgspec.Struct, frozen=True, kw_only=True, tag="not_listening"):
    """The process can't listen, and ends. ``message`` is a sentence for the user."""

    message: str


class AnswerRequested(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """A client wants an answer; any earlier request has been given up."""

    client: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_CHARACTERS)]
    """The client's name for itself; ``?`` if it has none."""
    command: Generate


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="given_up"):
    """The client no longer wants this answer."""

    request: int


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True, tag="request_ended"):
    """A request's outcome, without any of its text."""

    path: str
    """Empty if it isn't one of ours."""
    client: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_CHARACTERS)]
    status: int
    """HTTP's; 0: the client left, or something failed in the middle of the answer."""
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0


ToServer = Serve | PairServed | Unavailable | AnswerEvent | AnsweredQuestion
FromServer = Listening | NotListening | AnswerRequested | GivenUp | AsideQuestion | RequestEnded

_to_server: system.Decoder[ToServer] = system.decoder(ToServer)
_from_server: system.Decoder[FromServer] = system.decoder(FromServer)


def decode_to_server(body: bytes) -> ToServer:
    """Raises `app.protocol.frames.ProtocolError`."""
    return frames.decode(_to_server, body)


def decode_from_server(body: bytes) -> FromServer:
    """Raises `app.protocol.frames.ProtocolError`."""
    return frames.decode(_from_server, body)
