"""Conversations with tools: a real model that is made to call them, with results that are always the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real.loaded import N_GRAMS, PLAIN, WARM, Loaded
from tests.support.matrix import in_proof
from tests.support.tool_conversations import converse

AUTO: dict[str, Any] = {"drafter": "auto", "draft_length": "auto"}


@pytest.mark.parametrize("first", [0, *in_proof(range(5, 100, 5))])
def test_conversations_with_tools(smollm2: Loaded, first: int) -> None:
    """Each call is valid, each result stands in the next prompt as it is, and a draft changes no token. All hundred:
    ``scripts/real tests/real/test_tools.py -m ""``."""
    problems, differ, calls, accepted = [], [], 0, 0
    for number in range(first, first + 5):
        plain = converse(smollm2.engine, number, sampling=WARM, **PLAIN)
        problems += plain.problems
        calls += len(plain.calls)
        for turn in plain.turns[1:]:
            assert turn.started.cached_tokens > 0, "the KV cache still holds what was written"
        drafted = converse(smollm2.engine, number, sampling=WARM, **(AUTO if number % 2 else N_GRAMS))
        accepted += sum(turn.finished.figures.draft.accepted for turn in drafted.turns)
        if drafted.tokens != plain.tokens:
            differ.append(number)
    assert (problems, differ, calls) == ([], [], 15)
    assert accepted
