"""Lookahead's window and its pool: what the target wrote ahead is tested, in the order in which it was written."""

from __future__ import annotations

from collections import deque

import pytest

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.drafters.lookahead import NGRAM, POOL, WINDOW, LookaheadDrafter
from app.protocol.options import BRANCHES, MAX_DRAFT_LENGTH, Sampling

TASK = Task(sampling=Sampling(temperature=0), seed=0)


class Writer:
    """A target that says which token follows which, around a drafter."""

    def __init__(self, follows: dict[int, int], branches: int = BRANCHES) -> None:
        self.follows = follows
        self.sequence = TokenSequence([3, 9, 1])
        self.drafter = LookaheadDrafter()
        self.drafter.branches = branches
        self.drafter.begin(self.sequence, TASK)

    def round(self, count: int = MAX_DRAFT_LENGTH) -> int:
        """How many tokens of the draft were accepted."""
        draft = self.drafter.propose(count)
        assert draft.parents is not None and len(draft.tokens) <= count
        assert sum(place not in draft.parents for place in range(len(draft.tokens))) <= self.drafter.branches + 1
        last = self.sequence.tokens[-1]
        self.drafter.seen([self.follows[token] for token in (last, *draft.tokens)])
        accepted, place = 0, -1
        while True:
            token = self.follows[self.sequence.tokens[-1]]
            self.sequence.append(token)
            pairs = list(zip(draft.parents, draft.tokens, strict=True))
            if (place, token) not in pairs:
                break
            place = pairs.index((place, token))
            accepted += 1
        self.drafter.accepted()
        return accepted


def cycle(length: int) -> dict[int, int]:
    return {token: (7 * token + 1) % length for token in range(length)}


def test_the_sizes_fill_a_verify_pass() -> None:
    assert (WINDOW + POOL) * (NGRAM - 1) == MAX_DRAFT_LENGTH and WINDOW + POOL == BRANCHES + 1
    writer = Writer({token: token + 1 for token in range(200)})
    for follower in ((5, 6), (7, 8), (11, 12), (13, 14)):
        writer.drafter._pool.setdefault(1, deque()).append(follower)
    draft = writer.drafter.propose(MAX_DRAFT_LENGTH)
    assert draft.tokens[:2] == [13, 14], "the newest is the first chain"
    assert len(draft.tokens) >= MAX_DRAFT_LENGTH - WINDOW, "only what is the same is tested once"


def test_what_was_written_ahead_is_accepted_later() -> None:
    """Of a text that goes round, all tokens of each n-gram, once each token has been in the window."""
    writer = Writer(cycle(12))
    accepted = [writer.round() for _ in range(60)]
    assert accepted[0] <= 2
    assert min(accepted[-20:]) >= NGRAM - 1


def test_the_window_moves_with_the_text() -> None:
    """The first row is a chain from the context; where it is right, it is accepted, and the next one is where it was
    left."""
    writer = Writer({token: token + 1 for token in range(10_000)})
    for _ in range(WINDOW + 2):
        writer.round()
    # Nothing repeats, so whatever is accepted was written ahead by the window itself: by Jacobi iteration, a row that
    # begins with the right token is right in its next pass.
    accepted = [writer.round() for _ in range(20)]
    assert sum(accepted) > 0


@pytest.mark.parametrize(("count", "branches"), [(1, 7), (7, 7), (8, 7), (16, 0), (16, 3), (16, 4), (12, 16)])
def test_few_tokens_or_branches(count: int, branches: int) -> None:
    writer = Writer(cycle(12), branches)
    for _ in range(30):
        writer.round(count)
    assert writer.sequence.tokens[3:] == _following(writer.follows, 1, len(writer.sequence) - 3)


def _following(follows: dict[int, int], token: int, count: int) -> list[int]:
    found = []
    for _ in range(count):
        found.append(token := follows[token])
    return found


def test_nothing_of_one_answer_is_in_the_next() -> None:
    writer = Writer(cycle(12))
    for _ in range(30):
        writer.round()
    assert writer.drafter._pool
    writer.drafter.begin(TokenSequence([100, 101]), TASK)
    assert set(writer.drafter.propose(MAX_DRAFT_LENGTH).tokens) <= {100, 101}
    writer.drafter.forget()
    assert not writer.drafter._pool and not writer.drafter._rows
