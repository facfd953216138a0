"""Turns tokens into text that may be shown: whole characters, and nothing that might turn out to be a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec

from app.protocol.messages import Piece


class TextStream:
    """Turns a stream of tokens into pieces of text.

    A token that ends inside a UTF-8 character has an empty text, and the one that completes it carries the character; a
    character that is never completed isn't shown. Text that could be the beginning of a stop string is held back until
    that is decided; a stop string that is found is never shown.
    """

    def __init__(self, piece: Callable[[int], bytes], stops: Sequence[str], earlier: Sequence[int] = ()) -> None:
        """``piece`` gives the bytes of a token; empty stop strings are ignored.

        The text continues after the tokens ``earlier``, which were shown completely when the answer was cut off there.
        """
        self._piece = piece
        self._stops = [stop for stop in stops if stop]
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._held: list[Piece] = []
        self.met_stop: str | None = None
        """The stop string that ended the text."""
        self.safe_tokens = 0
        """Tokens that lie entirely before a possible or actual stop string."""
        self.overlap = 0
        """Characters of the stop string that had been shown before: the end of the text of ``earlier``."""
        self._shown = self._possible_stop_of(self._utf8.decode(b"".join(map(piece, earlier))))
        """The end of that text, as far as it could be the beginning of a stop string."""

    def add(self, piece: Piece) -> list[Piece]:
        """Take the next token (a `Piece` without text) and return what may be shown now."""
        text = self._utf8.decode(self._piece(piece.id))
        self._held.append(msgspec.structs.replace(piece, text=text))
        if not text:  # inside a character: the token waits for the one that completes it
            return []
        if not self._stops:
            return self._release(len(self._held))
        held = self._shown + "".join(p.text for p in self._held)
        met = [(start, stop) for stop in self._stops if (start := held.find(stop)) >= 0]
        if met:
            start, self.met_stop = min(met)
            self.overlap = max(len(self._shown) - start, 0)
            return self._cut(start - len(self._shown))
        certain = len(held) - self._possible_stop(held) - len(self._shown)
        if certain >= 0:
            self._shown = ""
        return self._release(self._whole_pieces(certain))

    def end(self) -> list[Piece]:
        """The text that was held back, when the answer ends for another reason."""
        return self._release(len(self._held))

    def _release(self, count: int) -> list[Piece]:
        pieces, self._held = self._held[:count], self._held[count:]
        self.safe_tokens += len(pieces)
        return pieces

    def _cut(self, length: int) -> list[Piece]:
        """The held pieces cut to ``length`` characters; pieces after that stay, without text."""
        pieces = []
        for piece in self._held:
            text = piece.text[: max(length, 0)]
            if length >= len(piece.text) and length > 0:
                self.safe_tokens += 1
            length -= len(piece.text)
            pieces.append(msgspec.structs.replace(piece, text=text))
        self._held = []
        return pieces

    def _whole_pieces(self, length: int) -> int:
        """How many of the held pieces lie completely within the first ``length`` characters."""
        return sum(end <= length for end in accumulate(len(piece.text) for piece in self._held))

    def _possible_stop_of(self, text: str) -> str:
        """The end of a text after the last stop string in it, as far as it could be the beginning of another one."""
        behind = max((at + len(stop) for stop in self._stops if (at := text.rfind(stop)) >= 0), default=0)
        return text[len(text) - self._possible_stop(text[behind:]) :]

    def _possible_stop(self, text: str) -> int:
        """The length of the longest end of ``text`` with which a stop string begins."""
        lengths = (length for stop in self._stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
        return max(lengths, default=0)
