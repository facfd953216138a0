"""Small pieces of text for sentences about model files, and making other people's text harmless."""

from __future__ import annotations

import json
import re
import unicodedata

_MAX_DIGITS = 18
_CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that have an effect instead of being drawn: controls, directions, zero width, line
breaks.
"""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_JOINERS = "\u200c\u200d"


def printable(text: str | bytes, limit: int = 80) -> str:
    """``text`` with everything that doesn't print (control characters, line breaks, broken UTF-8) spelled out.

    At most about ``limit`` characters: whatever comes from a file may be shown in a terminal or a label.
    """
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    shown = decoded[:limit]
    spelled = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in shown
    )
    return spelled + "…" if len(decoded) > limit else spelled


def shortened(text: str, most: int) -> str:
    """``text`` in at most ``most`` characters, the last of them "…" if some are missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def visible(text: str) -> str:
    """``text`` with everything spelled out that a terminal or a label would obey instead of showing it.

    Line breaks and tabs stay, and so do joiners within words and pictures that aren't ASCII. For whole sentences; for
    names, use `printable`, which also shortens them.
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_harmless(text, place) else character.encode("unicode_escape").decode()
        for place, character in enumerate(text)
    )


def visible_json(text: str) -> str:
    """JSON with the same meaning and nothing in it that a terminal would obey. Line breaks stay."""
    if text.isprintable():
        return text
    return "".join(
        one if one == "\n" or unicodedata.category(one) not in _CONTROLS else json.dumps(one)[1:-1] for one in text
    )


def _is_harmless(text: str, place: int) -> bool:
    character = text[place]
    if character in "\n\t" or unicodedata.category(character) not in _CONTROLS:
        return True
    around = text[max(place - 1, 0) : place + 2]
    return character in _JOINERS and len(around) == 3 and not any(one.isascii() for one in around)


def whole_number(text: str) -> int | None:
    """The number a server sent; ``None`` if it isn't one, or isn't meaningful."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def is_sha256(text: str) -> bool:
    """Whether this can be such a checksum, in hexadecimal."""
    return _SHA256.fullmatch(text) is not None


def size_text(size: int) -> str:
    """Bytes in a readable form: ``12 MB`` (decimal units, as in file managers and on download pages)."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    return _scaled(size, ("KB", "MB", "GB", "TB"))


def count_text(count: int) -> str:
    """A number of parameters as in model names: ``27B``, ``1.5B``, ``15.7M``, ``950K``."""
    return str(count) if count < 1000 else _scaled(count, ("K", "M", "B")).replace(" ", "")


def _scaled(number: int, units: tuple[str, ...]) -> str:
    """At most three digits before the last unit, one after the point if that adds precision."""
    value = number / 1000
    for unit in units[:-1]:
        if value < 999.5:
            return f"{_short(value)} {unit}"
        value /= 1000
    return f"{_short(value)} {units[-1]}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}".removesuffix(".0")


def is_right_to_left(text: str) -> bool:
    """Whether the first letter of a text belongs to a script that is written from right to left, as rule P2 of the
    Unicode bidirectional algorithm asks."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind in ("R", "AL", "L"):
            return kind != "L"
    return False
