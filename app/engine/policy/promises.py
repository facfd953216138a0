"""What draft lengths promise, before the confidences of a draft's tokens are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Promise:
    """What a drafter promises for the next round."""

    chances: Sequence[float]
    """For positions 0, 1, …, each given that those before it are accepted."""
    survivals: Sequence[float]
    """How likely all of 0, 1, … tokens are accepted."""
    expected: Sequence[float]
    """Tokens yielded by a round whose draft has 0, 1, … tokens."""
    length: int
    """The best length of at least 1; 0 if nothing can be drafted."""
    rate: float
    """Tokens per second at that length."""


def promised(chances: Sequence[float], seconds: Sequence[float], draft: float, least: int = 1) -> Promise:
    """``seconds``: for a round that tests 0, 1, … tokens; ``draft``: for a drafted token.

    Lengths below ``least`` are not considered.
    """
    survivals, expected = [1.0], [1.0]
    best, best_rate = 0, 0.0
    for length, chance in enumerate(chances, 1):
        survivals.append(survivals[-1] * chance)
        expected.append(expected[-1] + survivals[-1])
        rate = expected[-1] / (seconds[length] + length * draft)
        if rate > best_rate and length >= least:
            best, best_rate = length, rate
    return Promise(chances, survivals, expected, best, best_rate)


def speeds_by_length(
    text: Sequence[tuple[int, Sequence[float]]], seconds: Sequence[float], draft: float
) -> list[float]:
    """The speed of each fixed draft length from 0 to as many as there are chances; empty without text.

    ``text``: parts of it, each with its tokens and the chances that position 0, 1, … of a draft is accepted, given that
    those before it are. ``seconds``: of a round that tests 0, 1, … tokens, without ``draft``, the seconds of a drafted
    token. A length n takes (n·draft + seconds[n]) ÷ (1 + Σ Π chances) for each token of a part.
    """
    if not text:
        return []
    all_tokens = sum(tokens for tokens, _ in text)
    spent = [0.0] * (min(len(chances) for _, chances in text) + 1)
    for tokens, chances in text:
        survival = expected = 1.0
        for length in range(len(spent)):
            if length:
                survival *= chances[length - 1]
                expected += survival
            spent[length] += tokens * (length * draft + seconds[length]) / expected
    return [all_tokens / total for total in spent]


def break_even(seconds: Sequence[float], draft: float, late: float = 0.0) -> float:
    """The smallest acceptance rate at which some draft length of 1 or more is as fast as 0; 1 if none is.

    ``seconds`` and ``draft`` are those of `speeds_by_length`; ``late``: seconds that each token has to pay for what the
    draft model has to catch up with.
    """
    rounds = [round_ + length * draft for length, round_ in enumerate(seconds)]
    low, high = 0.0, 1.0
    for _ in range(10):
        rate = (low + high) / 2
        survival = tokens = 1.0
        pays = False
        for round_ in rounds[1:]:
            survival *= rate
            tokens += survival
            pays = pays or tokens * (rounds[0] - late) >= round_
        low, high = (low, rate) if pays else (rate, high)
    return high
