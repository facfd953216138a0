"""Block verification writes exactly what the target would, over several drafts, and accepts no less than rejection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from app.engine.decoding.accept_rules import Purpose, Verdict, block, block_seed, draw, rejection
from app.engine.decoding.sampling import Distributions, distributions
from app.protocol.options import Sampling
from tests.support.matrix import in_proof
from tests.support.statistics import chi_square_p_value

SIZE, LENGTH = 2, 5
SEEDS = 4_000
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
Rule = Callable[[Distributions, Distributions, Sequence[int], int, int], Verdict]


class Language:
    """Distributions of the next of `SIZE` tokens behind every text of up to `LENGTH` of them."""

    def __init__(self, seed: int, spread: float, sampling: Sampling = OPEN) -> None:
        rng = np.random.default_rng(seed)
        texts = [text for length in range(2 * LENGTH) for text in product(range(SIZE), repeat=length)]
        rows = distributions(rng.normal(0, spread, (len(texts), SIZE)).astype(np.float32), sampling)
        self._rows = rows
        self._places = {text: place for place, text in enumerate(texts)}

    def rows(self, texts: Sequence[tuple[int, ...]]) -> Distributions:
        places = [self._places[text] for text in texts]
        return Distributions(self._rows.ids[places], self._rows.log_probs[places])

    def joint(self) -> list[float]:
        """The probability of every text of `LENGTH` tokens, in the order of `product`."""
        result = []
        for text in product(range(SIZE), repeat=LENGTH):
            rows = self.rows([text[:i] for i in range(LENGTH)])
            result.append(float(np.prod([rows.probability(i, token) for i, token in enumerate(text)])))
        return result


def prefixes(text: tuple[int, ...], draft: Sequence[int]) -> list[tuple[int, ...]]:
    return [(*text, *draft[:i]) for i in range(len(draft) + 1)]


def write(
    rule: Rule, target: Language, drafter: Language, seed: int, draft_length: int, noise: Callable[[int, int], int]
) -> tuple[int, ...]:
    """A text of `LENGTH` tokens, draft by draft. ``noise``: the seed of the draft at a position."""
    text: tuple[int, ...] = ()
    while len(text) < LENGTH:
        draft: list[int] = []
        for i in range(min(draft_length, LENGTH - len(text))):
            row = drafter.rows([(*text, *draft)])
            draft += draw(row, noise(seed, len(text)), [len(text) + i], Purpose.DRAFT)
        behind = prefixes(text, draft)
        verdict = rule(target.rows(behind), drafter.rows(behind[:-1]), draft, seed, len(text))
        text = (*text, *draft[: verdict.accepted], verdict.token)
    return text[:LENGTH]


def texts_p_value(
    rule: Rule, draft_length: int, sampling: Sampling = OPEN, noise: Callable[[int, int], int] = block_seed
) -> float:
    """How likely texts written by ``rule`` are to have the target's joint distribution."""
    target, drafter = Language(1, 1.2, sampling), Language(2, 1.2, sampling)
    places = {text: place for place, text in enumerate(product(range(SIZE), repeat=LENGTH))}
    counts = np.zeros(len(places))
    for seed in range(SEEDS):
        counts[places[write(rule, target, drafter, seed, draft_length, noise)]] += 1
    return chi_square_p_value(counts, target.joint())


@pytest.mark.parametrize(
    ("draft_length", "sampling"),
    [(4, Sampling(temperature=0.8, top_k=2, top_p=0.7, min_p=0.1)), (2, OPEN), *in_proof([(1, OPEN), (4, OPEN)])],
)
def test_texts_follow_the_targets_joint_distribution(draft_length: int, sampling: Sampling) -> None:
    assert texts_p_value(block, draft_length, sampling) > 1e-4


def keeps_by_share_alone(p: Distributions, q: Distributions, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """A wrong rule: each prefix is kept with its share, whatever could still follow."""
    whole = block(p, q, draft, seed, position)
    for i in range(len(draft), whole.accepted, -1):
        cut = Distributions(p.ids[: i + 1], p.log_probs[: i + 1]), Distributions(q.ids[:i], q.log_probs[:i])
        if (verdict := block(*cut, draft[:i], seed, position)).accepted == i:
            return verdict
    return whole


def test_the_check_notices_a_wrong_rule_and_noise_that_is_used_twice() -> None:
    assert texts_p_value(keeps_by_share_alone, 4) < 1e-6
    assert texts_p_value(block, 4, noise=lambda seed, position: seed) < 1e-4


def accepted(rule: Rule, p: Distributions, q: Distributions, noise: Callable[[int, int], int]) -> float:
    """Tokens accepted on average of drafts drawn from the independent rows of ``q``."""
    total = 0
    for seed in range(SEEDS):
        draft = draw(q, noise(seed, 0), range(len(q.ids)), Purpose.DRAFT)
        total += rule(p, q, draft, seed, 0).accepted
    return total / SEEDS


def test_it_accepts_as_many_tokens_as_the_paper_says() -> None:
    """Its example of two tokens, where rejection accepts 10/9 of two and block verification 11/9."""
    p = Distributions(np.array([[0, 1]] * 3), np.log([[1 / 3, 2 / 3]] * 3))
    q = Distributions(np.array([[0, 1]] * 2), np.log([[2 / 3, 1 / 3]] * 2))
    assert accepted(rejection, p, q, lambda seed, _: seed) == pytest.approx(10 / 9, abs=0.04)
    assert accepted(block, p, q, block_seed) == pytest.approx(11 / 9, abs=0.04)


def test_at_temperature_zero_it_is_equal_or_not() -> None:
    p = distributions(np.eye(3, 12, dtype=np.float32), Sampling(temperature=0))
    q = Distributions(np.array([[0], [5]]), np.zeros((2, 1)))
    assert block(p, q, [0, 5], 1, 0) == Verdict(1, 1)


def test_a_draft_from_the_target_itself_is_kept_whole() -> None:
    p = distributions(np.random.default_rng(3).normal(0, 1.5, (5, 12)).astype(np.float32), OPEN)
    q = Distributions(p.ids[:4], p.log_probs[:4])
    for seed in range(300):
        draft = draw(q, block_seed(seed, 7), range(7, 11), Purpose.DRAFT)
        assert block(p, q, draft, seed, 7).accepted == 4
