"""How models mark their thinking, and telling it from the answer while both stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Format:
    """How thinking is marked by tags.

    Attributes:
        opening, closing: Before and after it.
        around: What the model may then write around the answer; hidden, too.
        between: What separates the two if the template doesn't tell; empty: the tag on a line of its own.
        tokens_only: The tags count only if the vocabulary has tokens for them.
        is_usual: They count even if neither the template nor the vocabulary has them.
        spelled: ``closing`` without symbols.
        token: ``closing`` with symbols, if the model spelled ``opening`` although it has tokens.
        openings: ``opening`` with and without symbols.
        is_spelled: ``opening`` is written without symbols.
    """

    opening: str
    closing: str
    around: tuple[str, ...] = ()
    between: str = ""
    tokens_only: bool = False
    is_usual: bool = False
    spelled: str = ""
    token: str = ""
    openings: tuple[str, ...] = ()
    is_spelled: bool = True


FORMATS = (
    Format(
        "<think>", "</think>", ("<response>", "</response>"), is_usual=True
    ),  # Qwen, DeepSeek, GLM, Kimi K2, SmolLM3, Granite …
    Format("<thinking>", "</thinking>"),
    Format("<thought>", "</thought>"),
    Format("<Thought>", "</Thought>"),
    Format("<reasoning>", "</reasoning>"),
    Format("<reason>", "</reason>"),
    Format("<seed:think>", "</seed:think>"),
    Format("<mm:think>", "</mm:think>"),  # MiniMax M3
    Format("<think:opensource>", "</think:opensource>"),  # Hunyuan 3
    Format("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
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


HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
"""The marks of channels: what a header begins with, in front of its channel, behind it, and behind the message."""
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
COMMENTARY = "<|end|><|start|>assistant<|channel|>commentary"
"""Behind thinking, where only a call may follow."""
_CALL, _IN_GRAMMAR = " to=functions.", "<|constrain|>"
"""In the header of a call. The second is only shown where calls follow a grammar."""


class Run(NamedTuple):
    """Decided text."""

    text: str
    thinking: bool
    shown: bool
    """False for marks, and for the white space around them."""
    instead: str = ""
    """What is shown in place of a mark."""


# Whether a mark that ends thinking is only quoted: in code, or between quotation marks.
#
# What comes before the mark decides if it can, otherwise at most `_FAR` characters after it. Code that isn't closed by
# then is no quotation: a model that leaves a fence or a backtick open still ends its thinking.

_CODE_FENCE = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_TICKS = re.compile(r"`+")
_FAR = 200
"""Characters behind a mark within which a fence has to be closed."""
_NEAR = 80
"""And a span of code or a text in quotation marks."""
_IN_SENTENCE = re.compile(r"[,.;:)]| +[^\W\dA-Z]")
"""What follows a word within one."""
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "«": "»", "「": "」", "『": "』"}


class Written:
    """The thinking so far, as far as it matters for whether the next mark is quoted."""

    def __init__(self, openings: Sequence[str]) -> None:
        """``openings``: the marks that open thinking."""
        self._openings = openings
        self._fence = ""
        """What opened the code block; empty outside of one."""
        self._open = 0
        """Marks that were opened in it, before the current line."""
        self._line = ""
        self._closed = 0
        """Marks that were closed in the line."""

    def add(self, text: str) -> None:
        """The thinking goes on with ``text``."""
        *lines, self._line = f"{self._line}{text}".split("\n")
        for line in lines:
            found = _CODE_FENCE.match(line)
            if self._fence:
                self._open = max(self._open + self._opened(line) - self._closed, 0)
                self._fence = "" if _closes(self._fence, line) else self._fence
            elif found:
                self._fence, self._open = found[1], 0
            self._closed = 0

    def add_mark(self, mark: str) -> None:
        """The thinking goes on with a quoted ``mark``."""
        self._closed += 1
        self._line += mark

    def quotes(self, behind: str) -> bool | None:
        """Whether a mark here, followed by ``behind``, is quoted; ``None``: more text has to decide."""
        in_fence = self._fence and not _closes(self._fence, self._line)
        return self._in_fence(behind) if in_fence else self._in_line(behind)

    @property
    def opens(self) -> bool:
        """Whether a quotation begins right here."""
        ticks = _open_span(self._line)
        return self._has_quote() or (bool(ticks) and self._line.endswith(ticks))

    def _has_quote(self) -> bool:
        before = self._line[-2:-1]
        return self._line[-1:] in _QUOTES and (not before.strip() or before in "([{=,:")

    def _opened(self, line: str) -> int:
        return sum(line.count(opening) for opening in self._openings)

    def _in_fence(self, behind: str) -> bool | None:
        line, (rest, *lines) = self._line, behind[:_FAR].split("\n")
        if self._open + self._opened(line) > self._closed:
            return True
        strings = [one for one in "\"'" if line.count(one) % 2]
        if any(line.endswith(one) or one in rest[:_NEAR] for one in strings):
            return True
        if strings and not lines and len(rest) < _NEAR:
            return None
        if rest[:1].strip():
            return False
        for one in lines[:-1]:
            if not one.strip() or _closes(self._fence, one):
                return bool(one.strip())
        return None if len(behind) < _FAR else False

    def _in_line(self, behind: str) -> bool | None:
        line, (rest, ends, _) = self._line, behind.partition("\n")
        if self._has_quote() and (not behind or behind.startswith(_QUOTES[line[-1]])):
            return bool(behind) or None
        if not (ticks := _open_span(line)):
            return self._in_sentence(behind)
        is_whole = bool(ends) or len(rest) > _NEAR
        for found in _TICKS.finditer(rest[:_NEAR]):
            if found.end() == len(rest) and not ends:
                break
            is_opening = rest[: found.start()].endswith(" ") and not rest[found.end() :][:1].isspace()
            if found.group() == ticks:
                return not is_opening
        return False if is_whole else None

    def _in_sentence(self, behind: str) -> bool | None:
        """Whether a pair of marks is part of a sentence that goes on."""
        if self._opened(self._line) <= self._closed or self._line.lstrip().startswith(tuple(self._openings)):
            return False
        rest = behind.lstrip(" ")
        return bool(_IN_SENTENCE.match(behind)) if rest else None


def end_of(thinking: str, opening: str, closing: str) -> int:
    """Where the ``closing`` mark is that ends the thinking with which a complete text begins; −1: nowhere."""
    written, at = Written((opening,)), 0
    while (end := thinking.find(closing, at)) >= 0:
        written.add(thinking[at:end])
        at = end + len(closing)
        if not written.quotes(f"{thinking[at : at + _FAR]}\n"):
            return end
        written.add_mark(closing)
    return -1


def _closes(fence: str, line: str) -> bool:
    found = _CODE_FENCE.match(line)
    return bool(found and found[1].startswith(fence) and not found[2].strip())


def _open_span(line: str) -> str:
    """The backticks of a span of code that the line leaves open; empty: there is none."""
    runs = list(_TICKS.finditer(line))
    at = 0
    while at < len(runs):
        ends = next((n for n in range(at + 1, len(runs)) if runs[n].group() == runs[at].group()), None)
        if ends is None and not line[runs[at].end() :][:1].isspace():
            return runs[at].group()
        at = (at if ends is None else ends) + 1
    return ""


_LONGEST_HEADER = 240
"""Characters; what is longer is no header of a channel."""


class Splitter:
    """Follows one answer. This one finds no thinking in it."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thinking, as far as that is decided."""
        return False

    @property
    def is_done(self) -> bool:
        """Whether all that follows is text of the answer."""
        return True

    @property
    def may_think(self) -> bool:
        """Whether there is thinking now, or may be soon."""
        return False

    @property
    def undecided(self) -> bool:
        """Whether the text may be in the middle of a mark."""
        return False

    @property
    def answers(self) -> bool:
        """Whether what comes next is text of the answer, unless it opens thinking."""
        return not self.thinking

    @property
    def has_begun(self) -> bool:
        """Whether there is text of the answer already."""
        return False

    @property
    def opens(self) -> bool:
        """Whether thinking may be opened now: the answer has not begun."""
        return False

    @property
    def trims(self) -> bool:
        """Whether line breaks that come next belong to a mark."""
        return False

    def between(self, template_text: str) -> str:  # noqa: ARG002
        """What the model writes between thinking and answer, control tokens included: the template's text, if that
        ends the thinking."""
        return ""

    def expect_end(self) -> None:
        """The next mark ends the thinking, wherever it stands."""

    def close(self) -> None:
        """What follows is the answer, though no mark said so."""

    def feed(self, text: str) -> list[Run]:
        """The answer goes on with ``text``, its marks as symbols: what is decided by now, without gaps."""
        return [Run(text, thinking=False, shown=True)]

    def finish(self) -> list[Run]:
        """The answer is complete: what was not decided is text."""
        return []


# ---------------------------------------------------------------- tags


class TagSplitter(Splitter):
    """For models that mark their thinking with tags."""

    def __init__(self, formats: Sequence[Format], prompt_end: str, *, by_grammar: bool = False) -> None:
        """The marks of ``formats`` are symbols, like those at the end of the prompt.

        ``by_grammar``: a grammar is in force after the thinking, so that each mark is decided at once, and a mark that
        is spelled before the answer belongs to the grammar.
        """
        self._formats = formats
        self._by_grammar = by_grammar
        self._held = ""
        """What is not decided."""
        self._state: Callable[[], Iterator[Run]] | None = self._begin
        """What reads the text next; ``None``: all of it is the answer."""
        self._trims = False
        """Whether white space that comes next belongs to the mark before it."""
        self._has_thought = False
        self._written = Written(())
        self._noted = 0
        """How much of the held text is in it."""
        self._is_ending = self._is_whole = False
        self._format = formats[0]
        end = prompt_end.rstrip()
        for one in formats:
            if end.endswith(one.opening):
                self._open(one)
                return
            if end.endswith((one.closing, *one.around[:1])):
                self._format, self._trims = one, True
                self._state = self._begin if end.endswith(one.closing) else self._answer
                return

    @property
    def thinking(self) -> bool:
        return self._state == self._think

    @property
    def is_done(self) -> bool:
        return self._state is None

    @property
    def may_think(self) -> bool:
        return self._state in (self._begin, self._think)

    @property
    def undecided(self) -> bool:
        return bool(self._held.strip())

    @property
    def has_begun(self) -> bool:
        return self.is_done or self.undecided

    @property
    def opens(self) -> bool:
        return self._state == self._begin and not self._trims and not self._held

    @property
    def trims(self) -> bool:
        return self._state == self._begin and self._trims and self._has_thought and not self._held.strip()

    def between(self, template_text: str) -> str:
        return template_text if self._format.spelled in template_text else self._format.between

    def expect_end(self) -> None:
        self._is_ending = True

    def close(self) -> None:
        self._state, self._trims = self._begin, True

    def feed(self, text: str) -> list[Run]:
        if self._state is None:
            return [Run(text, thinking=False, shown=True)] if text else []
        self._held += text
        return list(self._decided())

    def finish(self) -> list[Run]:
        self._is_whole = True
        runs = list(self._decided())
        runs += list(self._line_taken()) if self._state == self._begin else []
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
        self._noted = max(self._noted - length, 0)
        return Run(text, thinking, shown)

    def _note(self, end: int) -> None:
        """The held text up to ``end`` is thinking."""
        self._written.add(self._held[self._noted : end])
        self._noted = max(self._noted, end)

    def _open(self, one: Format) -> None:
        self._format, self._state, self._trims = one, self._think, True
        self._written, self._noted, self._is_ending = Written(one.openings), 0, False

    def _begin(self) -> Iterator[Run]:
        """The beginning of an answer, or what follows the thinking."""
        text = self._held.lstrip()
        space = len(self._held) - len(text)
        formats = [one for one in self._formats if not (self._by_grammar and one.is_spelled)]
        for one in formats:
            if text.startswith(one.opening):
                behind = text[len(one.opening) :]
                rest = behind.lstrip()
                if one.is_spelled and (not rest or "\n" in behind[: -len(rest)]):
                    if rest.startswith(one.opening):  # a list of marks
                        break
                    if one.opening.startswith(rest):
                        return
                run = self._taken(space + len(one.opening), thinking=True, shown=False)
                yield run._replace(instead="\n\n") if self._has_thought else run
                self._open(one)
                return
        around = self._format.around[:1] if self._trims else ()
        if around and text.startswith(around):
            yield self._taken(space + len(around[0]), thinking=True, shown=False)
            self._state = self._answer
            return
        if any(mark.startswith(text) for mark in (*around, *(one.opening for one in formats))):
            return
        yield from self._line_taken()
        self._state = None

    def _line_taken(self) -> Iterator[Run]:
        """After thinking: the white space up to the line in which the answer begins."""
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
        self._note(end)
        is_quoted = at >= 0 and self._is_quoted(self._held[at + len(closing) :])
        if is_quoted:
            self._has_thought = True
            if at:
                yield self._taken(at, thinking=True)
            yield self._quoted(closing)
            return
        end = len(self._held[:end].rstrip())
        if end:
            self._has_thought = True
            yield self._taken(end, thinking=True)
        if is_quoted is False and at >= 0:
            space = self._held.index(closing)
            yield self._taken(space + len(closing), thinking=True, shown=False)
            self._state, self._trims = self._begin, True

    def _is_quoted(self, behind: str) -> bool | None:
        """Whether a closing mark followed by ``behind`` is quoted; ``None``: more text has to decide."""
        if self._is_ending:
            return False
        if self._is_whole:
            return bool(self._written.quotes(f"{behind}\n"))
        found = self._written.quotes(behind)
        if found is None and self._by_grammar:
            return not behind and self._written.opens
        return found

    def _quoted(self, closing: str) -> Run:
        self._written.add_mark(closing)
        self._noted = len(closing)
        run = self._taken(len(closing), thinking=True)
        if closing == self._format.spelled:
            return run
        return run._replace(shown=False, instead=self._format.spelled)  # a control token has no text of its own

    def _answer(self) -> Iterator[Run]:
        """An answer with marks around it."""
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


class ChannelSplitter(Splitter):
    """For gpt-oss: ``analysis`` is its thinking, ``final`` and ``commentary`` are its answer.

    A header goes from ``<|start|>`` or ``<|channel|>`` to ``<|message|>``; the prompt ends in the middle of one.
    """

    thinking = is_done = False

    def __init__(self, marks: Sequence[str], prompt_end: str) -> None:
        """``marks``: `HARMONY`, as symbols."""
        self._start, self._channel, self._message, self._end = marks
        self._header: str | None = None
        """A header that has begun; ``None`` in the text of a message."""
        self._held = ""
        """The part of it that belongs to this answer."""
        self._has_text = [False, False]
        """Of the answer, of the thinking."""
        self.feed(prompt_end)
        self.thinking = self.thinking and prompt_end.rstrip().endswith(self._message)  # else in an earlier turn
        self._held, self._has_text = "", [False, False]

    @property
    def may_think(self) -> bool:
        return self.thinking or self.undecided

    @property
    def undecided(self) -> bool:
        return self._header is not None

    @property
    def answers(self) -> bool:
        return not self.thinking and not self.undecided

    def between(self, template_text: str) -> str:
        # Templates only tell how earlier turns looked, without channels.
        return template_text if template_text == COMMENTARY else f"<|end|><|start|>assistant{FINAL}"

    def close(self) -> None:
        self.thinking, self._held, self._header = False, "", None

    def feed(self, text: str) -> list[Run]:
        runs: list[Run] = []
        for part in re.split(f"([{self._start}{self._channel}{self._message}{self._end}])", text):
            if part in (self._start, self._channel):
                self._header = (self._header or "") + part
                self._held += part
            elif part == self._message and self._header is not None:
                runs.append(self._opened(part))
            elif part in (self._message, self._end):
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
        held, self._held, self._header = self._held, "", None
        return list(self._text(held)) if held else []

    def _opened(self, mark: str) -> Run:
        """A header is complete."""
        assert self._header is not None
        before, (_, _, channel) = self.thinking, self._header.rpartition(self._channel)
        self.thinking = channel.lstrip().startswith("analysis")
        held, self._held, self._header = self._held + mark, "", None
        if _CALL in channel and _IN_GRAMMAR in channel:
            self._has_text[False] = True
            return Run(held, False, shown=False, instead=f"<|channel|>{channel}<|message|>")
        if self._has_text[self.thinking]:  # another message of the same kind
            return Run(held, self.thinking, shown=False, instead="\n\n")
        return Run(held, before or self.thinking, shown=False)

    def _text(self, text: str) -> Iterator[Run]:
        self._has_text[self.thinking] = True
        yield Run(text, self.thinking, shown=True)
