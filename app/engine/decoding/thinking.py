"""What of an answer is thinking and what is the answer itself, told while it streams.

| how the model marks it | who does |
|---|---|
| tags around the thinking, written by the model or at the end of the prompt | `FORMATS`: most |
| channels: each message of an answer has a header that names its channel | gpt-oss ("harmony") |

The marks themselves are hidden. Where a vocabulary has a token for one, only that token counts, not its text: a model
that writes about ``<think>`` letter by letter is not thinking. Tags open thinking at the beginning of an answer only,
and those that are quoted don't end it (`app.engine.decoding.quotation`). Of the tags that neither the template nor the
vocabulary has, only ``<think>`` counts: the others are elements of XML that any model may write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from app.engine.decoding.thinking_formats import ANALYSIS, FINAL, FORMATS, HARMONY, Channels, Format
from app.engine.decoding.thinking_splitters import ChannelSplitter, Splitter, TagSplitter

_PROMPT_END = 32
"""Tokens at the end of the prompt in which a chat template may open or close the thinking."""
_FIRST_SYMBOL, _LAST_SYMBOL = 0xDC80, 0xDCFF
"""A token that is a mark is one character from here on while marks are searched; decoded text has no such ones."""


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.model.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def mark(self, token: int) -> str: ...


class Marks:
    """The marks of thinking that one model can write."""

    def __init__(self, vocabulary: Vocabulary, template: str) -> None:
        """``template``, Jinja source, says whether the model writes marks around its answer: others may be asked to."""
        self._vocabulary = vocabulary
        self.symbols: dict[int, str] = {}
        """The character that stands for a token while marks are searched."""
        self.shown: dict[int, str] = {}
        """What that token adds to a text where it is no mark, by the number of the character."""
        self._formats: list[Format] = []
        for known in FORMATS:
            is_told = any(mark in template for mark in (known.opening, known.closing))
            wraps = known.tokens_only or any(mark in template for mark in known.around)
            one = replace(
                known,
                around=known.around if wraps else (),
                between=known.between or f"\n{known.closing}\n\n",
                spelled=known.closing,
                openings=(known.opening,),
            )
            found = replace(
                one,
                opening=self._encoded(one.opening),
                closing=self._encoded(one.closing),
                around=tuple(map(self._encoded, one.around)),
                is_spelled=False,
            )
            has_tokens = found.opening != one.opening and found.closing != one.closing
            if has_tokens:
                self._formats.append(replace(found, openings=(found.opening, one.opening)))
            if not one.tokens_only and (has_tokens or is_told or one.is_usual):
                # Also where there are tokens: some models spell their tags all the same.
                self._formats.append(replace(one, token=found.closing) if has_tokens else one)
        harmony = Channels(*(self._encoded(mark) for mark in vars(HARMONY).values()))
        has_channels = all(len(mark) == 1 for mark in vars(harmony).values())
        self._channels = harmony if has_channels else None
        usual = next((known.opening for known in FORMATS if known.opening in template), FORMATS[0].opening)
        self.opening = ANALYSIS if has_channels else usual
        """What the model writes in front of its thinking, with its control tokens."""
        self.answer_opening = FINAL if has_channels else ""
        """What it writes in front of an answer without thinking."""
        is_told = any(mark in template for known in FORMATS for mark in (known.opening, known.closing))
        self.are_expected = has_channels or is_told
        """Whether the model is known to write marks."""

    @property
    def opening_tokens(self) -> frozenset[int]:
        """Tokens that open thinking on their own."""
        openings = {one.opening for one in self._formats}
        return frozenset(token for token, symbol in self.symbols.items() if symbol in openings)

    def splitter(self, prompt: Sequence[int], piece: Callable[[int], bytes], *, by_grammar: bool = False) -> Splitter:
        """For an answer behind ``prompt``, which a grammar may rule; ``piece`` gives the bytes of a token."""
        end = "".join(self._symbols_of(prompt[-_PROMPT_END:], piece))
        if self._channels:
            return ChannelSplitter(self._channels, end)
        return TagSplitter(self._formats, end, by_grammar=by_grammar)

    def _symbols_of(self, tokens: Sequence[int], piece: Callable[[int], bytes]) -> Iterator[str]:
        data = b""
        for token in tokens:
            if symbol := self.symbols.get(token):
                yield data.decode("utf-8", "replace") + symbol
                data = b""
            else:
                data += piece(token)
        yield data.decode("utf-8", "replace")

    def _encoded(self, mark: str) -> str:
        """``mark`` with symbols for those parts of it that are tokens of their own."""
        encoded, rest = "", mark
        for token in self._vocabulary.tokenize(mark, special=True, bos=False):
            name = self._vocabulary.mark(token)
            if name and name in rest:
                before, _, rest = rest.partition(name)
                encoded += before + self._symbol(token)
        return encoded + rest

    def _symbol(self, token: int) -> str:
        if token not in self.symbols:
            number = _FIRST_SYMBOL + len(self.symbols)
            assert number <= _LAST_SYMBOL
            self.symbols[token] = chr(number)
            self.shown[number] = self._vocabulary.piece(token).decode("utf-8", "replace")
        return self.symbols[token]
