from __future__ import annotations

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats, TopLogits, distributions, logits_needed, penalize_rows, top_candidates
from app.protocol.options import Sampling
from app.system import KnownError

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def logits(seed: int, size: int) -> Floats:
    return np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)


def reference(row: Floats, sampling: Sampling) -> np.ndarray:
    """The definition, step by step on the whole sorted vocabulary."""
    order = np.lexsort((np.arange(len(row)), -row))
    kept = order[: sampling.top_k] if sampling.top_k else order
    scores = row[kept].astype(np.float64) / sampling.temperature
    p = np.exp(scores - scores.max())
    p /= p.sum()
    before = np.concatenate([[0.0], np.cumsum(p)[:-1]])
    p = np.where((before < sampling.top_p) | (np.arange(len(p)) == 0), p, 0.0)
    p /= p.sum()
    p = np.where(p >= sampling.min_p * p.max(), p, 0.0)
    dense = np.zeros(len(row))
    dense[kept] = p / p.sum()
    return dense


@pytest.mark.parametrize("size", [7, 361, 4096, 151_936])
@pytest.mark.parametrize("k", [1, 5, 40, 300])
def test_top_candidates_are_those_of_a_full_sort(size: int, k: int) -> None:
    rows = np.stack([logits(size + k + row, size) for row in range(3)])
    expected = [np.lexsort((np.arange(size), -row))[:k].tolist() for row in rows]
    assert top_candidates(rows, k).tolist() == expected


def test_top_candidates_with_many_equal_logits_take_the_lowest_ids() -> None:
    row = np.zeros(150_000, np.float32)
    row[140_000:] = 1.0
    assert top_candidates(row[None, :], 5)[0].tolist() == [140_000, 140_001, 140_002, 140_003, 140_004]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        OPEN,
        Sampling(temperature=1.4, top_k=0, top_p=0.9, min_p=0.0),
        Sampling(temperature=3.0, top_k=0, top_p=0.97, min_p=0.0),
        Sampling(temperature=1.4, top_k=0, top_p=0.9, min_p=0.05),
        Sampling(temperature=1.4, top_k=0, top_p=1.0, min_p=0.05),
        Sampling(temperature=0.5, top_k=12, top_p=1.0, min_p=0.1),
        Sampling(temperature=2.0, top_k=3, top_p=0.1, min_p=0.9),
    ],
)
def test_distributions_follow_the_definition(sampling: Sampling) -> None:
    rows = np.stack([logits(seed, 2000) for seed in range(6)])
    result = distributions(rows, sampling)
    for i, row in enumerate(rows):
        expected = reference(row, sampling)
        assert result.dense(i, 2000) == pytest.approx(expected, abs=1e-6 if sampling is OPEN else 1e-9)
        for token in (int(row.argmax()), 0, 2000):
            assert result.probability(i, token) == result.dense(i, 2001)[token]


def test_temperature_zero_leaves_the_most_likely_token() -> None:
    rows = np.stack([logits(seed, 500) for seed in range(3)])
    result = distributions(rows, Sampling(temperature=0))
    assert result.ids[:, 0].tolist() == rows.argmax(axis=1).tolist()
    assert result.probability(0, int(rows[0].argmax())) == 1.0
    assert result.probability(0, int(rows[0].argmin())) == 0.0


def test_penalties_follow_their_definitions() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.5], np.float32)
    sampling = Sampling(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25, penalty_window=3)
    penalized = penalize_rows(row[None], [3, 0, 0, 1], [], sampling)[0]  # the window leaves token 3 out
    assert penalized.tolist() == [2.0 / 2 - 2 * 0.5 - 0.25, -2.0 * 2 - 0.5 - 0.25, 1.0, 0.5]
    assert row.tolist() == [2.0, -2.0, 1.0, 0.5]


def test_the_rows_of_a_verify_pass_are_penalized_like_single_ones_and_not_in_place() -> None:
    random = np.random.default_rng(4)
    rows = random.normal(size=(6, 50)).astype(np.float32)
    before = rows.copy()
    history, draft = random.integers(0, 60, 30).tolist(), random.integers(0, 60, 5).tolist()
    for window in (1, 2, 8, 29, 30, 31, 34, 35, 40):
        sampling = Sampling(repetition_penalty=1.3, frequency_penalty=0.1, presence_penalty=0.2, penalty_window=window)
        penalized = penalize_rows(rows, history, draft, sampling)
        expected = [penalize_rows(row[None], [*history, *draft[:i]], [], sampling)[0] for i, row in enumerate(rows)]
        assert np.array_equal(penalized, expected) and np.array_equal(rows, before)


def largest(rows: Floats, sampling: Sampling) -> TopLogits:
    """What is needed of ``rows``, and no more; of equal logits at its end, those with the highest ids."""
    needed = logits_needed(sampling)
    assert needed is not None
    ids = np.array([np.lexsort((-np.arange(rows.shape[1]), -row))[:needed] for row in rows])
    return TopLogits.sorted(ids, np.take_along_axis(rows, ids, axis=1))


LOWERING = [
    Sampling(top_k=5),
    Sampling(temperature=0.0),
    Sampling(temperature=1.0, top_k=5, top_p=0.9, min_p=0.0, presence_penalty=1.5, penalty_window=12),
    Sampling(temperature=1.0, top_k=20, top_p=1.0, min_p=0.0, frequency_penalty=3.0, penalty_window=7),
    Sampling(temperature=0.0, repetition_penalty=4.0, presence_penalty=2.0, penalty_window=30),
]


@pytest.mark.parametrize("sampling", LOWERING, ids=str)
def test_the_largest_logits_give_the_distributions_of_whole_rows(sampling: Sampling) -> None:
    random = np.random.default_rng(9)
    for _ in range(200):
        rows = random.normal(0, 4, (4, 400)).astype(np.float32)
        likely = np.argsort(-rows[0])[:40]  # penalties that change nothing would show nothing
        history, draft = random.choice(likely, 40).tolist(), random.choice(likely, 3).tolist()
        p = distributions(penalize_rows(largest(rows, sampling), history, draft, sampling), sampling)
        q = distributions(penalize_rows(rows, history, draft, sampling), sampling)
        assert np.array_equal(p.ids, q.ids) and np.array_equal(p.log_probs, q.log_probs)


def test_of_equal_logits_the_lowest_ids_are_kept_where_all_are_known() -> None:
    rows = np.array([[5, 1, 5, 5, 7, 1, 5, 0]], np.float32)
    top = TopLogits.sorted(np.array([[6, 4, 3, 0, 2]]), rows[:, [6, 4, 3, 0, 2]])
    for k in range(1, 6):
        sampling = Sampling(temperature=1.0, top_k=k, top_p=1.0, min_p=0.0)
        assert distributions(top, sampling).ids.tolist() == distributions(rows, sampling).ids.tolist()
    assert distributions(top, Sampling(temperature=0.0)).ids.tolist() == [[4]]


@pytest.mark.parametrize(
    "sampling",
    [
        OPEN,
        Sampling(top_k=0),
        Sampling(repetition_penalty=0.9),
        Sampling(presence_penalty=-0.1, frequency_penalty=1.0),
        Sampling(temperature=0.0, frequency_penalty=-1.0),
    ],
    ids=str,
)
def test_sampling_that_needs_whole_rows(sampling: Sampling) -> None:
    assert logits_needed(sampling) is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_largest_logits_that_are_no_numbers_are_a_known_error(temperature: float, value: float) -> None:
    values = np.zeros((2, 64), np.float32)
    values[1, 7] = value
    with pytest.raises(KnownError, match="produces invalid numbers"):
        distributions(TopLogits.sorted(np.arange(128).reshape(2, 64), values), Sampling(temperature=temperature))
