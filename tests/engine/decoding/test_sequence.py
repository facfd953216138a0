"""The tokens of a prompt and its answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from app.engine.decoding.sequence import shared_prefix


@pytest.mark.parametrize("second", [list, tuple])
def test_what_two_sequences_share_from_their_beginning(second: Callable[[Sequence[int]], Sequence[int]]) -> None:
    dice = random.Random(5)
    for length in (0, 1, 511, 512, 513, 2000):
        tokens = [dice.randrange(100) for _ in range(length)]
        assert shared_prefix(tokens, second(tokens)) == length
        assert shared_prefix(tokens, second([*tokens, 1])) == shared_prefix([*tokens, 1], second(tokens)) == length
        for _ in range(10 if length else 0):
            place = dice.randrange(length)
            other = [*tokens[:place], 100, *tokens[place + 1 :]]
            assert shared_prefix(tokens, second(other)) == place
