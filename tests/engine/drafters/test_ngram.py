from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters import Proposal
from app.engine.drafters.ngram import AGREED, CANDIDATES, INDEXED, LEAST_CONFIDENCE, LONGEST_MATCH, NgramDrafter
from app.protocol.options import MAX_DRAFT_LENGTH, Sampling

LONG = 32_000


def never(_token: int) -> bool:
    return False


class Conversation:
    """A drafter and the sequence it reads."""

    def __init__(self, context: Iterable[int] = (), end: int | None = None) -> None:
        self.drafter = NgramDrafter(lambda token: token == end)
        self.propose = self.drafter.propose
        self.begin(context)

    def begin(self, context: Iterable[int]) -> None:
        self.sequence = TokenSequence(list(context))
        self.drafter.begin(self.sequence, Task(sampling=Sampling(), seed=1))

    def go_on(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            self.sequence.append(token)
        self.drafter.accepted()


def occurrences(context: list[int], length: int) -> list[int]:
    """Behind which tokens the last ``length`` ones stood before, newest first."""
    gram = context[-length:]
    return [end for end in range(len(context) - 1, length - 1, -1) if context[end - length : end] == gram]


def reference(context: list[int], count: int, end: int | None = None, limit: int | None = CANDIDATES) -> Proposal:
    """Try all lengths at all places (``limit`` of ``None``), or at the newest of each indexed length."""
    seen = {place for length in INDEXED for place in occurrences(context, length)[:limit]}
    for length in range(LONGEST_MATCH, 0, -1):
        places = [place for place in occurrences(context, length) if place in seen]
        if places:
            return follow(context, places, length, count, end)
    return Proposal()


def continued(context: list[int], draft: list[int], count: int) -> Proposal:
    """As `reference` for a draft that was begun: of all places before it, the longest match."""
    text = context + draft
    for length in range(LONGEST_MATCH, 0, -1):
        if places := [place for place in occurrences(text, length) if place <= len(context)]:
            return follow(text, places, length, count, None)
    return Proposal()


def follow(context: list[int], places: list[int], length: int, count: int, end: int | None) -> Proposal:
    text, confidences = list(context), list[float]()
    for i in range(count):
        votes = [text[place + i] for place in places]
        winner = max(votes, key=lambda token: (votes.count(token), -votes.index(token)))
        won = votes.count(winner)
        agreed = AGREED if won == len(votes) > 1 else 0
        confidences.append(min((length + i) * won / len(votes) + agreed, LONGEST_MATCH))
        places = [place for place in places if text[place + i] == winner]
        text.append(winner)
        if winner == end:
            break
    if not confidences or confidences[0] < LEAST_CONFIDENCE:
        return Proposal()
    return Proposal(text[len(context) :], confidences=confidences)


def test_random_contexts_get_what_trying_every_place_finds() -> None:
    rng = random.Random(1)
    proposed = 0
    for _ in range(4000):
        size = rng.randint(0, CANDIDATES)  # so that never more places match than are looked at
        context = rng.choices(range(rng.randint(1, 4)), k=size)
        count = rng.randint(0, MAX_DRAFT_LENGTH)
        expected = reference(context, count, limit=None)
        assert Conversation(context).propose(count) == expected, context
        proposed += bool(expected.tokens)
    assert proposed > 1000


def test_long_contexts_get_what_trying_the_newest_places_finds() -> None:
    rng = random.Random(2)
    limited = long = 0
    for _ in range(1500):
        letters = rng.randint(2, 5)
        context = rng.choices(range(letters), k=rng.randint(20, 250))
        copy = rng.randrange(len(context))
        context += context[copy : copy + rng.randint(0, 16)]
        end = rng.choice([None, 0])
        expected = reference(context, MAX_DRAFT_LENGTH, end)
        assert Conversation(context, end).propose(MAX_DRAFT_LENGTH) == expected, context
        limited += len(occurrences(context, INDEXED[-1])) > CANDIDATES
        long += bool(occurrences(context, LONGEST_MATCH))
    assert limited > 100
    assert long > 100


def test_a_begun_draft_is_continued_as_if_it_were_accepted() -> None:
    rng = random.Random(5)
    proposed = 0
    for _ in range(3000):
        context = rng.choices(range(rng.randint(1, 4)), k=rng.randint(0, CANDIDATES))
        draft = rng.choices(range(2), k=rng.randint(1, 6))
        made = Conversation(context)
        expected = continued(context, draft, 8)
        assert made.drafter.continue_(draft, 8) == expected, (context, draft)
        assert made.propose(8) == reference(context, 8, limit=None)  # nothing of the draft is left behind
        proposed += bool(expected.tokens)
    assert proposed > 300


def test_a_conversation_with_new_answers_and_edited_prompts() -> None:
    """What was said before, and went, leaves nothing behind: a new drafter proposes the same."""
    rng = random.Random(3)
    changes = dict.fromkeys(("extended", "diverged", "cut", "accepted draft", "accepted other"), 0)
    for _ in range(150):
        made, new, context, letters = Conversation(), Conversation(), list[int](), rng.randint(2, 4)
        for _ in range(25):
            change = rng.choice(list(changes))
            tokens = rng.choices(range(letters), k=rng.randint(0, 12))
            if change.startswith("accepted"):
                draft = made.propose(count := rng.randint(0, 8)).tokens if change == "accepted draft" else []
                assert change == "accepted other" or new.propose(count).tokens == draft
                tokens = draft[: rng.randint(0, len(draft))] + tokens[:1]
                for each in (made, new):
                    each.go_on(tokens)
                context += tokens
            else:
                kept = len(context) if change == "extended" else rng.randint(0, len(context))
                context = context[:kept] + ([] if change == "cut" else tokens)
                made.begin(context)
                new = Conversation(context)
                assert made.propose(10) == new.propose(10) == reference(context, 10), (change, context)
            changes[change] += 1
            assert made.propose(10) == new.propose(10), (change, context)
    assert min(changes.values()) > 300


def test_what_chats_said_is_forgotten() -> None:
    made = Conversation([1, 2, 3] * 4)
    assert made.propose(1).tokens
    made.drafter.forget()
    assert made.propose(4) == Proposal()
    made.begin([1, 2, 3])
    assert made.propose(4) == Proposal()


def test_the_end_of_an_answer_is_known_in_the_next_one() -> None:
    """Behind the last pass of an answer nobody asks for another draft, and nobody says what was accepted."""
    made = Conversation([8, 1, 2])
    for token in (3, 4, 5):
        made.sequence.append(token)
    made.begin([8, 1, 2, 3, 4, 5, 9, 1, 2, 3])
    assert made.propose(2).tokens == [4, 5]


def test_nothing_is_proposed_without_a_match() -> None:
    assert NgramDrafter(never).propose(4) == Proposal()
    assert Conversation([]).propose(4) == Proposal()
    for context in ([1], [1, 2], [1, 1, 2], list(range(100))):
        assert Conversation(context).propose(4) == Proposal(), context


def test_equally_long_matches_vote_and_those_outvoted_drop_out() -> None:
    gram = [0, 1, 2, 3]
    context = [10, *gram, 4, 5, 11, *gram, 4, 6, 12, *gram, 7, 8, 13, *gram]
    assert Conversation(context).propose(3) == Proposal([4, 6, 12], None, [4 * 2 / 3, 5 / 2, 6])
    assert Conversation(context[:7] + context[14:]).propose(2) == Proposal([7, 8], None, [4 / 2, 5])
    assert Conversation(context[:14] + context[21:]).propose(2) == Proposal([4, 6], None, [4 + AGREED, 5 / 2])


def test_ngrams_that_share_a_hash_are_told_apart() -> None:
    twin = 2**61 - 1
    assert hash((0, 1, 2, 3)) == hash((twin, 1, 2, 3)) and hash((0,)) == hash((twin,))
    assert Conversation([0, 4, twin]).propose(4) == Proposal()
    assert Conversation([0, 1, 2, 3, 4, twin, 1, 2, 3]).propose(1) == Proposal([4], None, [3])
    assert Conversation([0, 1, 2, 3, 4, twin, 1, 2, 3, 5, 0, 1, 2, 3]).propose(1) == Proposal([4], None, [4])


class Counted(int):
    """A token that counts how often any of its kind is compared or hashed."""

    touched = 0

    def __eq__(self, other: object) -> bool:
        Counted.touched += 1
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        Counted.touched += 1
        return super().__ne__(other)

    def __hash__(self) -> int:
        Counted.touched += 1
        return super().__hash__()


def counted(tokens: Sequence[int]) -> list[int]:
    return [Counted(token) for token in tokens]


DRAFT_WORK = len(INDEXED) * CANDIDATES * LONGEST_MATCH + MAX_DRAFT_LENGTH * (CANDIDATES * 4 + 3)
"""Comparing places, then for each token four touches a place to count its vote and compare it with the winner."""
ADDED_WORK = sum(INDEXED) + 100
"""One hash of each n-gram that ends with the token; and for a copy, the window behind a change and the changes known
there."""


@pytest.mark.parametrize("text", ["one token", "two letters", "one frequent trigram", "period 13"])
def test_work_is_bounded_however_long_the_context_is(text: str) -> None:
    rng = random.Random(4)
    tokens = {
        "one token": [7] * LONG,
        "two letters": rng.choices((1, 2), k=LONG),
        "one frequent trigram": [token for i in range(LONG // 4) for token in (100 + i, 1, 2, 3)],
        "period 13": [i % 13 for i in range(LONG)],
    }[text]
    made = Conversation()
    for begin in range(0, LONG, LONG // 4):
        Counted.touched = 0
        made.go_on(counted(tokens[begin : begin + LONG // 4]))
        assert 0 < Counted.touched <= ADDED_WORK * LONG // 4
        Counted.touched = 0
        proposal = made.propose(MAX_DRAFT_LENGTH)
        assert len(proposal.tokens) == MAX_DRAFT_LENGTH or text == "one frequent trigram"
        assert 0 < Counted.touched <= DRAFT_WORK
    Counted.touched = 0
    made.go_on(counted([1]))
    assert 0 < Counted.touched <= ADDED_WORK


def test_one_token_is_enough_where_several_places_agree_and_two_otherwise() -> None:
    assert Conversation([8, 1, 2, 9, 1, 2, 7, 1]).propose(2).tokens[:1] == [2]
    assert Conversation([8, 1, 2, 9, 1, 3, 7, 1]).propose(3) == Proposal()
    assert Conversation([8, 1, 2, 3, 4, 9, 1]).propose(3) == Proposal()
    assert Conversation([8, 1, 2, 3, 4, 9, 1, 2]).propose(3) == Proposal([3, 4, 9], None, [2, 3, 4])


@pytest.mark.parametrize("count", [0, -1])
def test_no_draft_of_no_tokens(count: int) -> None:
    assert Conversation([1, 2, 3] * 4).propose(count) == Proposal()


def test_the_longest_match_wins_over_newer_and_more_frequent_ones() -> None:
    assert Conversation([0, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3, 5, 0, 1, 2, 3]).propose(1) == Proposal(
        [4], None, [4]
    )


def test_a_long_match_is_found_behind_many_short_ones() -> None:
    decoys = [token for i in range(100) for token in (100 + i, 4, 5, 6, 200)]
    proposal = Conversation([1, 2, 3, 4, 5, 6, 7, *decoys, 1, 2, 3, 4, 5, 6]).propose(1)
    assert proposal == Proposal([7], None, [6])


def test_what_repeats_itself_keeps_going() -> None:
    assert Conversation([9, 1, 2, 3, 1, 2, 3]).propose(8).tokens == [1, 2, 3, 1, 2, 3, 1, 2]
    assert Conversation([9, 5, 5, 5, 5]).propose(8).tokens == [5] * 8


def test_nothing_follows_an_end() -> None:
    context = [1, 2, 3, 4, 99, 6, 1, 2, 3]
    assert Conversation(context, end=99).propose(8) == Proposal([4, 99], None, [3, 4])
    assert Conversation(context).propose(8).tokens == [4, 99, 6, 1, 2, 3, 4, 99]


def test_confidence_ends_at_the_longest_match_looked_at() -> None:
    assert Conversation(list(range(40)) * 2).propose(3).confidences == [12, 12, 12]
    assert Conversation([*range(40), 99, *range(30, 40), 50, *range(10)]).propose(4).confidences == [10, 11, 12, 12]
