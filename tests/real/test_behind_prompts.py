"""Behind prompts of 100, 700, 3,000 and 8,000 tokens: the same text with and without a draft, and the same logits.

A prompt goes on from the one before, so that its tokens are processed once; each test can also be run alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.llama.context import Context
from app.protocol.options import AcceptRule
from tests.real.loaded import N_GRAMS, PLAIN, Loaded
from tests.support.generation import GREEDY, Answer, assert_sums_close

WIDTHS = (2, 4, 9, 17)
THREADS = (1, 2, 3, 4)
SEEDS = range(3)
_AROUND = 50
"""Tokens of a prompt that are not text: what the template and our question add, about."""


@dataclass
class Behind:
    """A model, and a prompt of about ``length`` tokens that its context holds.

    Attributes:
        tokens: The prompt.
    """

    loaded: Loaded
    length: int
    question: str
    tokens: list[int]

    @property
    def context(self) -> Context:
        return self.loaded.context

    def answer(self, **options: Any) -> Answer:
        return self.loaded.answer(self.question, **options)

    def begin(self) -> None:
        """Bring the context to the end of the prompt."""
        context = self.context
        context.roll_back(len(self.tokens))
        if context.tokens != self.tokens:
            context.clear()
            self.feed()
        context.hold(max(WIDTHS))

    def feed(self) -> None:
        """Process what the context lacks of the prompt."""
        context = self.context
        while missing := self.tokens[len(context.tokens) :]:
            context.decode(missing[: context.chunk], 0)

    def next_tokens(self, count: int) -> list[int]:
        return self.loaded.tokens(self.loaded.text(count + 20, self.length))[:count]


CASES = [
    *(("smollm2", length) for length in (100, 700, 3000, 8000)),
    *(("q8_0", length) for length in (100, 700)),
    *(("gemma", length) for length in (100, 700, 3000, 8000)),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def behind(request: pytest.FixtureRequest) -> Behind:
    name, length = request.param
    return prompt(request.getfixturevalue(name), length)


def prompt(loaded: Loaded, length: int) -> Behind:
    question = loaded.question(length - _AROUND)
    first = loaded.answer(question, max_tokens=1, **PLAIN)
    assert length - _AROUND < first.started.prompt_tokens < length + _AROUND
    return Behind(loaded, length, question, loaded.context.tokens[: first.started.prompt_tokens])


# ---------------------------------------------------------------- texts


def test_n_grams_change_no_word(behind: Behind) -> None:
    tested = 0
    for seed in SEEDS if behind.length == 700 else SEEDS[:1]:
        plain = behind.answer(seed=seed, **PLAIN)
        drafted = behind.answer(seed=seed, **N_GRAMS)
        assert drafted.token_ids == plain.token_ids, f"seed {seed}"
        assert drafted.text == plain.text
        for answer in (plain, drafted):
            assert answer.started.cached_tokens == answer.started.prompt_tokens - 1
            assert_sums_close(answer)
        tested += drafted.finished.figures.draft.tested
    assert tested or behind.length != 700, "there are always words that come again"


def test_neither_does_auto(behind: Behind) -> None:
    plain = behind.answer(sampling=GREEDY, max_tokens=20, **PLAIN)
    automatic = behind.answer(sampling=GREEDY, max_tokens=20, drafter="auto", draft_length="auto")
    assert automatic.token_ids == plain.token_ids


@pytest.mark.parametrize("rule", get_args(AcceptRule))
def test_all_accept_rules_answer(smollm2: Loaded, rule: AcceptRule) -> None:
    behind = prompt(smollm2, 120)
    answer = behind.answer(accept=rule, **N_GRAMS)
    assert 0 < len(answer.token_ids) <= 32 and answer.finished.finish_reason in ("length", "end")
    assert_sums_close(answer)


# ---------------------------------------------------------------- logits


def rows_of(behind: Behind, width: int, tokens: Sequence[int]) -> Floats:
    """The logits of ``tokens`` behind the prompt, in passes of ``width``; shape (tokens, vocabulary)."""
    behind.begin()
    context = behind.context
    parts = [tokens[place : place + width] for place in range(0, len(tokens), width)]
    rows = np.concatenate([context.decode(part, len(part)).copy() for part in parts])
    context.roll_back(len(behind.tokens))
    return rows


def assert_bits(rows: Floats, expected: Floats, what: str) -> None:
    """Both are the same to the last bit."""
    wrong = (rows.view(np.uint32) != expected.view(np.uint32)).any(axis=1)
    distance = np.abs(rows - expected).max()
    assert not wrong.any(), f"{what}: {wrong.sum()} of {len(rows)} tokens have other logits, by up to {distance:.2g}"


@contextmanager
def threads(context: Context, count: int) -> Iterator[None]:
    """Compute all passes with so many."""
    before = context.threads, context.batch_threads
    context.use_threads(count, count)
    yield
    context.use_threads(*before)


def test_a_pass_of_any_width_gives_the_same_logits(behind: Behind) -> None:
    tokens = behind.next_tokens(max(WIDTHS) if behind.length <= 3000 else 4)
    expected = rows_of(behind, 1, tokens)
    for width in WIDTHS:
        if width <= len(tokens):
            assert_bits(rows_of(behind, width, tokens), expected, f"width {width}")


def test_so_does_any_number_of_threads(behind: Behind) -> None:
    """More than there are processors, too: a smaller machine must write the same."""
    tokens = behind.next_tokens(4)
    expected = rows_of(behind, 1, tokens)
    for count in THREADS:
        with threads(behind.context, count):
            for width in (1, 4):
                assert_bits(rows_of(behind, width, tokens), expected, f"{count} threads, width {width}")


@pytest.mark.parametrize(("name", "length"), [("smollm2", 100), ("q8_0", 100), ("gemma", 700)])
def test_any_number_of_threads_reads_the_same_in_a_prompt(
    request: pytest.FixtureRequest, name: str, length: int
) -> None:
    behind = prompt(request.getfixturevalue(name), length)
    tokens = behind.next_tokens(1)
    expected = None
    for count in (2, 1, 3, 4) if length == 100 else (2, 1):
        with threads(behind.context, count):
            behind.context.clear()
            behind.feed()
        rows = rows_of(behind, 1, tokens)
        expected = rows if expected is None else expected
        assert_bits(rows, expected, f"{count} threads")
