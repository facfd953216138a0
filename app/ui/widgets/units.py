"""How figures are written: with their units, joined by a no-break space so that a narrow place does not part them."""

from __future__ import annotations

UNKNOWN = "–"
NO_BREAK = "\u00a0"


def speed(tokens_per_second: float | None) -> str:
    """``74 tok/s``; one decimal below ten."""
    if tokens_per_second is None:
        return UNKNOWN
    digits = 1 if tokens_per_second < 9.95 else 0
    return f"{tokens_per_second:,.{digits}f}{NO_BREAK}tok/s"


def share(fraction: float | None, digits: int = 0) -> str:
    """``68 %``."""
    return UNKNOWN if fraction is None else f"{fraction * 100:.{digits}f}{NO_BREAK}%"


def accepted(acceptance_rate: float) -> str:
    """``68 % kept``."""
    return f"{share(acceptance_rate)}{NO_BREAK}kept"


def tokens_a_pass(mean_acceptance_length: float) -> str:
    """``2.9 tokens a pass``."""
    return f"{mean_acceptance_length:.1f}{NO_BREAK}tokens a{NO_BREAK}pass"


def tokens(count: int) -> str:
    """``214 tokens``, ``1 token``."""
    return f"{count:,}{NO_BREAK}{'token' if count == 1 else 'tokens'}"


def seconds(duration: float) -> str:
    """``0.12 s``, ``3.4 s``, ``128 s``."""
    digits = 2 if duration < 0.995 else 1 if duration < 9.95 else 0
    return f"{duration:.{digits}f}{NO_BREAK}s"


def clock(duration: float) -> str:
    """``2.7 s``, ``128.4 s``: always with one decimal, for a figure that runs."""
    return f"{duration:,.1f}{NO_BREAK}s"


def milliseconds(duration: float | None) -> str:
    """``8.1 ms`` for seconds; no decimals from a hundred on."""
    if duration is None:
        return UNKNOWN
    value = duration * 1000
    return f"{value:,.{1 if value < 99.95 else 0}f}{NO_BREAK}ms"


def guesses(count: int) -> str:
    """``5 guesses``, ``1 guess``."""
    return f"{count:,}{NO_BREAK}{'guess' if count == 1 else 'guesses'}"


def times(factor_: float | None) -> str:
    """``1.8×``."""
    return UNKNOWN if factor_ is None else f"{factor_:.1f}×"


def factor(times: float | None) -> str:
    """``1.8× plain``."""
    return UNKNOWN if times is None else f"{times:.1f}×{NO_BREAK}plain"
