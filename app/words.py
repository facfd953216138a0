"""How figures are written, in the window, in reports and on the command line: American, as all of its text; with their
units, joined by a no-break space so that they stay on one line.
"""

from __future__ import annotations

from datetime import datetime

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
UNKNOWN = "–"
NO_BREAK = "\u00a0"


def number(value: float | None, digits: int = 0) -> str:
    """``1,204`` or, with one digit, ``2.9``."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def date(moment: float) -> str:
    """``Oct 3, 2026``; ``moment`` is in seconds since 1970."""
    day = datetime.fromtimestamp(moment)
    return f"{_MONTHS[day.month - 1]} {day.day}, {day.year}"  # not of the system's language


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


def tokens(count: int) -> str:
    """``214 tokens``, ``1 token``."""
    return f"{number(count)}{NO_BREAK}{'token' if count == 1 else 'tokens'}"


def draft_tokens(count: int) -> str:
    """``5 draft tokens``, ``1 draft token``."""
    return f"{number(count)}{NO_BREAK}draft{NO_BREAK}{'token' if count == 1 else 'tokens'}"


def seconds(duration: float) -> str:
    """``0.12 s``, ``3.4 s``, ``128 s``."""
    return f"{number(duration, 2 if duration < 0.995 else 1 if duration < 9.95 else 0)}{NO_BREAK}s"


def duration(seconds_taken: float) -> str:
    """``0.4 s``, ``12 s``, ``2 min 5 s``."""
    if seconds_taken < 0.95:
        return f"{number(max(seconds_taken, 0.1), 1)}{NO_BREAK}s"
    minutes, rest = divmod(round(seconds_taken), 60)
    return f"{number(minutes)}{NO_BREAK}min {rest}{NO_BREAK}s" if minutes else f"{rest}{NO_BREAK}s"


def clock(duration: float) -> str:
    """``2.7 s``, ``128.4 s``: always with one decimal, for a running clock."""
    return f"{number(duration, 1)}{NO_BREAK}s"


def milliseconds(duration: float | None) -> str:
    """``8.1 ms`` for seconds; no decimals from a hundred on."""
    if duration is None:
        return UNKNOWN
    value = duration * 1000
    return f"{number(value, 1 if value < 99.95 else 0)}{NO_BREAK}ms"


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
