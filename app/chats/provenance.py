"""Which drafter wrote which part of an answer, small enough to store with it.

One entry a token: ``[text length in characters, drafter or None, round, rejected text or None]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

PackedPiece: TypeAlias = "list[int | str | None]"


class PieceLike(Protocol):
    """Anything that tells a token's text and origin; the engine's own pieces do."""

    @property
    def text(self) -> str: ...
    @property
    def drafter(self) -> str | None: ...
    @property
    def round(self) -> int: ...
    @property
    def rejected(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """The text one token added to an answer, and where it came from."""

    text: str
    drafter: str | None = None
    """Which drafter proposed the token; ``None`` is the target's own."""
    round: int = 0
    rejected: str | None = None
    """What the drafter had proposed here when the target disagreed."""


def pack(pieces: Iterable[PieceLike]) -> list[PackedPiece]:
    """The provenance of an answer whose text is all pieces joined."""
    return [[len(piece.text), piece.drafter, piece.round, piece.rejected] for piece in pieces]


def unpack(text: str, packed: Sequence[Sequence[object]]) -> list[TokenPiece]:
    """Pieces whose texts joined are ``text``.

    Text that the provenance does not cover, and all of it where the provenance is damaged, comes as the target's own.
    """
    pieces: list[TokenPiece] = []
    position = 0
    for entry in packed:
        piece = _piece(text, position, entry)
        if piece is None:
            return [TokenPiece(text)] if text else []
        pieces.append(piece)
        position += len(piece.text)
    if position < len(text):
        pieces.append(TokenPiece(text[position:], round=pieces[-1].round if pieces else 0))
    return pieces


def _piece(text: str, position: int, entry: Sequence[object]) -> TokenPiece | None:
    match entry:
        case [int(length), str() | None as drafter, int(round_index), str() | None as rejected] if length >= 0:
            end = position + length
            return TokenPiece(text[position:end], drafter, round_index, rejected) if end <= len(text) else None
    return None
