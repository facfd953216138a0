"""The cache of an MTP head: whatever its target does, it is as if only the target's present tokens had been read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.llama import head as heads
from app.engine.llama.context import Context
from app.engine.llama.head import Head
from app.engine.llama.model import Model
from app.protocol.options import LoadSettings
from tests.support.mtp_models import ARCHITECTURES, HeadArchitecture, make_random_model

Models = dict[HeadArchitecture, Path]
TOKENS = np.random.default_rng(3).integers(260, 380, 400).tolist()


@pytest.fixture(scope="session")
def attentive_models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Models to whose heads every earlier cell matters."""
    folder = tmp_path_factory.mktemp("attentive")
    return {name: make_random_model(folder / f"{name}.gguf", name, head_writes=2.0) for name in ARCHITECTURES}


@pytest.fixture(params=ARCHITECTURES)
def cached(
    attentive_models: Models, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Context, Head]]:
    """A target's cache and its head's, in which hidden states are soon dropped."""
    monkeypatch.setattr(heads, "WAITING_STATES_BYTES", 0)
    small = LoadSettings(batch_size=32, micro_batch_size=32)
    model = Model(attentive_models[request.param], 0, lambda _: True, with_head=True)
    target = Context(model, small, length=512, threads=1)
    head = target.head = Head(target, model, small)
    yield target, head
    head.close()
    target.close()
    model.close()


def assert_near(one: Floats, other: Floats) -> None:
    """Both are the same up to rounding."""
    assert np.mean(np.square(one - other)) < 1e-4 * np.var(other)


def feed(target: Context, tokens: Sequence[int]) -> None:
    """Let the target process what it lacks of ``tokens``, in chunks."""
    while (held := len(target.tokens)) < len(tokens):
        target.decode(tokens[held : held + 32], 0)


def prediction(head: Head, tokens: Sequence[int]) -> Floats:
    """The head's logits after ``tokens``, of which the target has all but the last."""
    logits: Floats = head.decode(tokens[len(head.tokens) :], 1)[0].copy()
    return logits


def expected(cached: tuple[Context, Head], tokens: Sequence[int]) -> Floats:
    """`prediction` after nothing else has happened."""
    target, head = cached
    target.clear()
    feed(target, tokens[:-1])
    head.catch_up(target.tokens)
    return prediction(head, tokens)


def test_a_copy_goes_on_as_if_nothing_had_happened(cached: tuple[Context, Head]) -> None:
    target, head = cached
    feed(target, TOKENS[:60])
    state = target.save()
    target.clear()
    feed(target, TOKENS[100:180])
    assert target.restore(state)
    assert (target.tokens, head.tokens) == (TOKENS[:60], TOKENS[:60])
    assert_near(prediction(head, TOKENS[:61]), expected(cached, TOKENS[:61]))
