"""The cache of an MTP head: whatever its target does, it is as if only the target's present tokens had been read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.llama import head as heads
from app.engine.llama.context import Context
from app.engine.llama.head import HISTORY, Head, States
from app.engine.llama.model import Model
from app.engine.llama.shared_head import SharedHead
from app.protocol.options import LoadSettings
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.matrix import in_proof
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


def test_hidden_states_are_moved_once_for_many_tokens() -> None:
    states, moves = States(100, 3), 0
    for position in range(1000):
        first = states.first
        states.append(position, np.full((1, 3), position, np.float32))
        moves += states.first != first
        assert states.end == position + 1
        assert states.end - states.first >= min(position + 1, 50)
        assert states.between(states.first, states.end)[:, 0].tolist() == list(range(states.first, states.end))
    assert 0 < moves <= 20
    states.append(1000, np.zeros((100, 3), np.float32))
    assert (states.first, states.end) == (1000, 1100)


def test_a_head_that_reads_its_targets_cache_keeps_only_the_last_hidden_states(tmp_path: Path) -> None:
    """The whole context of the target's would otherwise be copied, and kept."""
    models = [
        Model(path, 0, lambda _: True, with_head=True)
        for path in (make_gemma4(tmp_path / "t.gguf"), make_assistant(tmp_path / "mtp.gguf"))
    ]
    target = Context(models[0], LoadSettings(), length=1024, threads=1)
    head = target.head = SharedHead(target, models[1], LoadSettings())
    try:
        target.decode(TOKENS, 0)
        assert (head._states.first, head._states.end) == (len(TOKENS) - HISTORY, len(TOKENS))
        assert len(head._states._rows) == 2 * HISTORY and len(head._inputs) == 1
        last = head._states.between(len(TOKENS) - 1, len(TOKENS)).copy()
        target.clear()
        target.decode(TOKENS[:-1], 0)
        target.decode(TOKENS[-1:], 0)
        assert_near(last, head._states.between(len(TOKENS) - 1, len(TOKENS)))
    finally:
        head.close()
        target.close()
        for model in models:
            model.close()


def test_it_reads_along_in_chunks(cached: tuple[Context, Head]) -> None:
    target, head = cached
    feed(target, TOKENS[:100])
    assert head.tokens == TOKENS[:96]
    head.catch_up(target.tokens)
    assert head.tokens == TOKENS[:100]


@pytest.mark.parametrize("waiting", [40, *in_proof([64, 100, 200])])
def test_so_many_tokens_wait_as_there_is_room_for(
    cached: tuple[Context, Head], monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    first = cached[1]
    monkeypatch.setattr(heads, "WAITING_STATES_BYTES", waiting * 8 * first.model.state_width)
    target = cached[0]
    head = target.head = Head(target, first.model, LoadSettings(batch_size=32, micro_batch_size=32))
    try:
        for end in range(32, 300, 32):
            feed(target, TOKENS[:end])
            assert len(TOKENS[:end]) - len(head.tokens) < waiting
            assert len(head.tokens) in (0, *range(end - waiting + 1, end - waiting + 1 + 32))
        feed(target, TOKENS[:300])
        head.catch_up(target.tokens)
        assert head.tokens == TOKENS[:300]
        assert_near(prediction(head, TOKENS[:301]), expected((target, head), TOKENS[:301]))
    finally:
        head.close()


def test_a_copy_goes_on_as_if_nothing_had_happened(cached: tuple[Context, Head]) -> None:
    target, head = cached
    feed(target, TOKENS[:60])
    state = target.save()
    target.clear()
    feed(target, TOKENS[100:180])
    assert target.restore(state)
    assert (target.tokens, head.tokens) == (TOKENS[:60], TOKENS[:60])
    assert_near(prediction(head, TOKENS[:61]), expected(cached, TOKENS[:61]))


def test_a_copy_without_a_part_of_the_head_leaves_it_empty(cached: tuple[Context, Head]) -> None:
    target, head = cached
    target.head = None
    feed(target, TOKENS[:60])
    state = target.save()
    target.head = head
    target.clear()
    assert target.restore(state)
    assert (target.tokens, head.tokens) == (TOKENS[:60], [])
    feed(target, TOKENS[:64])
    prediction(head, TOKENS[:65])


@pytest.mark.parametrize("cached", ["glm4moe"], indirect=True)
def test_where_its_hidden_state_is_gone_one_token_more_is_processed(cached: tuple[Context, Head]) -> None:
    target, head = cached
    feed(target, TOKENS[:120])
    assert target.restore(target.save())
    assert target.reach(50) == 49
    target.roll_back(50)
    assert (target.tokens, head.tokens) == (TOKENS[:49], TOKENS[:50])
    feed(target, TOKENS[:60])
    assert_near(prediction(head, TOKENS[:61]), expected(cached, TOKENS[:61]))


@pytest.mark.parametrize("cached", ["qwen35"], indirect=True)
def test_a_checkpoint_has_its_hidden_state(cached: tuple[Context, Head]) -> None:
    target, head = cached
    feed(target, TOKENS[:40])
    target.remember()
    feed(target, TOKENS[:300])
    assert target.reach(50) == 40
    target.roll_back(40)
    assert (target.tokens, head.tokens) == (TOKENS[:40], TOKENS[:40])
    assert_near(prediction(head, TOKENS[:41]), expected(cached, TOKENS[:41]))


def test_another_text_after_going_back_is_read_anew(cached: tuple[Context, Head]) -> None:
    """Even where the target went back further than it was told to, because it can only go back to a checkpoint."""
    target, head = cached
    feed(target, TOKENS[:40])
    target.remember()
    feed(target, TOKENS[:300])
    target.roll_back(50)
    assert head.tokens == TOKENS[:50]
    other = [*target.tokens, *TOKENS[300:330]]
    feed(target, other)
    assert head.tokens == target.tokens[: len(head.tokens)]
    assert_near(prediction(head, [*other, 300]), expected(cached, [*other, 300]))


def test_what_was_accepted_of_a_draft_is_processed_again(cached: tuple[Context, Head]) -> None:
    """The cells of a draft come from hidden states of the head's own."""
    target, head = cached
    feed(target, TOKENS[:40])
    for end in range(41, 45):
        prediction(head, TOKENS[:end])
    assert len(head.tokens) == 44
    target.decode(TOKENS[40:44], 0)
    assert head.tokens == TOKENS[:41]
    assert_near(prediction(head, TOKENS[:45]), expected(cached, TOKENS[:45]))
