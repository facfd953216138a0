"""What the window and the process that serves other programs with its engine say to each other.

The window sends `ToServer`, the process sends `FromServer`, both as frames (`app.protocol.frames`) on its pipes. The
process has no engine: it passes on what one is asked, one answer at a time, and gets the events back.
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
"""About the loaded pair; asked with a number, and answered beside whatever is running."""
AnsweredQuestion = TextChecked | PromptCounted | Tokenized
AnswerEvent = GenerationStarted | PromptProgressed | RoundsReceived | GenerationFinished | GenerationFailed


class Serve(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """The first message to the process: where to listen, and who may ask. Neither an argument nor a variable, because
    others can read these."""

    host: str | None
    """``None``: at both of this computer's own addresses; empty: at all addresses."""
    port: int
    key: str | None
    """What has to be shown; ``None``: nothing."""
    hosts: list[str] = []
    """Names for this computer besides the usual ones, in lower case."""
    origins: list[str] = []
    """Web pages besides those of this computer, in lower case."""

    def __repr__(self) -> str:
        return f"Serve(host={self.host!r}, port={self.port}, key=…)"


class PairServed(msgspec.Struct, frozen=True, kw_only=True, tag="pair_served"):
    """What is loaded now. Whatever was asked of another pair has failed."""

    pair: PairLoaded | None
    why: str = ""
    """If there is none: why, in one or two sentences for clients."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable"):
    """The engine can't do what this request or question asks for now."""

    request: int


class Listening(msgspec.Struct, frozen=True, kw_only=True, tag="listening"):
    addresses: list[tuple[str, int]]


class NotListening(msgspec.Struct, frozen=True, kw_only=True, tag="not_listening"):
    """It can't, and ends. ``message`` is a sentence for the user."""

    message: str


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """An answer is wanted. There is only one at a time; one before it has been given up."""

    client: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_CHARACTERS)]
    """The program that asks, by its own name; ``?`` if it has none."""
    command: Generate


class GivenUp(msgspec.Struct, frozen=True, kw_only=True, tag="given_up"):
    """The answer to this request isn't wanted any more."""

    request: int


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True, tag="request_ended"):
    """How a request went: nothing of what was said."""

    path: str
    """One of ours; empty for an unknown one."""
    client: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT_CHARACTERS)]
    status: int
    """Of HTTP; 0: the answer wasn't finished, because the client went away or something failed in its middle."""
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0


ToServer = Serve | PairServed | Unavailable | AnswerEvent | AnsweredQuestion
FromServer = Listening | NotListening | Asked | GivenUp | AsideQuestion | RequestEnded

_to_server: system.Decoder[ToServer] = system.decoder(ToServer)
_from_server: system.Decoder[FromServer] = system.decoder(FromServer)


def decode_to_server(body: bytes) -> ToServer:
    """Raises `app.protocol.frames.ProtocolError`."""
    return frames.decode(_to_server, body)


def decode_from_server(body: bytes) -> FromServer:
    """Raises `app.protocol.frames.ProtocolError`."""
    return frames.decode(_from_server, body)
