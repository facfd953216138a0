"""Text for people, in the window, in reports and on the command line: figures, and untrusted text made harmless.

Numbers are written the American way. A no-break space keeps a unit on the same line as its number.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime

UNKNOWN = "–"
NO_BREAK = "\u00a0"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of invisible characters with an effect: controls, directions, zero width, line breaks."""
_JOINERS = "\u200c\u200d"
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Controls, directions, tags, fillers and other characters without a shape; no line breaks and tabs."""


def number(value: float | None, digits: int = 0) -> str:
    """``1,204`` or, with one digit, ``2.9``."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) and not digits else f"{value:,.{digits}f}"


def count(amount: int, one: str, several: str = "") -> str:
    """``1 chat``, ``1,204 chats``, with an ordinary space."""
    return f"1 {one}" if amount == 1 else f"{number(amount)} {several or f'{one}s'}"


def listed(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def size(number_of_bytes: float) -> str:
    """``12 MB``, in decimal units like file managers and download pages."""
    if number_of_bytes < 1000:
        return count(round(number_of_bytes), "byte")
    return _scaled(number_of_bytes, ("KB", "MB", "GB", "TB"), " ")


def compact(value: int) -> str:
    """A number of parameters or downloads: ``8.2B``, ``27B``, ``15.7M``, ``950K``."""
    return str(value) if value < 1000 else _scaled(value, ("K", "M", "B"), "")


def _scaled(value: float, units: tuple[str, ...], space: str) -> str:
    """At most three digits (except with the last unit), and a decimal if it adds precision."""
    value /= 1000
    for unit in units:
        if value < 999.5 or unit == units[-1]:
            break
        value /= 1000
    return f"{number(value) if value >= 99.95 else number(value, 1).removesuffix('.0')}{space}{unit}"


def date(moment: float) -> str:
    """``Oct 3, 2026``; ``moment`` is in seconds since 1970."""
    day = datetime.fromtimestamp(moment)
    return f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"  # strftime would use the system's language


def speed(tokens_per_second: float | None) -> str:
    """``74 tok/s``; one decimal below ten."""
    if tokens_per_second is None:
        return UNKNOWN
    return f"{number(tokens_per_second, 1 if tokens_per_second < 9.95 else 0)}{NO_BREAK}tok/s"


def share(fraction: float | None, digits: int = 0) -> str:
    """``68%``."""
    return UNKNOWN if fraction is None else f"{number(fraction * 100, digits)}%"


def accepted(acceptance_rate: float) -> str:
    """``68% accepted``."""
    return f"{share(acceptance_rate)}{NO_BREAK}accepted"


def tokens_per_pass(mean_acceptance_length: float, *, is_estimated: bool = False) -> str:
    """``2.9 tokens per pass``, ``about 2.9 tokens per pass``."""
    about = f"about{NO_BREAK}" if is_estimated else ""
    return f"{about}{number(mean_acceptance_length, 1)}{NO_BREAK}tokens per{NO_BREAK}pass"


def tokens(amount: int) -> str:
    """``214 tokens``, ``1 token``."""
    return f"{number(amount)}{NO_BREAK}{'token' if amount == 1 else 'tokens'}"


def draft_tokens(amount: int) -> str:
    """``5 draft tokens``, ``1 draft token``."""
    return f"{tokens(amount).replace(NO_BREAK, f'{NO_BREAK}draft{NO_BREAK}')}"


def seconds(duration: float) -> str:
    """``0.12 s``, ``3.4 s``, ``128 s``."""
    return f"{number(duration, 2 if duration < 0.995 else 1 if duration < 9.95 else 0)}{NO_BREAK}s"


def duration(seconds_taken: float) -> str:
    """``0.4 s``, ``12 s``, ``2 min 5 s``."""
    if seconds_taken < 0.95:
        return f"{number(max(seconds_taken, 0.1), 1)}{NO_BREAK}s"
    minutes, rest = divmod(round(seconds_taken), 60)
    return f"{number(minutes)}{NO_BREAK}min {rest}{NO_BREAK}s" if minutes else f"{rest}{NO_BREAK}s"


def coarse(seconds_left: float) -> str:
    """``40 s``, ``2 min``, ``1 h 20 min``, for estimates."""
    if seconds_left < 59.5:
        return f"{max(round(seconds_left), 1)}{NO_BREAK}s"
    minutes = round(seconds_left / 60)
    if minutes < 60:
        return f"{minutes}{NO_BREAK}min"
    hours, minutes = divmod(round(minutes, -1) if minutes >= 600 else minutes, 60)
    return f"{hours}{NO_BREAK}h" + (f" {minutes}{NO_BREAK}min" if minutes and hours < 10 else "")


def time_left(seconds_left: float) -> str:
    """``about 2 min left``, in steps coarse enough not to flicker."""
    return "a few seconds left" if seconds_left < 10 else f"about {coarse(round(seconds_left, -1))} left"


def clock(duration: float) -> str:
    """``2.7 s``, ``128.4 s``, for a running clock."""
    return f"{number(duration, 1)}{NO_BREAK}s"


def milliseconds(duration: float | None, digits: int = 1) -> str:
    """``8.1 ms``; ``duration`` is in seconds. No decimals from 100 ms on."""
    if duration is None:
        return UNKNOWN
    value = duration * 1000
    return f"{number(value, digits if value < 99.95 else 0)}{NO_BREAK}ms"


def times(factor: float | None) -> str:
    """``1.8×``."""
    return UNKNOWN if factor is None else f"{number(factor, 1)}×"


def speed_up(factor: float | None) -> str:
    """``1.8× faster``, ``same speed``, ``0.7× as fast``."""
    if factor is None:
        return UNKNOWN
    if round(factor, 1) == 1.0:
        return f"same{NO_BREAK}speed"
    return f"{times(factor)}{NO_BREAK}{'faster' if factor > 1 else f'as{NO_BREAK}fast'}"


# ---------------------------------------------------------------- untrusted text


def printable(text: str | bytes, limit: int = 80) -> str:
    """``text`` cut to about ``limit`` characters, with control characters, line breaks and broken UTF-8 escaped.

    For names from files that are shown in a terminal or a label.
    """
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    shown = decoded[:limit]
    spelled = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in shown
    )
    return spelled + "…" if len(decoded) > limit else spelled


def shortened(text: str, most: int) -> str:
    """``text`` cut to at most ``most`` characters, including an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def visible(text: str) -> str:
    """``text`` with everything escaped that a terminal or a label would obey instead of showing.

    Keeps line breaks, tabs, and joiners inside non-ASCII words and emoji. For whole sentences; for names, use
    `printable`, which also shortens them.
    """
    if text.isprintable():
        return text
    return "".join(
        character if _is_harmless(text, place) else character.encode("unicode_escape").decode()
        for place, character in enumerate(text)
    )


def visible_json(text: str, kept: str = "") -> str:
    """``text`` with all that has no shape escaped as in JSON, except line breaks, tabs and what is ``kept``."""
    return _UNSEEN.sub(lambda one: one[0] if one[0] in kept else json.dumps(one[0])[1:-1], text)


def _is_harmless(text: str, place: int) -> bool:
    character = text[place]
    if character in "\n\t" or unicodedata.category(character) not in _CONTROLS:
        return True
    around = text[max(place - 1, 0) : place + 2]
    return character in _JOINERS and len(around) == 3 and not any(one.isascii() for one in around)


def is_right_to_left(text: str) -> bool:
    """Whether the first letter is of a right-to-left script (rule P2 of the Unicode bidirectional algorithm)."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind in ("R", "AL", "L"):
            return kind != "L"
    return False
