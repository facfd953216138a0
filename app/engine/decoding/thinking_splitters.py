"""Follow an answer while it streams, and tell thinking from the answer itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from app.engine.decoding.quotation import Written
from app.engine.decoding.thinking_formats import FINAL, Channels, Format, Run

_LONGEST_HEADER = 60
"""Characters; what goes on without its end is no header of a channel."""


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

    @property
    def answers(self) -> bool:
        """Whether what comes next is text of the answer, unless it opens thinking."""

    @property
    def opens(self) -> bool:
        """Whether thinking may be opened now: the answer has not begun."""

    @property
    def trims(self) -> bool:
        """Whether line breaks that come next belong to a mark."""

    def between(self, told: str) -> str:
        """What the model writes between thinking and answer, with its control tokens: what the template has ``told``,
        if that ends the thinking."""

    def expect_end(self) -> None:
        """The next mark ends the thinking, wherever it stands."""

    def close(self) -> None:
        """What follows is the answer, though no mark said so."""

    def feed(self, text: str) -> list[Run]:
        """The answer goes on with ``text``, its marks as symbols: what is decided by now, without gaps."""

    def finish(self) -> list[Run]:
        """The answer is complete: what was not decided is text."""


# ---------------------------------------------------------------- tags


class TagSplitter:
    """For models that mark their thinking with tags."""

    def __init__(self, formats: Sequence[Format], prompt_end: str, *, by_grammar: bool = False) -> None:
        """``formats``: their marks as symbols, like the end of the prompt.

        ``by_grammar``: a grammar is in force from the end of the thinking on, so each mark is decided at once, and what
        is spelled in front of an answer is the grammar's.
        """
        self._formats = formats
        self._by_grammar = by_grammar
        self._held = ""
        """What is not decided."""
        self._state: Callable[[], Iterator[Run]] | None = self._begin
        """What looks at the text next; ``None``: nothing does, all of it is the answer."""
        self._trims = False
        """Whether white space in front of what comes next belongs to the mark before it."""
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

    @property
    def answers(self) -> bool:
        """See `Splitter.answers`."""
        return self._state != self._think

    @property
    def opens(self) -> bool:
        """See `Splitter.opens`."""
        return self._state == self._begin and not self._trims and not self._held

    @property
    def trims(self) -> bool:
        """See `Splitter.trims`."""
        return self._state == self._begin and self._trims and self._has_thought and not self._held.strip()

    def between(self, told: str) -> str:
        """See `Splitter.between`."""
        return told if self._format.spelled in told else self._format.between

    def expect_end(self) -> None:
        """See `Splitter.expect_end`."""
        self._is_ending = True

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
        """The beginning of an answer, or what follows thinking that is over."""
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
        """Whether a closing mark in front of ``behind`` is written about; ``None``: what follows decides."""
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
    opens = False
    trims = False

    def __init__(self, marks: Channels, prompt_end: str) -> None:
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

    @property
    def answers(self) -> bool:
        """See `Splitter.answers`."""
        return not self.thinking and not self.undecided

    def between(self, told: str) -> str:  # noqa: ARG002
        """See `Splitter.between`; the template only tells how earlier turns looked, without channels."""
        return f"<|end|><|start|>assistant{FINAL}"

    def expect_end(self) -> None:
        """See `Splitter.expect_end`: channels have no quotations."""

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
