"""Tokens to text that may be shown, and what kind of text it is: prose, code or a list."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec

from app.engine.decoding.thinking import Marks
from app.engine.decoding.thinking_splitters import Run, Splitter
from app.protocol.events import Piece
from app.protocol.options import TextKind


@dataclass
class _Token:
    """A token part of whose text is undecided."""

    piece: Piece | None
    """``None`` for a token that was shown before the answer was cut off."""
    length: int
    """Characters of its text, of which so many are undecided: ``missing``."""
    missing: int
    text: str = ""
    """The decided part of it that is shown."""
    thinking: bool = False


class TokenTexts:
    """Turns a stream of tokens into pieces of whole characters, thinking and answer told apart.

    A token that ends inside a UTF-8 character has no text; the one that completes the character carries it. Marks of
    thinking are hidden, and text that could begin one is held back until that is decided. A token with both thinking
    and answer in it belongs to what it ends in.
    """

    def __init__(
        self,
        piece: Callable[[int], bytes],
        marks: Marks | None = None,
        prompt: Sequence[int] = (),
        *,
        by_grammar: bool = False,
    ) -> None:
        """``piece`` gives the bytes of a token. Without ``marks`` everything is answer. The answer follows ``prompt``,
        and a grammar if ``by_grammar``."""
        self._piece = piece
        self._symbols = marks.symbols if marks else {}
        self._shown = marks.shown if marks else {}
        self.splitter = marks.splitter(prompt, piece, by_grammar=by_grammar) if marks else Splitter()
        """Tells thinking from the answer."""
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[_Token] = []
        self._late = ""
        """Text that was held back when the answer was cut off; it is shown with the next token."""
        self.thinking_tokens = 0
        """Tokens after which it was still thinking."""
        self.since_thinking = 0
        """Tokens since the thinking, counting the one that ended it."""

    @property
    def can_be_closed(self) -> bool:
        """Whether the thinking could end here: neither inside a mark nor inside a character."""
        return self.splitter.thinking and not (self._utf8.getstate()[0] or self.splitter.undecided)

    def replay(self, tokens: Sequence[int]) -> str:
        """Continue after ``tokens``, which were shown before the answer was cut off; their text without thinking."""
        pieces = [piece for token in tokens for piece in self.add(Piece(text="", id=token))]
        text = "".join(map(answer_text, pieces))
        for token in self._waiting:
            text += "" if token.thinking else token.text
            token.piece, token.text = None, ""
        return text

    def add(self, piece: Piece) -> list[Piece]:
        """Take the next token, a `Piece` without text; the pieces that are decided now."""
        pieces, thinking = self._added(piece), self.splitter.thinking
        self.thinking_tokens += thinking
        self.since_thinking = 0 if thinking else self.since_thinking + 1
        return pieces

    def _added(self, piece: Piece) -> list[Piece]:
        if symbol := self._symbols.get(piece.id):
            text = self._utf8.decode(b"", final=True) + symbol
        else:
            text = self._utf8.decode(self._piece(piece.id))
        if text and not self._waiting and self.splitter.is_done:  # most of most answers
            text, self._late = self._late + (text.translate(self._shown) if symbol else text), ""
            return [msgspec.structs.replace(piece, text=text)]
        self._waiting.append(_Token(piece, len(text), len(text)))
        if not text:  # inside a character: the token waits for the one that completes it
            return []
        for run in self.splitter.feed(text):
            self._assign(run)
        return self._decided()

    def end(self, *, cut: bool, last: Piece | None = None) -> list[Piece]:
        """What was held back, when the answer ends. If it is ``cut`` off, what may be part of a mark stays hidden: it
        is shown when the answer continues. ``last``: the token that ended it."""
        for run in [] if cut else self.splitter.finish():
            self._assign(run)
        thinking = self.splitter.thinking
        for token in self._waiting:
            token.thinking, token.missing = token.thinking if token.text else thinking, 0
        pieces = self._released(len(self._waiting))
        if last is not None:
            text, self._late = self._late, ""
            pieces.append(msgspec.structs.replace(last, text=text, thinking=thinking and bool(text)))
        return pieces

    def _assign(self, run: Run) -> None:
        """Give a decided text to the tokens it comes from."""
        at = 0
        for token in self._waiting:
            if not token.missing:
                continue
            part = run.text[at : at + token.missing]
            at += len(part)
            token.missing -= len(part)
            if run.shown:
                token.text += part.translate(self._shown) if self._shown else part
            if run.shown or not token.text:
                token.thinking = run.thinking
            if at == len(run.text):
                token.text += run.instead
                return

    def _decided(self) -> list[Piece]:
        """The first tokens that miss nothing; those without a text go with the next one."""
        count = 0
        for place, token in enumerate(self._waiting, 1):
            if token.missing:
                break
            if token.length:
                count = place
        return self._released(count)

    def _released(self, count: int) -> list[Piece]:
        tokens, self._waiting = self._waiting[:count], self._waiting[count:]
        pieces: list[Piece] = []
        for place, token in enumerate(tokens):
            thinking = next((other.thinking for other in tokens[place:] if other.length), token.thinking)
            if token.piece is None:
                self._late += token.text
            else:
                text, self._late = self._late + token.text, ""
                pieces.append(msgspec.structs.replace(token.piece, text=text, thinking=thinking))
        return pieces


class TextStream:
    """Turns a stream of tokens into pieces of text (`TokenTexts`) that end before a stop string.

    Text that could begin a stop string is held back until that is decided. Thinking isn't searched.
    """

    def __init__(self, texts: TokenTexts, stops: Sequence[str], earlier: Sequence[int] = ()) -> None:
        """Empty stop strings are ignored. ``earlier``: tokens that were shown before the answer was cut off."""
        self.texts = texts
        self._stops = [stop for stop in stops if stop]
        self._held: list[Piece] = []
        self.met_stop: str | None = None
        """The stop string that ended the text."""
        self.safe_tokens = 0
        """Tokens that lie entirely before a possible or actual stop string."""
        self.overlap = 0
        """Characters of the met stop string that were already shown, at the end of ``earlier``."""
        self.earlier = texts.replay(earlier)
        """The text of ``earlier``, without the thinking."""
        behind = max((at + len(stop) for stop in self._stops if (at := self.earlier.rfind(stop)) >= 0), default=0)
        self._shown = self.earlier[len(self.earlier) - self._possible_stop(self.earlier[behind:]) :]
        """The end of that text, as far as it could be the beginning of another stop string."""

    def add(self, piece: Piece) -> list[Piece]:
        """Take the next token (a `Piece` without text) and return what may be shown now."""
        new = self.texts.add(piece)
        self._held += new
        if not new:
            return []
        if not self._stops:
            return self._release(len(self._held))
        held = self._shown + "".join(map(answer_text, self._held))
        if self._meets_stop(held):
            return self._up_to_stop(held)
        certain = len(held) - self._possible_stop(held) - len(self._shown)
        if certain >= 0:
            self._shown = ""
        return self._release(sum(end <= certain for end in accumulate(len(answer_text(piece)) for piece in self._held)))

    def end(self, *, cut: bool = False, last: Piece | None = None) -> list[Piece]:
        """What was held back, when the answer ends (`TokenTexts.end`). A stop string may be met only now."""
        self._held += self.texts.end(cut=cut, last=last)
        held = self._shown + "".join(map(answer_text, self._held))
        return self._up_to_stop(held) if self._meets_stop(held) else self._release(len(self._held))

    def _meets_stop(self, held: str) -> bool:
        return any(stop in held for stop in self._stops)

    def _up_to_stop(self, held: str) -> list[Piece]:
        """What was held back, up to the first stop string; tokens behind it have no text."""
        start, self.met_stop = min((held.find(stop), stop) for stop in self._stops if stop in held)
        self.overlap = max(len(self._shown) - start, 0)
        behind = [msgspec.structs.replace(piece, text="", logprobs=()) for piece in self.texts.end(cut=True)]
        return [*self._cut(start - len(self._shown)), *behind]

    def _release(self, count: int) -> list[Piece]:
        pieces, self._held = self._held[:count], self._held[count:]
        self.safe_tokens += len(pieces)
        return pieces

    def _cut(self, length: int) -> list[Piece]:
        """The held pieces cut to ``length`` characters; pieces after that stay, without text."""
        pieces = []
        for piece in self._held:
            text = answer_text(piece)
            if length >= len(text) and length > 0:
                self.safe_tokens += 1
            kept, logprobs = text[: max(length, 0)], piece.logprobs if length > 0 else ()
            cut = piece if piece.thinking else msgspec.structs.replace(piece, text=kept, logprobs=logprobs)
            pieces.append(cut)
            length -= len(text)
        self._held = []
        return pieces

    def _possible_stop(self, text: str) -> int:
        """The length of the longest end of ``text`` with which a stop string begins."""
        lengths = (length for stop in self._stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
        return max(lengths, default=0)


def answer_text(piece: Piece) -> str:
    """The text of a piece without what is thinking."""
    return "" if piece.thinking else piece.text


# What an answer's text is at the moment: prose, code or a list, read off its Markdown as it comes.
#
# | kind | which text |
# |---|---|
# | code | between fences of ``` or ~~~; lines indented by four where Markdown makes them code; JSON without a fence |
# | list | lines that begin with a bullet or a number, and what goes on with them |
# | prose | all else: paragraphs, headings, tables, quotes |
#
# The beginning of a line decides, and only that of an open line is kept: what a token costs doesn't grow with the
# answer.

_FENCE = re.compile(r"(?P<run>`{3,})[^`]*$|(?P<tildes>~{3,})")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])\s")
_JSON = re.compile(r'[{\[]\s*["{\[}\]\n]')
_OPEN = re.compile(r"(?:`{1,2}|~{1,2}|[-*+•]|\d{1,9}[.)]?|[{\[][ \t]*)$")
"""What may still become a fence, a list item or JSON."""
_IN_JSON = re.compile(r'[{}\[\]"\d-]')
_LONGEST_BEGINNING = 160
"""A line is decided after this many characters, whatever follows."""
_CODE_INDENT = 4
_ITEM_INDENT = 2
"""The kind of a paragraph that continues as a list after a blank line."""


class TextKinds:
    """Follows one answer. While the beginning of a line is ambiguous (``1`` may become ``1. Apples`` or ``1 apple``),
    `kind` stays the same."""

    def __init__(self) -> None:
        self.kind: TextKind = "prose"
        """The kind of the text that comes next."""
        self._line: str | None = ""
        """The beginning of the line; ``None`` once its kind is decided."""
        self._fence = ""
        """What opened the code block; empty outside a code block."""
        self._is_json = False
        self._is_indented = False
        self._is_list = False
        self._after_blank = True

    def add(self, text: str) -> None:
        """The answer continues with ``text``."""
        while text:
            line, newline, text = text.partition("\n")
            if self._line is not None:
                self._line += line
                self._read(self._line, ended=bool(newline) or len(self._line) > _LONGEST_BEGINNING)
            if newline:
                self._line = ""

    def _read(self, line: str, *, ended: bool) -> None:
        """Decide what the line is, if that can be told."""
        body = line.lstrip()
        if not body:
            if ended:
                self._read_blank()
        elif self._fence:
            self._read_code(body.rstrip(), ended)
        elif body[0].isalpha() or not (self._read_fence(body, ended) or (not ended and _OPEN.match(body))):
            self._read_text(body + "\n" if ended else body, len(line[: -len(body)].expandtabs(4)))

    def _read_blank(self) -> None:
        self._line, self._after_blank = None, True
        if self._is_json:
            self._is_json = False
            self.kind = "prose"

    def _read_code(self, body: str, ended: bool) -> None:
        """A line between fences: the last one if it is a fence of the same character, at least as long."""
        if body.strip(self._fence[0]):
            self._line = None
        elif ended and len(body) >= len(self._fence):
            self._fence, self._line, self._after_blank = "", None, False
            self.kind = "list" if self._is_list else "prose"

    def _read_fence(self, body: str, ended: bool) -> bool:
        """Whether the line opens a code block, as far as is known: another backtick may still make it prose."""
        fence = _FENCE.match(body)
        if not fence:
            return False
        self.kind, self._is_json, self._is_indented = "code", False, False
        if ended:
            self._fence, self._line = fence["run"] or fence["tildes"], None
        return True

    def _read_text(self, body: str, indent: int) -> None:
        """A line that is not a fence, not blank and not within a code block."""
        after_blank, self._after_blank, self._line = self._after_blank, False, None
        self._is_json = self._is_json and bool(indent or _IN_JSON.match(body))
        is_code = indent >= _CODE_INDENT and not self._is_list and (after_blank or self._is_indented)
        self._is_indented = is_code and not self._is_json
        if not is_code and not self._is_json:
            goes_on = not after_blank or indent >= _ITEM_INDENT
            self._is_list = bool(_ITEM.match(body)) or (self._is_list and goes_on and body[0] != "#")
            self._is_json = after_blank and not indent and bool(_JSON.match(body))
        if is_code or self._is_json:
            self.kind = "code"
        else:
            self.kind = "list" if self._is_list else "prose"
