"""The tokens of a prompt and its answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from app.engine.decoding.sequence import TokenSequence, shared_prefix


def test_a_sequence_knows_prompt_and_answer_apart() -> None:
    prompt = [5, 6, 7]
    sequence = TokenSequence(prompt)
    assert (len(sequence), sequence.prompt_length) == (3, 3)
    for token in (8, 9):
        sequence.append(token)
    assert sequence.tokens == [5, 6, 7, 8, 9] and prompt == [5, 6, 7]
    assert (len(sequence), sequence.prompt_length) == (5, 3)


def test_the_last_tokens_of_a_sequence() -> None:
    sequence = TokenSequence([1, 2, 3])
    assert [sequence.last(count) for count in (0, 1, 3, 9)] == [[], [3], [1, 2, 3], [1, 2, 3]]
    assert TokenSequence().last(4) == []


def test_a_sequence_shares_its_beginning_with_another_wherever_their_prompts_end() -> None:
    first = TokenSequence([1, 2])
    first.append(3)
    assert first.shared_with(TokenSequence([1, 2, 3, 4])) == 3
    assert first.shared_with(TokenSequence([1, 9, 3])) == 1
    assert TokenSequence().shared_with(first) == 0


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
