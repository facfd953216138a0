"""What of an answer is thinking and what is the answer itself, told while it streams.

| how the model marks it | who does |
|---|---|
| tags around the thinking, written by the model or at the end of the prompt | `FORMATS`: most |
| channels: each message of an answer has a header that names its channel | gpt-oss ("harmony") |

The marks themselves are hidden. Where a vocabulary has a token for one, only that token counts, not its text: a model
that writes about ``<think>`` letter by letter is not thinking. Tags open thinking at the beginning of an answer only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

_PROMPT_END = 32
"""Tokens at the end of the prompt in which a chat template may open or close the thinking."""
_FIRST_SYMBOL, _LAST_SYMBOL = 0xDC80, 0xDCFF
"""A token that is a mark is one character from here on while marks are searched; decoded text has no such ones."""
_LONGEST_HEADER = 60
"""Characters; what goes on without its end is no header of a channel."""


@dataclass(frozen=True)
class Format:
    """How thinking is marked by tags.

    Attributes:
        opening: In front of it.
        closing: Behind it.
        around: What the model may write in front of the answer and behind it then; hidden too.
        between: What stands between the two where the template does not tell; empty: the tag on a line of its own.
        tokens_only: Whether the tags count only where the vocabulary has tokens for them.
        told_only: Whether they count only where the template has them, because any model may write these words.
        spelled: ``closing`` without symbols.
        token: ``closing`` with symbols, where the model spelled ``opening`` although it has tokens.
    """

    opening: str
    closing: str
    around: tuple[str, ...] = ()
    between: str = ""
    tokens_only: bool = False
    told_only: bool = False
    spelled: str = ""
    token: str = ""


FORMATS = (
    Format("<think>", "</think>", ("<response>", "</response>")),  # Qwen, DeepSeek, GLM, Kimi K2, SmolLM3, Granite …
    Format("<thinking>", "</thinking>"),
    Format("<thought>", "</thought>"),
    Format("<Thought>", "</Thought>"),
    Format("<reasoning>", "</reasoning>"),
    Format("<reason>", "</reason>"),
    Format("<seed:think>", "</seed:think>"),
    Format("<mm:think>", "</mm:think>"),  # MiniMax M3
    Format("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    Format("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", told_only=True),  # Apriel
    Format("[THINK]", "[/THINK]", between="[/THINK]"),  # Mistral
    Format("◁think▷", "◁/think▷"),  # Kimi VL
    Format("<|begin_of_thought|>", "<|end_of_thought|>", ("<|begin_of_solution|>", "<|end_of_solution|>")),
    Format(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        between="<|END_THINKING|><|START_RESPONSE|>",
    ),  # Cohere
    Format("<|inner_prefix|>", "<|inner_suffix|>", between="<|inner_suffix|>", tokens_only=True),  # Apertus
    Format("<|channel>thought", "<channel|>", between="\n<channel|>", tokens_only=True),  # Gemma 4
    Format(
        "<|think|>",
        "<|end|><|begin|>assistant<|content|>",
        between="<|end|><|begin|>assistant<|content|>",
        tokens_only=True,
    ),  # Solar
    Format(
        "<|open|>think<|sep|>",
        "<|close|>think<|sep|>",
        ("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
        between="<|close|>think<|sep|><|open|>response<|sep|>",
        tokens_only=True,
    ),  # Kimi K3
)


@dataclass(frozen=True)
class _Channels:
    """The marks of channels, as symbols."""

    start: str
    channel: str
    message: str
    end: str


_HARMONY = _Channels("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
_ANALYSIS, _FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"


class Run(NamedTuple):
    """Text that is decided."""

    text: str
    thinking: bool
    shown: bool
    """False for marks, and for the white space around them."""
    instead: str = ""
    """What is shown in place of a mark."""


class Vocabulary(Protocol):
    """What is needed of `app.engine.llama.model.Model`."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]: ...
    def piece(self, token: int) -> bytes: ...
    def mark(self, token: int) -> str: ...


class Splitter(Protocol):
    """Follows one answer."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thinking, as far as that is decided."""

    @property
    def is_done(self) -> bool:
        """Whether all that follows is text of the answer."""

    @property
    def may_think(self) -> bool:
        """Whether there is thinking now, or may be soon."""

    @property
    def undecided(self) -> bool:
        """Whether the text may be in the middle of a mark."""

    def between(self, told: str) -> str:
        """What the model writes between thinking and answer, with its control tokens: what the template has ``told``,
        if that ends the thinking."""

    def close(self) -> None:
        """What follows is the answer, though no mark said so."""

    def feed(self, text: str) -> list[Run]:
        """The answer goes on with ``text``, its marks as symbols: what is decided by now, without gaps."""

    def finish(self) -> list[Run]:
        """The answer is complete: what was not decided is text."""


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
            if known.told_only and known.opening not in template:
                continue
            is_told = known.tokens_only or any(mark in template for mark in known.around)
            one = replace(
                known,
                around=known.around if is_told else (),
                between=known.between or f"\n{known.closing}\n\n",
                spelled=known.closing,
            )
            found = replace(
                one,
                opening=self._encoded(one.opening),
                closing=self._encoded(one.closing),
                around=tuple(map(self._encoded, one.around)),
            )
            has_tokens = found.opening != one.opening and found.closing != one.closing
            if has_tokens:
                self._formats.append(found)
            if not one.tokens_only:
                # Also where there are tokens: some models spell their tags all the same.
                self._formats.append(replace(one, token=found.closing) if has_tokens else one)
        harmony = _Channels(*(self._encoded(mark) for mark in vars(_HARMONY).values()))
        has_channels = all(len(mark) == 1 for mark in vars(harmony).values())
        self._channels = harmony if has_channels else None
        usual = next((known.opening for known in FORMATS if known.opening in template), FORMATS[0].opening)
        self.opening = _ANALYSIS if has_channels else usual
        """What the model writes in front of its thinking, with its control tokens."""
        self.answer_opening = _FINAL if has_channels else ""
        """What it writes in front of an answer without thinking."""
        is_told = any(mark in template for known in FORMATS for mark in (known.opening, known.closing))
        self.are_expected = has_channels or is_told
        """Whether the model is known to write marks."""

    def splitter(self, prompt: Sequence[int], piece: Callable[[int], bytes]) -> Splitter:
        """For an answer behind ``prompt``; ``piece`` gives the bytes of a token."""
        end = "".join(self._symbols_of(prompt[-_PROMPT_END:], piece))
        if self._channels:
            return ChannelSplitter(self._channels, end)
        return TagSplitter(self._formats, end)

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


# ---------------------------------------------------------------- tags


class TagSplitter:
    """For models that mark their thinking with tags."""

    def __init__(self, formats: Sequence[Format], prompt_end: str) -> None:
        """``formats``: their marks as symbols, like the end of the prompt."""
        self._formats = formats
        self._held = ""
        """What is not decided."""
        self._state: Callable[[], Iterator[Run]] | None = self._begin
        """What looks at the text next; ``None``: nothing does, all of it is the answer."""
        self._trims = False
        """Whether white space in front of what comes next belongs to the mark before it."""
        self._has_thought = False
        self._format = formats[0]
        end = prompt_end.rstrip()
        for one in formats:
            if end.endswith(one.opening):
                self._format, self._state, self._trims = one, self._think, True
                return
            if end.endswith((one.closing, *one.around[:1])):
                self._format, self._trims = one, True
                self._state = self._begin if end.endswith(one.closing) else self._answer
                return

    @property
    def thinking(self) -> bool:
        """See `Splitter.thinking`."""
        return self._state == self._think

    @property
    def is_done(self) -> bool:
        """See `Splitter.is_done`."""
        return self._state is None

    @property
    def may_think(self) -> bool:
        """See `Splitter.may_think`."""
        return self._state in (self._begin, self._think)

    @property
    def undecided(self) -> bool:
        """See `Splitter.undecided`."""
        return bool(self._held.strip())

    def between(self, told: str) -> str:
        """See `Splitter.between`."""
        return told if self._format.spelled in told else self._format.between

    def close(self) -> None:
        """See `Splitter.close`."""
        self._state, self._trims = self._begin, True

    def feed(self, text: str) -> list[Run]:
        """See `Splitter.feed`."""
        if self._state is None:
            return [Run(text, thinking=False, shown=True)] if text else []
        self._held += text
        return list(self._decided())

    def finish(self) -> list[Run]:
        """See `Splitter.finish`."""
        runs = list(self._line_taken()) if self._state == self._begin else []
        if self._held:
            runs.append(self._taken(len(self._held), thinking=self.thinking))
        return runs

    def _decided(self) -> Iterator[Run]:
        while self._held and self._state is not None:
            state, length = self._state, len(self._held)
            yield from state()
            if self._state == state and len(self._held) == length:
                return
        if self._held and self._state is None:
            yield self._taken(len(self._held), thinking=False)

    def _taken(self, length: int, *, thinking: bool, shown: bool = True) -> Run:
        text, self._held = self._held[:length], self._held[length:]
        return Run(text, thinking, shown)

    def _begin(self) -> Iterator[Run]:
        """The beginning of an answer, or what follows thinking that is over."""
        text = self._held.lstrip()
        space = len(self._held) - len(text)
        for one in self._formats:
            if text.startswith(one.opening):
                run = self._taken(space + len(one.opening), thinking=True, shown=False)
                yield run._replace(instead="\n\n") if self._has_thought else run
                self._format, self._state, self._trims = one, self._think, True
                return
        around = self._format.around[:1] if self._trims else ()
        if around and text.startswith(around):
            yield self._taken(space + len(around[0]), thinking=True, shown=False)
            self._state = self._answer
            return
        if any(mark.startswith(text) for mark in (*around, *(one.opening for one in self._formats))):
            return
        yield from self._line_taken()
        self._state = None

    def _line_taken(self) -> Iterator[Run]:
        """Behind thinking: the white space up to the line that the answer begins in."""
        space = len(self._held) - len(self._held.lstrip())
        line = self._held[:space].rfind("\n") + 1 if space < len(self._held) else space
        if self._trims and line:
            yield self._taken(line, thinking=True, shown=False)

    def _think(self) -> Iterator[Run]:
        if self._trims:
            space = len(self._held) - len(self._held.lstrip())
            if space:
                yield self._taken(space, thinking=True, shown=False)
            self._trims = not self._held
        closings = [one for one in (self._format.closing, self._format.token) if one]
        at, closing = min(((at, one) for one in closings if (at := self._held.find(one)) >= 0), default=(-1, ""))
        end = at if at >= 0 else len(self._held) - _beginning_at_end(self._held, closings)
        end = len(self._held[:end].rstrip())
        if end:
            self._has_thought = True
            yield self._taken(end, thinking=True)
        if at >= 0:
            space = self._held.index(closing)
            yield self._taken(space + len(closing), thinking=True, shown=False)
            self._state, self._trims = self._begin, True

    def _answer(self) -> Iterator[Run]:
        """With marks around it."""
        if self._trims:
            space = len(self._held) - len(self._held.lstrip("\n"))
            if space:
                yield self._taken(space, thinking=False, shown=False)
            self._trims = not self._held
        around = self._format.around[1:]
        met = [(at, mark) for mark in around if (at := self._held.find(mark)) >= 0]
        if met:
            at, mark = min(met)
            if at:
                yield self._taken(at, thinking=False)
            yield self._taken(len(mark), thinking=False, shown=False)
        elif end := len(self._held) - _beginning_at_end(self._held, around):
            yield self._taken(end, thinking=False)


def _beginning_at_end(text: str, marks: Sequence[str]) -> int:
    """The length of the longest end of ``text`` that begins one of ``marks``."""
    lengths = (length for mark in marks for length in range(1, len(mark)) if text.endswith(mark[:length]))
    return max(lengths, default=0)


# ---------------------------------------------------------------- channels


class ChannelSplitter:
    """For gpt-oss: ``analysis`` is its thinking, ``final`` and ``commentary`` are its answer.

    A header goes from ``<|start|>`` or ``<|channel|>`` to ``<|message|>``; the prompt ends in the middle of one.
    """

    is_done = False

    def __init__(self, marks: _Channels, prompt_end: str) -> None:
        self._marks = marks
        self.thinking = False
        self._header: str | None = None
        """A header that has begun; ``None`` in the text of a message."""
        self._held = ""
        """What of it is part of the answer."""
        self._has_text = [False, False]
        """Of the answer, of the thinking."""
        self.feed(prompt_end)
        self.thinking = self.thinking and prompt_end.rstrip().endswith(marks.message)  # else in an earlier turn
        self._held, self._has_text = "", [False, False]

    @property
    def may_think(self) -> bool:
        """See `Splitter.may_think`."""
        return self.thinking or self.undecided

    @property
    def undecided(self) -> bool:
        """See `Splitter.undecided`."""
        return self._header is not None

    def between(self, told: str) -> str:  # noqa: ARG002
        """See `Splitter.between`; the template only tells how earlier turns looked, without channels."""
        return f"<|end|><|start|>assistant{_FINAL}"

    def close(self) -> None:
        """See `Splitter.close`."""
        self.thinking, self._held, self._header = False, "", None

    def feed(self, text: str) -> list[Run]:
        """See `Splitter.feed`."""
        runs: list[Run] = []
        marks = self._marks
        for part in re.split(f"([{marks.start}{marks.channel}{marks.message}{marks.end}])", text):
            if part in (marks.start, marks.channel):
                self._header = (self._header or "") + part
                self._held += part
            elif part == marks.message and self._header is not None:
                runs.append(self._opened(part))
            elif part in (marks.message, marks.end):
                runs.append(Run(part, self.thinking, shown=False))
            elif part and self._header is None:
                runs += self._text(part)
            elif part:
                assert self._header is not None
                self._header, self._held = self._header + part, self._held + part
                if len(self._header) > _LONGEST_HEADER or "\n" in part:
                    runs += self.finish()
        return runs

    def finish(self) -> list[Run]:
        """See `Splitter.finish`."""
        held, self._held, self._header = self._held, "", None
        return list(self._text(held)) if held else []

    def _opened(self, mark: str) -> Run:
        """A header is complete."""
        assert self._header is not None
        before, (_, _, channel) = self.thinking, self._header.rpartition(self._marks.channel)
        self.thinking = channel.lstrip().startswith("analysis")
        held, self._held, self._header = self._held + mark, "", None
        if self._has_text[self.thinking]:  # another message of the same kind
            return Run(held, self.thinking, shown=False, instead="\n\n")
        return Run(held, before or self.thinking, shown=False)

    def _text(self, text: str) -> Iterator[Run]:
        self._has_text[self.thinking] = True
        yield Run(text, self.thinking, shown=True)
