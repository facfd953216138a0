"""Copies that go on behind changes, as the n-gram drafter proposes them."""

from __future__ import annotations

import random

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.options import MAX_DRAFT_LENGTH, Sampling

TEXT = list(range(100, 160))
"""No token stands in it twice."""


class Copying:
    """An answer that copies what stands in its prompt."""

    def __init__(self, prompt: list[int]) -> None:
        self.drafter = NgramDrafter(lambda _: False)
        self.begin(prompt)

    def begin(self, prompt: list[int]) -> None:
        self.sequence = TokenSequence([*prompt, 1])
        self.drafter.begin(self.sequence, Task(sampling=Sampling(), seed=1))

    def write(self, tokens: list[int]) -> list[int]:
        """``tokens`` follow, one at a time; returns which were not proposed as the next one."""
        missed = []
        for token in tokens:
            if self.drafter.propose(1).tokens != [token]:
                missed.append(token)
            self.sequence.append(token)
            self.drafter.accepted()
        return missed

    def next(self, count: int = 4) -> list[int]:
        return self.drafter.propose(count).tokens


def test_a_copy_goes_on_behind_a_token_that_was_left_out_at_once() -> None:
    made = Copying(TEXT)
    made.write(TEXT[:10])
    assert made.write(TEXT[12:20]) == [TEXT[12]]


def test_a_copy_goes_on_behind_what_was_inserted() -> None:
    made = Copying(TEXT)
    made.write(TEXT[:10])
    assert made.write([7, 8, *TEXT[10:20]]) == [7, 8, TEXT[10]]


def test_a_copy_goes_on_behind_what_was_replaced() -> None:
    made = Copying(TEXT)
    made.write(TEXT[:10])
    assert made.write([7, *TEXT[11:20]]) == [7, TEXT[11]]


def test_its_place_is_preferred_to_another_one_with_the_same_token() -> None:
    other = [TEXT[11], 50, 51]
    made = Copying([*TEXT, *other])
    made.write(TEXT[:10])
    made.write([7, TEXT[11]])
    assert made.next() == TEXT[12:16]


def test_a_place_that_was_found_too_early_is_given_up() -> None:
    """The first token behind the change stands in what was left out, too."""
    text = [*TEXT[:10], 5, 6, 7, 8, 9, 5, *TEXT[10:30]]
    made = Copying(text)
    made.write([*TEXT[:10]])
    made.write([5, TEXT[10], TEXT[11]])
    assert made.next() == TEXT[12:16]


def renamed(count: int, old: list[int], new: list[int]) -> tuple[list[int], list[int]]:
    """A text with a name in ``count`` places, and the same with another one."""
    pieces = [TEXT[i * 8 : i * 8 + 8] for i in range(count)]
    before, after = list[int](), list[int]()
    for piece in pieces:
        before += [*piece, *old]
        after += [*piece, *new]
    return [*before, *TEXT[count * 8 :]], [*after, *TEXT[count * 8 :]]


def test_a_name_that_was_changed_is_changed_in_every_other_place() -> None:
    for old, new in (([5, 6, 7], [8]), ([5], [8, 9, 10]), ([5, 6], [8, 9])):
        before, after = renamed(4, old, new)
        made = Copying(before)
        missed = made.write(after)
        first = len([token for token in missed if token in new])
        assert first == len(new), "only where it is new"
        assert len(missed) <= 2 + len(new) + 1  # the copy begins; the change; behind it
        made = Copying(before)
        made.write(after[: 8 + len(new) + 8])
        assert made.next(len(new) + 3) == [*new, *TEXT[16:19]], "in the middle of a draft, which goes on behind it"


def test_what_stands_before_a_name_is_left_out_in_every_other_place() -> None:
    before, after = renamed(4, [5, 6, 7], [7])
    made = Copying(before)
    made.write(after[: 8 + 1 + 8])
    assert made.next(4) == [7, *TEXT[16:19]]


def test_a_change_that_is_not_made_again_is_forgotten() -> None:
    before, after = renamed(6, [5], [8])
    made = Copying(before)
    made.write(after[:9])
    made.write(before[9:27])  # the old name twice
    assert made.next(6) == before[27:33]
    made.write(before[27:35])
    assert made.next(1) == [5]


def test_changes_of_one_answer_are_not_made_in_the_next_one() -> None:
    before, after = renamed(4, [5, 6, 7], [8])
    made = Copying(before)
    made.write(after[:17])
    assert made.next(1) == [8]
    made.begin(before)
    assert made.next() == []
    made.write(before[:8])
    assert made.next() == before[8:12]


def test_a_draft_is_continued_where_it_is_copied() -> None:
    before, after = renamed(4, [5, 6, 7], [8])
    made = Copying(before)
    made.write(after[:14])
    assert made.drafter.continue_(after[14:17], 3).tokens == after[17:20]
    assert made.drafter.continue_([99], 3).tokens == []
    assert made.next(3) == after[14:17], "as if it had not been asked"


def test_confidence_is_lower_behind_a_change_and_comes_back() -> None:
    made = Copying(TEXT)
    made.write(TEXT[:10])
    [before] = made.drafter.propose(1).confidences
    made.write([7, TEXT[11]])
    [behind] = made.drafter.propose(1).confidences
    made.write(TEXT[12:20])
    [later] = made.drafter.propose(1).confidences
    assert 0 < behind < later and behind < before


def test_a_long_text_is_repeated_each_time_it_is_asked_for() -> None:
    """As in https://github.com/ggml-org/llama.cpp/pull/19164, where it sometimes wasn't; and between two long chats
    comes a short one (https://github.com/ggml-org/llama.cpp/issues/21233)."""
    lines = [token for i in range(200) for token in (10, 11, 100 + i % 7, 200 + i, 12, 13)]
    made = Copying([])
    for _ in range(3):
        made.begin([1, *lines, 2])
        missed = made.write(lines)
        assert len(missed) <= 3
        made.begin([1, 5])
        assert made.next() == []


def test_any_text_is_followed() -> None:
    """Copies of few tokens with changes at random: nothing fails, and drafts are never longer than allowed."""
    rng = random.Random(7)
    proposed = changed = 0
    for _ in range(300):
        letters = rng.randint(1, 6)
        prompt = rng.choices(range(letters), k=rng.randint(0, 60))
        made = Copying(prompt)
        place = 0
        for _ in range(80):
            if rng.random() < 0.2 or place >= len(prompt):
                token, place = rng.randrange(letters), rng.randrange(len(prompt) + 1)
                changed += 1
            else:
                token, place = prompt[place], place + 1
            proposal = made.drafter.propose(rng.randint(1, MAX_DRAFT_LENGTH + 4))
            assert len(proposal.tokens) == len(proposal.confidences) <= MAX_DRAFT_LENGTH
            assert all(0 < confidence <= 12 for confidence in proposal.confidences)
            proposed += bool(proposal.tokens)
            made.sequence.append(token)
            made.drafter.accepted()
    assert proposed > 10_000 and changed > 1_000


def test_a_name_that_is_left_out_over_and_over_does_not_take_long() -> None:
    """Nothing can be proposed from a place where everything is left out; it isn't looked for without end."""
    made = Copying([*TEXT[:20], 5, *TEXT[20:40], *[5] * 20_000, 6])
    made.write([*TEXT[:40]])
    assert made.drafter.propose(4).tokens in ([], [5] * 4, [6])
