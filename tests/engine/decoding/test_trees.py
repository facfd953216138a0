"""Draft trees: whatever is on them, the text is the target's own, and the cache ends as without them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from app.engine.decoding.drafting import Drafting
from app.engine.decoding.loop import Decoding
from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.decoding.trees import Trie, first_chain, sequences
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.engine.drafters.lookahead import LookaheadDrafter
from app.engine.policy.fixed import FixedPolicy
from app.protocol.events import Round
from app.protocol.options import MAX_DRAFT_LENGTH, TARGET_OUTPUTS, AcceptRule, DrafterName, ProposalMethod, Sampling
from app.system import KnownError
from tests.support.simulator import pair_costs
from tests.support.table_cache import TableCache
from tests.support.vocabulary import FakeVocabulary

PROMPT = [1, 2, 3, 4]
COSTS = pair_costs({1: 1.0, 17: 2.0}, 0.1, 0.1)


class Forest(Drafter):
    """Proposes trees at random; most have the right tokens somewhere, and some of them are chains."""

    name: DrafterName = "model"
    needs = "logits"

    def __init__(self, truth: Sequence[int], seed: int) -> None:
        self._truth, self._rng = list(truth), random.Random(seed)
        self.seen_with = Counter[bool]()

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        self._sequence = sequence

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        rng, most = self._rng, self._rng.randint(1, count)
        trie = Trie(most, rng.choice((0, self.branches // 2, self.branches)))
        place = len(self._sequence)
        for _ in range(rng.randint(0, 3)):
            self._grow(trie)
        trie.add([token % 12 for token in self._truth[place : place + rng.randint(0, 8)]])
        for _ in range(rng.randint(0, 12)):
            self._grow(trie)
        leaves = set(range(len(trie.tokens))) - set(trie.parents)
        if trie.tokens and len(trie.tokens) < most and len(leaves) <= self.branches:
            twin = rng.randrange(len(trie.tokens))  # the same token once more, which nothing follows
            trie.tokens.append(trie.tokens[twin])
            trie.parents.append(trie.parents[twin])
        self._proposed = len(trie.tokens)
        return Proposal(trie.tokens, None, [1.0] * len(trie.tokens), parents=trie.parents)

    def _grow(self, trie: Trie) -> None:
        behind = self._rng.randrange(-1, len(trie.tokens))
        trie.add([self._rng.randrange(12) for _ in range(self._rng.randint(1, 3))], behind)

    def accepted(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def seen(self, tokens: list[int]) -> None:
        assert len(tokens) == self._proposed + 1
        self.seen_with[len(tokens) > 1] += 1


def decode(cache: TableCache, drafter: Drafter | None, **task: Any) -> tuple[list[int], list[Round], Decoding]:
    task.setdefault("sampling", Sampling(temperature=0.8))
    sequence, asked = TokenSequence(PROMPT), Task(**{"seed": 1, "max_tokens": 40, **task})
    cache.roll_back(0)
    logits = cache.decode(PROMPT, 1)
    drafting = Drafting(FixedPolicy(drafter.name, MAX_DRAFT_LENGTH, COSTS), [drafter]) if drafter else None
    decoding = Decoding(cache, sequence, Letters(), drafting, asked, 0.0, lambda: False)
    rounds = list(decoding.rounds(logits))
    assert cache.tokens == sequence.tokens[: len(cache.tokens)]
    return sequence.tokens[len(PROMPT) :], rounds, decoding


class Letters(FakeVocabulary):
    """The twelve tokens of the table, of which the last ends an answer."""

    def piece(self, token: int) -> bytes:
        return bytes([ord("a") + token])

    def is_end(self, token: int) -> bool:
        return token == 11


def any_task(rng: random.Random) -> dict[str, Any]:
    accepts: tuple[AcceptRule, ...] = ("coupled", "exact", "rejection", "block")
    return {
        "sampling": Sampling(
            temperature=rng.choice((0.0, 0.7, 1.0, 1.5)),
            top_k=rng.choice((0, 3, 40)),
            top_p=rng.choice((1.0, 0.9)),
            repetition_penalty=rng.choice((1.0, 1.3)),
            frequency_penalty=rng.choice((0.0, 0.4)),
            presence_penalty=rng.choice((0.0, -0.5)),
            penalty_window=rng.choice((0, 4, 64)),
        ),
        "accept": rng.choice(accepts),
        "logprobs": rng.choice((None, None, 2)),
        "logit_bias": rng.choice(({}, {11: -4.0, 3: 1.0})),
        "max_tokens": rng.choice((1, 2, 7, 40)),
        "stop": rng.choice(([], ["ab", "gc"])),
        "seed": rng.randrange(1000),
    }


def test_the_text_is_the_same_as_without_a_draft() -> None:
    rng, met = random.Random(5), Counter[str]()
    for number in range(250):
        task = any_task(rng)
        length = rng.choice((30, 1 << 20))
        ours = TableCache(length=length, branches=rng.choice((0, 1, 5, 16)))
        truth, _, alone = decode(TableCache(length=length), None, **task)
        text, rounds, decoding = decode(ours, Forest([*PROMPT, *truth], number), **task)
        assert text == truth, task
        assert decoding.finish_reason == alone.finish_reason
        assert decoding.text.met_stop == alone.text.met_stop
        met[str(decoding.finish_reason)] += 1
        met["trees"] += ours.trees
        tested = [one.tested + 1 for one in rounds if one.verify_passes]
        met["fed again"] += sum(ours.passes[-len(tested) :]) - sum(tested) if tested else 0
        assert all(one.accepted <= one.tested and one.tokens <= one.accepted + 1 for one in rounds)
        assert max(ours.passes) <= TARGET_OUTPUTS
    assert min(met[what] for what in ("end", "length", "stop_string", "context", "trees", "fed again")) > 5, met


@pytest.mark.parametrize("drafter", [LookaheadDrafter(), None])
def test_padded_passes_have_no_branches(drafter: Drafter | None) -> None:
    """Nor are they narrower where a drafter that needs branches proposes nothing."""
    cache = TableCache()
    decode(cache, drafter, accept="exact", unit=8)
    _, *passes = cache.passes
    assert passes and not cache.trees and not any(width % 8 for width in passes)


def test_logprobs_are_those_of_the_path() -> None:
    task: dict[str, Any] = {
        "logprobs": 3,
        "sampling": Sampling(temperature=1.2),
        "max_tokens": 60,
        "logit_bias": {11: -9},
    }
    truth, plain, _ = decode(TableCache(), None, **task)
    cache = TableCache()
    text, rounds, _ = decode(cache, Forest([*PROMPT, *truth], 3), **task)
    assert text == truth and cache.trees
    ours, theirs = ([piece.logprobs for one in answer for piece in one.pieces] for answer in (rounds, plain))
    assert ours == theirs


def test_accepted_tokens_of_another_branch_are_fed_again() -> None:
    class Second(Forest):
        def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
            right = self._truth[len(self._sequence) :][:3]
            self._proposed = 1 + len(right)
            return Proposal([(right[0] + 1) % 12, *right], parents=[-1, -1, 1, 2][: 1 + len(right)])

    task: dict[str, Any] = {"logit_bias": {11: -99.0}, "max_tokens": 21}
    truth, *_ = decode(TableCache(), None, **task)
    cache = TableCache(branches=1)
    text, rounds, _ = decode(cache, Second([*PROMPT, *truth, 0, 0, 0], 0), **task)
    assert text == truth
    # Each of five passes has four tokens of the tree, the last one of the context, and behind the first three again.
    assert [one.accepted for one in rounds] == [0, 3, 3, 3, 3, 3]
    assert cache.passes[1:] == [5, 8, 8, 8, 8]
    assert sum(one.tested for one in rounds) == 4 * 5


def test_where_branches_are_not_possible_the_first_chain_is_tested() -> None:
    truth, *_ = decode(TableCache(), None)
    cache = TableCache(branches=0)
    text, rounds, _ = decode(cache, Forest([*PROMPT, *truth], 8))
    assert text == truth and not cache.trees and any(one.accepted for one in rounds)


def test_a_failing_pass_leaves_the_cache_as_it_was() -> None:
    class Failing(TableCache):
        def decode_tree(self, tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int]) -> Any:
            if self.trees == 2:
                raise KnownError("no memory")
            return super().decode_tree(tokens, draft, parents)

    truth, *_ = decode(TableCache(), None, logit_bias={11: -99.0})
    cache, sequence = Failing(), TokenSequence(PROMPT)
    task = Task(sampling=Sampling(temperature=0.8), seed=1, max_tokens=40, logit_bias={11: -99.0})
    drafter = Forest([*PROMPT, *truth], 1)
    drafting = Drafting(FixedPolicy("model", MAX_DRAFT_LENGTH, COSTS), [drafter])
    decoding = Decoding(cache, sequence, Letters(), drafting, task, 0.0, lambda: False)
    with pytest.raises(KnownError, match="no memory"):
        list(decoding.rounds(cache.decode(PROMPT, 1)))
    assert cache.trees == 2 and sequence.tokens[len(PROMPT) :] == truth[: len(sequence) - len(PROMPT)]
    assert cache.tokens == sequence.tokens[: len(cache.tokens)] and len(cache.tokens) < len(sequence)


def test_what_a_tree_consists_of() -> None:
    #  0 ┬ 1 ─ 3      5 ─ 6
    #    └ 2 ─ 4
    parents = [-1, 0, 0, 1, 2, -1, 5]
    assert first_chain(parents) == [0, 1, 3]
    assert sequences(parents) == [[0, 1], [0], [1], [0], [1], [2], [2]]
    whole = Proposal([10, 11, 12, 13, 14, 15, 16], None, [float(i) for i in range(7)], parents=parents)
    assert whole.along([0, 2]) == Proposal([10, 12, 14], None, [0, 2, 4])
    assert whole.along([]) == Proposal([10, 11, 13], None, [0, 1, 3])
    assert whole.first(3).parents == [-1, 0, 0]


def test_a_trie_shares_beginnings_and_keeps_its_limits() -> None:
    trie = Trie(most=6, branches=1)
    assert trie.add([7, 8, 9]) == [0, 1, 2]
    assert trie.add([7, 8, 5]) == [0, 1, 3]
    assert trie.add([4]) == []  # a third branch
    assert trie.add([6, 6, 6], parent=3) == [4, 5]  # no more than six tokens
    assert (trie.tokens, trie.parents) == ([7, 8, 9, 5, 6, 6], [-1, 0, 1, 1, 3, 4])


def test_the_fields_of_a_round_add_up() -> None:
    truth, *_ = decode(TableCache(), None, max_tokens=200, logit_bias={11: -99.0})
    _, rounds, _ = decode(TableCache(), Forest([*PROMPT, *truth], 2), max_tokens=200, logit_bias={11: -99.0})
    assert sum(one.tokens for one in rounds) == len(truth) == 200
    pieces = [piece for one in rounds for piece in one.pieces if piece.id >= 0]
    assert sum(piece.drafter is not None for piece in pieces) == sum(one.accepted for one in rounds)
    assert msgspec.json.decode(msgspec.json.encode(rounds), type=list[Round]) == rounds
