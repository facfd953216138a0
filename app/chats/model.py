"""What the chat store returns: plain values that can be passed between threads.

The provenance of an answer is stored as one entry per token, in order: ``[text length in characters, drafter or None,
round, rejected text or None]``, with a fifth element ``true`` if the token belongs to the thinking.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast, get_args

import msgspec

from app import system
from app.chats.formats.calls import CallState as CallState
from app.chats.formats.calls import StoredCall as StoredCall
from app.protocol.answering import AnswerSettings
from app.protocol.events import Piece
from app.protocol.options import DrafterName
from app.storage.json_file import NOT_UNDERSTOOD, lenient

Role = Literal["system", "user", "assistant"]
Status = Literal["complete", "streaming", "stopped", "interrupted", "failed"]
AttachmentKind = Literal["text", "image"]
PackedPiece: TypeAlias = "list[int | str | None]"

TITLE_LENGTH = 40
_DRAFTERS: dict[str | None, DrafterName] = {name: name for name in get_args(DrafterName)}


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat in the list. Times are in seconds since 1970, UTC."""

    id: str
    title: str
    """Empty until the first message is sent."""
    created_at: float
    updated_at: float
    leaf_id: str | None
    """The last message of the shown branch; ``None`` in an empty chat."""
    pinned_at: float | None = None
    folder_id: str | None = None
    """``None`` is the top level."""
    deleted_at: float | None = None
    """When it was moved to the trash."""
    settings: str = ""
    """JSON of its `ChatSettings`; empty for the defaults."""


@dataclass(frozen=True, slots=True)
class Folder:
    id: str
    name: str
    created_at: float


@dataclass(frozen=True, slots=True)
class Snippet:
    """The line of a message around its first match."""

    message_id: str
    text: str
    matches: tuple[tuple[int, int], ...]
    """Start and length of each match in ``text``, in characters."""
    is_thinking: bool = False
    """Whether the line is from the thinking."""
    is_call: bool = False
    """Whether it is from a tool call or its result."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search result with at most three snippets; none if only the title matches."""

    chat: Chat
    snippets: tuple[Snippet, ...] = ()


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with a message. `ChatStore.keep` makes one; its content is in `app.chats.attachments`."""

    sha256: str
    """Hash of the content in hexadecimal: of the text as the model reads it, or of the image file."""
    kind: AttachmentKind
    name: str
    """The name of the original file."""
    size: int
    """Size of the content in bytes."""
    media_type: str = ""
    """Of the original file; empty if unknown."""
    width: int = 0
    height: int = 0
    """Of an image, in pixels."""
    text: str = field(default="", compare=False, repr=False)
    """The text that the model reads."""
    path: str = field(default="", compare=False, repr=False)
    """The path of the content; empty if it is in memory only or missing."""
    is_missing: bool = field(default=False, compare=False)
    """Whether the content is missing."""


def calls_of(stored: str) -> tuple[StoredCall, ...]:
    """Read `calls_to_json`; nothing if it is damaged."""
    if stored == "[]":
        return ()
    try:
        return system.decode(stored.encode("utf-8", "replace"), tuple[StoredCall, ...])
    except NOT_UNDERSTOOD:
        return ()


def calls_to_json(calls: Sequence[StoredCall]) -> str:
    """The stored form."""
    return to_json(msgspec.to_builtins(calls))


def calls_stopped(stored: str) -> str:
    """The same where nobody decides about those that wait, or hears of those that run, any more."""
    calls = calls_of(stored)
    return calls_to_json([one.ended for one in calls]) if calls else stored


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of a chat's tree. Messages with the same parent are versions of each other.

    Large values that are rarely read are kept as JSON from the file (see `to_json`) and parsed on demand; damaged ones
    count as empty, so that the message can still be read.
    """

    id: str
    chat_id: str
    parent_id: str | None
    role: Role
    text: str
    """Without the thinking."""
    status: Status
    created_at: float
    seed: int | None = None
    finish_reason: str | None = None
    pair: str | None = None
    """The names of the models that wrote the answer."""
    settings_json: str = "{}"
    figures_json: str = "{}"
    provenance_json: str = "[]"
    thinking: str = ""
    """What the model thought before or during the answer."""
    version: int = 1
    """The position among the versions, oldest first, from 1."""
    versions: int = 1
    tokens: Sequence[int] = ()
    """The token ids of an answer; empty if unknown."""
    calls_json: str = "[]"
    attachments: tuple[Attachment, ...] = ()
    """Of an answer: images that tools returned."""

    @property
    def calls(self) -> tuple[StoredCall, ...]:
        """The tool calls of an answer, in order."""
        return calls_of(self.calls_json)

    @property
    def settings(self) -> dict[str, object]:
        """The settings that the answer was requested with, and what wrote it."""
        return _object(self.settings_json)

    @property
    def asked(self) -> AnswerSettings:
        """The settings that the answer was requested with; defaults for missing or unreadable values."""
        return lenient(AnswerSettings, self.settings, [])

    @property
    def code_language(self) -> str:
        """The language of an answer that is all code; empty for Markdown."""
        if '"json_' not in self.settings_json:
            return ""
        wanted = self.settings.get("format")
        return "json" if isinstance(wanted, dict) and wanted.get("kind") in ("json_object", "json_schema") else ""

    @property
    def figures(self) -> dict[str, object]:
        return _object(self.figures_json)

    @property
    def provenance(self) -> list[PackedPiece]:
        """The provenance of each token; `unpack` turns it into pieces."""
        found = _parsed(self.provenance_json)
        return cast("list[PackedPiece]", found) if isinstance(found, list) else []

    @property
    def author(self) -> str:
        """The author's name, for a heading."""
        if self.role == "assistant":
            return self.pair or "Answer"
        return "You" if self.role == "user" else "System"


def _object(text: str) -> dict[str, object]:
    found = _parsed(text)
    return found if isinstance(found, dict) else {}


def _parsed(text: str) -> object:
    """Parse JSON from the chat file; ``None`` if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def sort_key(name: str) -> str:
    """Sorts by letters; case and accents only matter between otherwise equal names."""
    letters = unicodedata.normalize("NFD", name.casefold())
    return "".join(one for one in letters if not unicodedata.combining(one))


def to_json(value: object) -> str:
    """``value`` as JSON for a `StoredMessage`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def title_of(text: str) -> str:
    """The title a chat gets from its first message: its first line, shortened to about 40 characters at a word."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    line = next((line for line in lines if line), "")
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    at_word = head.rpartition(" ")[0].rstrip(" ,;:.–—-")
    # A single very long word (a link, or a language without spaces) is cut anywhere.
    return (at_word if len(at_word) >= TITLE_LENGTH // 2 else head) + "…"


def title_for(question: StoredMessage) -> str:
    """The title a chat gets from its first message: from its text, else from the attached file's name."""
    return title_of(question.text) or title_of(next((one.name for one in question.attachments), ""))


def pack(pieces: Iterable[Piece]) -> list[PackedPiece]:
    """The provenance of an answer made of these pieces."""
    return [
        [len(piece.text), piece.drafter, piece.round, piece.rejected, *([True] if piece.thinking else [])]
        for piece in pieces
    ]


def unpack(text: str, packed: Sequence[Sequence[object]], thinking: str = "") -> list[Piece]:
    """Pieces whose texts add up to ``text``, and those of the thinking to ``thinking``.

    Text that the provenance doesn't cover is attributed to the target, as is everything if the provenance is damaged,
    and text of an unknown drafter.
    """
    pieces: list[Piece] = []
    texts, ends = (text, thinking), [0, 0]
    for entry in packed:
        match entry:
            case [int(length), str() | None as name, int(number), str() | None as rejected, *marked] if (
                marked in ([], [True]) and 0 <= length <= len(texts[bool(marked)]) - ends[bool(marked)]
            ):
                is_thinking = bool(marked)
                start = ends[is_thinking]
                ends[is_thinking] = start + length
                part, drafter = texts[is_thinking][start : start + length], _DRAFTERS.get(name)
                piece = Piece(text=part, drafter=drafter, round=number, rejected=rejected, thinking=is_thinking)
                pieces.append(piece)
            case _:
                pieces, ends = [], [0, 0]
                break
    last = pieces[-1].round if pieces else 0
    for is_thinking in (True, False):
        if rest := texts[is_thinking][ends[is_thinking] :]:
            pieces.append(Piece(text=rest, round=last, thinking=is_thinking))
    return pieces
