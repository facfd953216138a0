"""What a search looks for and how a match is shown: words regardless of case, and a line around the first one."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from app.chats.model import Snippet

_BEFORE = 40
_AFTER = 120
"""Characters of a snippet before the first match, and from its start on."""


def fold(text: str) -> str:
    """The same for texts that only differ in case or in how accents are composed.

    The four Turkish letters i are treated as one, because nobody should have to know in which language a text was
    capitalized.
    """
    if text.isascii():
        return text.lower()
    return _composed(text).replace("İ", "i").replace("ı", "i").casefold()


def indexable(text: str) -> str:
    """A text in the form in which it is added to the index and removed from it."""
    return fold(text.replace("\0", " "))


def words_of(search: str) -> list[str]:
    """The words that must occur, folded; no character has a special meaning."""
    return list(dict.fromkeys(fold(search.replace("\0", " ")).split()))


def message_snippets(message_id: str, text: str, thinking: str, words: Sequence[str]) -> list[Snippet]:
    """A line of a message; and one of the thinking before it, for the words that only the thinking contains."""
    shown = snippet(message_id, text, words)
    if not thinking:
        return [shown] if shown else []
    folded = fold(text)
    thought = snippet(message_id, thinking, [word for word in words if word not in folded], is_thinking=True)
    return [one for one in (shown, thought) if one is not None]


def snippet(message_id: str, text: str, words: Sequence[str], *, is_thinking: bool = False) -> Snippet | None:
    """A line around the first of the words; ``None`` if the text contains none of them."""
    text = _composed(text)
    folded, places = _with_places(text)
    found = [(place, len(word)) for word in words if (place := folded.find(word)) >= 0]
    if not found:
        return None
    place, length = min(found)
    first, last = (place, place + length - 1) if places is None else (places[place], places[place + length - 1])
    start, end = _line(text, first, max(last + 1, first + _AFTER))
    inside = " ".join(text[start:end].split())
    line = f"{'…' if start > 0 else ''}{inside}{'…' if end < len(text) else ''}"
    return Snippet(message_id, line, matches(line, words), is_thinking)


def matches(text: str, words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Start and length of every occurrence of the words in a text; overlapping and adjacent ones are combined."""
    folded, places = _with_places(text)
    found: list[tuple[int, int]] = []
    for word in words:
        at = folded.find(word)
        while at >= 0:
            end = at + len(word)
            found.append((at, end) if places is None else (places[at], places[end - 1] + 1))
            at = folded.find(word, end)
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple((start, end - start) for start, end in joined)


def _line(text: str, first: int, end: int) -> tuple[int, int]:
    """From a little before the match to ``end``, both moved to the nearest edge of a word if there is one."""
    start = max(0, first - _BEFORE)
    if start > 0 and (space := text.find(" ", start, first)) >= 0:
        start = space + 1
    if end < len(text) and (space := text.rfind(" ", end - _AFTER // 4, end)) > first:
        end = space
    return start, min(end, len(text))


def _composed(text: str) -> str:
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def _with_places(text: str) -> tuple[str, list[int] | None]:
    """The folded text, and the original position of each of its characters; ``None`` if positions are the same."""
    folded = fold(text)
    if len(folded) == len(text):  # folding never shortens a character
        return folded, None
    pieces = [fold(one) for one in text]
    return "".join(pieces), [place for place, piece in enumerate(pieces) for _ in piece]
