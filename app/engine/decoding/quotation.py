"""Whether a mark that ends thinking is only written about: in code, or between quotation marks.

What comes before a mark decides if it can, otherwise at most `_FAR` characters after it. Code that isn't closed by then
is no quotation: a model that leaves a fence or a backtick open still ends its thinking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_FENCE = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_TICKS = re.compile(r"`+")
_FAR = 200
"""Characters behind a mark within which a fence has to be closed."""
_NEAR = 80
"""And a span of code or a text in quotation marks."""
_IN_SENTENCE = re.compile(r"[,.;:)]| +[^\W\dA-Z]")
"""What follows a word within one."""
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "„": "“", "«": "»", "「": "」", "『": "』"}


class Written:
    """What a model has thought, as far as it tells whether the next mark is quoted."""

    def __init__(self, openings: Sequence[str]) -> None:
        """``openings``: the marks that open thinking."""
        self._openings = openings
        self._fence = ""
        """How the code began that isn't closed; empty: there is none."""
        self._open = 0
        """Marks that were opened in it, up to the line."""
        self._line = ""
        self._closed = 0
        """Marks that were closed in the line."""

    def add(self, text: str) -> None:
        """The thinking goes on with ``text``."""
        *lines, self._line = f"{self._line}{text}".split("\n")
        for line in lines:
            found = _FENCE.match(line)
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
        """Whether a mark is quoted that stands here in front of ``behind``; ``None``: what follows decides."""
        in_fence = self._fence and not _closes(self._fence, self._line)
        return self._in_fence(behind) if in_fence else self._in_line(behind)

    @property
    def opens(self) -> bool:
        """Whether a quotation has begun directly in front of this place."""
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
        """Of a pair of marks, if the sentence goes on behind it."""
        if self._opened(self._line) <= self._closed or self._line.lstrip().startswith(tuple(self._openings)):
            return False
        rest = behind.lstrip(" ")
        return bool(_IN_SENTENCE.match(behind)) if rest else None


def end_of(thinking: str, opening: str, closing: str) -> int:
    """Where in a complete text that begins with ``thinking`` the ``closing`` mark is that ends it; −1: nowhere."""
    written, at = Written((opening,)), 0
    while (end := thinking.find(closing, at)) >= 0:
        written.add(thinking[at:end])
        at = end + len(closing)
        if not written.quotes(f"{thinking[at : at + _FAR]}\n"):
            return end
        written.add_mark(closing)
    return -1


def _closes(fence: str, line: str) -> bool:
    found = _FENCE.match(line)
    return bool(found and found[1].startswith(fence) and not found[2].strip())


def _open_span(line: str) -> str:
    """The backticks with which a span of code begins that the line doesn't close; empty: there is none."""
    runs = list(_TICKS.finditer(line))
    at = 0
    while at < len(runs):
        ends = next((n for n in range(at + 1, len(runs)) if runs[n].group() == runs[at].group()), None)
        if ends is None and not line[runs[at].end() :][:1].isspace():
            return runs[at].group()
        at = (at if ends is None else ends) + 1
    return ""
