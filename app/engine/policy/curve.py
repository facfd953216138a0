"""Tokens per second by draft length, from what passes cost and how often draft tokens are accepted."""

from __future__ import annotations

from collections.abc import Sequence


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
    """The smallest acceptance rate at which some draft length from 1 on is as quick as 0; 1 if none is.

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
