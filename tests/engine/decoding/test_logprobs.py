from __future__ import annotations

import numpy as np
import pytest

from app.engine.decoding.sampling import biased, logprobs


def piece(token: int) -> bytes:
    return bytes([97 + token])


def test_probabilities_are_those_of_all_tokens() -> None:
    probabilities = np.array([[0.1, 0.2, 0.4, 0.3], [0.7, 0.1, 0.15, 0.05]])
    logits = (np.log(probabilities) + np.array([[5.0], [-80.0]])).astype(np.float32)
    first, second = logprobs(logits, [1, 0], 3, piece)
    assert [one.id for one in first] == [1, 2, 3, 1] and [one.text for one in second] == [b"a", b"a", b"c", b"b"]
    assert [np.exp(one.logprob) for one in first] == pytest.approx([0.2, 0.4, 0.3, 0.2], rel=1e-5)
    assert [np.exp(one.logprob) for one in second] == pytest.approx([0.7, 0.7, 0.15, 0.1], rel=1e-5)


def test_fewer_tokens_than_rows_and_no_others() -> None:
    (only,) = logprobs(np.zeros((3, 4), np.float32), [2], 0, piece)
    (own,) = only
    assert own.id == 2 and own.logprob == pytest.approx(-np.log(4))


def test_a_bias_leaves_the_rows_as_they_are() -> None:
    logits = np.zeros((2, 4), np.float32)
    assert biased(logits, {}) is logits
    assert biased(logits, {1: 2.0, 3: -100.0}).tolist() == [[0, 2, 0, -100]] * 2
    assert not logits.any()
