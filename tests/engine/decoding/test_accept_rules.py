from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.engine.decoding.accept_rules import (
    Purpose,
    Verdict,
    coupled,
    draw,
    gumbel,
    rejection,
    sample,
    uniform,
    with_noise,
)
from app.engine.decoding.sampling import Distributions, TopLogits, distributions
from app.protocol.options import Sampling
from app.system import KnownError
from tests.support.matrix import in_proof
from tests.support.statistics import chi_square_p_value

SIZE = 12
DRAWS = 20_000
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def some(seed: int, rows: int = 1, sampling: Sampling = PLAIN) -> Distributions:
    return distributions(np.random.default_rng(seed).normal(0, 1.5, (rows, SIZE)).astype(np.float32), sampling)


def test_noise_is_a_function_of_seed_position_purpose_and_token() -> None:
    ids = np.arange(5)[None, :]
    base = gumbel(1, [7], ids)
    assert (gumbel(1, [7], ids) == base).all()
    assert (gumbel(1, [7], ids[:, ::-1])[:, ::-1] == base).all()
    for other in (gumbel(2, [7], ids), gumbel(1, [8], ids), gumbel(1, [7], ids, Purpose.DRAFT)):
        assert not (other == base).any()


def test_uniform_numbers_are_uniform_and_purposes_independent() -> None:
    accept = np.array([uniform(3, i, Purpose.ACCEPT) for i in range(DRAWS)])
    residual = np.array([uniform(3, i, Purpose.RESIDUAL) for i in range(DRAWS)])
    assert chi_square_p_value(np.histogram(accept, 20, (0, 1))[0], np.full(20, 0.05)) > 1e-4
    assert abs(np.corrcoef(accept, residual)[0, 1]) < 0.03
    assert abs(np.corrcoef(accept[1:], accept[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("sampling", [PLAIN, Sampling(temperature=0.7, top_k=6, top_p=0.9, min_p=0.02)])
def test_draws_follow_the_distribution(sampling: Sampling) -> None:
    p = some(0, sampling=sampling)
    many = Distributions(p.ids.repeat(DRAWS, 0), p.log_probs.repeat(DRAWS, 0))
    tokens = draw(many, 1, range(DRAWS))
    assert chi_square_p_value(np.bincount(tokens, minlength=SIZE), p.dense(0, SIZE)) > 1e-4


def test_noise_of_different_tokens_is_independent() -> None:
    ids = np.array([[5, 5 + 4096, 5 + 2 * 4096, 6]])
    noise = gumbel(1, range(DRAWS), ids.repeat(DRAWS, 0))
    uniforms = np.exp(-np.exp(-noise))  # the Gumbel distribution function
    cells = np.floor(uniforms * 4).astype(int)
    for other in (1, 2, 3):
        together = np.bincount(cells[:, 0] * 4 + cells[:, other], minlength=16)
        assert chi_square_p_value(together, np.full(16, 1 / 16)) > 1e-4


@pytest.mark.parametrize(
    "sampling",
    [
        PLAIN,
        Sampling(),
        Sampling(temperature=0),
        Sampling(temperature=1.5, top_p=1.0, min_p=0.0),
        Sampling(temperature=2.0, top_k=12, top_p=0.5, min_p=0.0),
        Sampling(temperature=0.9, top_p=0.0, min_p=0.3),
        Sampling(temperature=0.9, top_k=65),
    ],
)
def test_a_sample_is_a_draw_from_the_distributions(sampling: Sampling) -> None:
    logits = np.random.default_rng(5).normal(0, 4, (3, 20_000)).astype(np.float32)
    assert list(sample(logits, sampling, 1, 7)) == draw(distributions(logits, sampling), 1, [7, 8, 9])
    logits[1, 9] = np.nan
    with pytest.raises(KnownError, match="produces invalid numbers"):
        list(sample(logits, sampling, 1, 7))


@pytest.mark.parametrize("sampling", [PLAIN, Sampling(), Sampling(temperature=0)])
def test_a_picked_logit_that_is_no_number_is_noticed(sampling: Sampling) -> None:
    top = TopLogits.sorted(np.array([[3, 5, 9]]), np.array([[2.0, np.nan, 1.0]], np.float32))
    with pytest.raises(KnownError, match="produces invalid numbers"):
        next(sample(top, sampling, 1, 7))


def test_coupled_accepts_exactly_what_the_target_would_have_written() -> None:
    p = some(1, rows=4)
    own = draw(p, 9, range(20, 24))
    assert coupled(own, own[:3]) == Verdict(3, own[3])
    wrong = (own[1] + 1) % SIZE
    assert coupled(own, [own[0], wrong, own[2]]) == Verdict(1, own[1])


Rule = Callable[[Distributions, Distributions, list[int], int, int], Verdict]


def accepts_too_easily(p: Distributions, q: Distributions, draft: list[int], seed: int, position: int) -> Verdict:
    """A deliberately wrong rule: it accepts with min(1, 2p/q)."""
    for i, token in enumerate(draft):
        chance = 2 * p.probability(i, token) / q.probability(i, token)
        if uniform(seed, position + i, Purpose.ACCEPT) >= chance:
            return rejection(p, q, draft, seed, position)
    return Verdict(len(draft), draw(p, seed, [position])[0])


def resamples_from_the_target(
    p: Distributions, q: Distributions, draft: list[int], seed: int, position: int
) -> Verdict:
    """Another wrong rule: the rejected token is replaced by a draw from p instead of the residual."""
    verdict = rejection(p, q, draft, seed, position)
    if verdict.accepted == len(draft):
        return verdict
    row = Distributions(p.ids[verdict.accepted : verdict.accepted + 1], p.log_probs[verdict.accepted :][:1])
    return Verdict(verdict.accepted, draw(row, seed, [position], Purpose.RESIDUAL)[0])


def written(rule: Rule, sampling: Sampling, draws: int = 10_000) -> list[float]:
    """The p-values of the tokens that ``rule`` lets through at each position behind a draft of two tokens."""
    p, q = some(4, rows=3, sampling=sampling), some(5, rows=2, sampling=sampling)
    counts = np.zeros((3, SIZE))
    for seed in range(draws):
        draft = draw(q, seed, [0, 1], Purpose.DRAFT)
        verdict = rule(p, q, draft, seed, 0)
        for position, token in enumerate([*draft[: verdict.accepted], verdict.token]):
            counts[position, token] += 1
    return [chi_square_p_value(counts[position], p.dense(position, SIZE)) for position in range(3)]


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.3, top_k=5, top_p=0.95, min_p=0.05), *in_proof([PLAIN])])
def test_rejection_follows_the_targets_distribution(sampling: Sampling) -> None:
    assert min(written(rejection, sampling)) > 1e-4


def test_rejection_at_temperature_zero_is_equal_or_not() -> None:
    p = distributions(np.eye(3, SIZE, dtype=np.float32), Sampling(temperature=0))
    q = Distributions(np.array([[0], [5]]), np.zeros((2, 1)))
    assert rejection(p, q, [0, 5], 1, 0) == Verdict(1, 1)


@pytest.mark.parametrize("wrong", [resamples_from_the_target, *in_proof([accepts_too_easily])])
def test_the_check_notices_a_wrong_rule(wrong: Rule) -> None:
    assert written(wrong, PLAIN)[0] < 1e-6


def test_rejection_of_a_draft_from_the_target_itself_accepts_everything() -> None:
    p = some(6, rows=4)
    q = Distributions(p.ids[:3], p.log_probs[:3])
    for seed in range(500):
        draft = draw(q, seed, [0, 1, 2], Purpose.DRAFT)
        assert rejection(p, q, draft, seed, 0).accepted == 3


@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0, 30.0])
def test_the_two_best_of_a_large_vocabulary_are_found_without_all_its_noise(spread: float) -> None:
    random = np.random.default_rng(3)
    for position in range(40):
        scores = random.normal(0, spread, 40_000).astype(np.float32)
        p = Distributions(np.arange(40_000)[None], scores[None], whole=True)
        ids, found = with_noise(p, 7, position)
        noisy = scores + gumbel(7, [position], p.ids)[0]
        assert np.allclose(found, noisy[ids], rtol=1e-12, atol=0)
        assert set(np.argsort(-noisy)[:2]) == set(ids[np.argsort(-found)[:2]])
        assert spread == 0.0 or len(ids) < 20_000
