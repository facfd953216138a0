"""Logits that llama.cpp picks, against whole rows of the same passes. The CPU can do it, too, if it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from unittest.mock import patch

import llama_cpp
import numpy as np
import pytest

from app.engine.decoding.sampling import Floats, Logits, TopLogits, distributions, logits_needed, penalize_rows
from app.engine.llama import backend
from app.engine.llama import context as top_k
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import ALL_LAYERS, LoadSettings, Sampling
from tests.support.gguf_files import make_model
from tests.support.matrix import in_proof

SIZE = 8192
WIDTH = 6
QWEN = Sampling(temperature=0.7, top_k=20, top_p=0.8, min_p=0.0, presence_penalty=1.5)
SAMPLINGS = [
    Sampling(temperature=0.8),
    Sampling(temperature=0.0),
    Sampling(temperature=1.3, top_k=1, min_p=0.0),
    Sampling(temperature=1.0, top_k=63, top_p=1.0, min_p=0.0),
    Sampling(temperature=1.0, top_k=127, top_p=0.99, min_p=0.0),
    QWEN,
    Sampling(temperature=0.8, repetition_penalty=1.3, frequency_penalty=0.2, penalty_window=16),
    Sampling(temperature=0.0, repetition_penalty=2.0, presence_penalty=5.0),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """On a GPU if there is one."""
    backend.start()
    path = make_model(tmp_path_factory.mktemp("top-k") / "target.gguf", vocab_size=SIZE, context_length=2048)
    with closing(Model(path, ALL_LAYERS, lambda _: True)) as loaded:
        yield loaded


@pytest.fixture
def picking(model: Model) -> Iterator[Context]:
    with closing(picking_context(model)) as context:
        yield context


@pytest.fixture
def whole(model: Model) -> Iterator[Context]:
    with closing(context_of(model)) as context:
        yield context


def context_of(model: Model) -> Context:
    return Context(model, LoadSettings(), length=1024, threads=1)


def picking_context(model: Model) -> Context:
    """One that picks, as with a large vocabulary on a GPU."""
    with patch.object(top_k, "pays", lambda _: True):
        return context_of(model)


def both(picking: Context, whole: Context, tokens: list[int], count: int | None) -> tuple[Logits, Floats]:
    """The same pass in both."""
    outputs = min(len(tokens), WIDTH)
    return picking.decode_largest(tokens, outputs, count), whole.decode(tokens, outputs)


def assert_largest(top: Logits, rows: Floats, count: int) -> None:
    """That they are the ``count`` largest of each row, at least, with their ids, the largest first."""
    assert isinstance(top, TopLogits) and top.values.dtype == np.float32
    assert len(top) == len(rows) and top.ids.shape[1] >= count
    assert (np.diff(top.values, axis=1) <= 0).all()
    assert np.array_equal(np.take_along_axis(rows, top.ids, axis=1), top.values)
    left = rows.copy()
    np.put_along_axis(left, top.ids, -np.inf, axis=1)
    assert (left.max(axis=1) <= top.values.min(axis=1)).all()


def test_of_every_pass_the_largest_logits(picking: Context, whole: Context) -> None:
    random = np.random.default_rng(5)
    for width in (1, WIDTH, WIDTH, 17, 1, 3, 40, 1):
        tokens = random.integers(0, SIZE, width).tolist()
        assert_largest(*both(picking, whole, tokens, 40), 41)
        assert picking.tokens == whole.tokens


def test_whole_rows_where_they_are_asked_for_and_picked_ones_after_them(picking: Context, whole: Context) -> None:
    assert_largest(*both(picking, whole, [3, 4], 40), 41)
    assert np.array_equal(picking.decode([5, 6], 2), whole.decode([5, 6], 2))
    for count in (None, 128, SIZE // 2):  # more than are picked
        top, rows = both(picking, whole, [1, 2, 3], count)
        assert isinstance(top, np.ndarray) and np.array_equal(top, rows)
    for count in (40, 127, 1):
        assert_largest(*both(picking, whole, [8, 9, 10], count), count + 1)


def test_a_device_without_the_operation_gives_whole_rows(
    model: Model, whole: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without k, llama.cpp's sampler does nothing, which is what it makes of one whose operations are missing.
    sampler = llama_cpp.llama_sampler_init_top_k
    monkeypatch.setattr(llama_cpp, "llama_sampler_init_top_k", lambda _: sampler(0))
    with closing(picking_context(model)) as picking:
        for tokens in ([1, 2, 3], [4], [5, 6, 7, 8, 9, 10]):
            top, rows = both(picking, whole, tokens, 40)
            assert isinstance(top, np.ndarray) and np.array_equal(top, rows)


@pytest.mark.parametrize("sampling", [QWEN, *in_proof(one for one in SAMPLINGS if one is not QWEN)], ids=str)
def test_the_same_distributions_to_the_last_bit(picking: Context, whole: Context, sampling: Sampling) -> None:
    random = np.random.default_rng(7)
    history: list[int] = random.integers(0, SIZE, 80).tolist()
    for context in (picking, whole):
        context.decode(history, 0)
    for _ in range(20):
        draft = random.integers(0, SIZE, WIDTH - 1).tolist()
        tokens = [int(random.integers(0, SIZE)), *draft]
        history.append(tokens[0])
        top, rows = both(picking, whole, tokens, logits_needed(sampling))
        assert isinstance(top, TopLogits)
        history[-40:] = top.ids[0, :40].tolist()  # the likely tokens are those that are penalized
        p = distributions(penalize_rows(top, history, draft, sampling), sampling)
        q = distributions(penalize_rows(rows, history, draft, sampling), sampling)
        assert np.array_equal(p.ids, q.ids) and np.array_equal(p.log_probs, q.log_probs)
        for context in (picking, whole):
            context.roll_back(80)
