"""Draft trees in llama.cpp: each token sees its own path alone, and afterwards nothing of them is left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

from app.engine.decoding.trees import first_chain
from app.engine.llama import backend, checkpoints
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import MAX_DRAFT_LENGTH, LoadSettings
from app.system import Canceled, KnownError
from tests.support.architectures import Architecture, make

CAN: tuple[Architecture, ...] = ("llama", "deepseek2")
CANNOT: tuple[Architecture, ...] = ("gemma3", "qwen35", "lfm2", "mamba")
_LARGEST_ERROR = 1e-3
"""As in ``test_checkpoints``: rounding makes up to 3e-5 in these files, another token in the context 0.1."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[Architecture, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make(folder / f"{name}.gguf", name) for name in (*CAN, *CANNOT)}


@pytest.fixture
def model(request: pytest.FixtureRequest, files: dict[Architecture, Path]) -> Iterator[Model]:
    backend.start()
    model = Model(files[request.param], 0, lambda _: True)
    yield model
    model.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    context = new(model, MAX_DRAFT_LENGTH)
    yield context
    context.close()


def new(model: Model, branches: int) -> Context:
    settings = LoadSettings(batch_size=64, micro_batch_size=64)
    return Context(model, settings, length=512, threads=1, same_kernels=True, branches=branches)


def tree(rng: random.Random, vocabulary: int, most: int) -> tuple[list[int], list[int]]:
    count = rng.randint(1, most)
    parents = [rng.randrange(-1, place) if place else -1 for place in range(count)]
    return [rng.randrange(vocabulary) for _ in range(count)], parents


def path_to(place: int, draft: list[int], parents: list[int]) -> list[int]:
    return [] if place < 0 else [*path_to(parents[place], draft, parents), draft[place]]


@pytest.mark.parametrize("model", CAN, indirect=True)
def test_each_token_sees_its_own_path(context: Context, model: Model) -> None:
    fresh, rng, size = new(model, 0), random.Random(1), model.vocabulary_size
    context.decode([rng.randrange(size) for _ in range(40)], 0)
    for _ in range(25):
        tokens = [rng.randrange(size) for _ in range(rng.randint(1, 3))]
        draft, parents = tree(rng, size, 14)
        before = list(context.tokens)
        logits = context.decode_tree(tokens, draft, parents).copy()
        assert logits.shape == (len(draft) + 1, size)
        chain = first_chain(parents)
        assert context.tokens == [*before, *tokens, *(draft[place] for place in chain)]
        fresh.roll_back(0)
        for start in range(0, len(before), 64):
            fresh.decode(before[start : start + 64], 0)
        for place in rng.sample(range(-1, len(draft)), min(4, len(draft) + 1)):
            path = [*tokens, *path_to(place, draft, parents)]
            expected = fresh.decode(path, 1)[0]
            assert checkpoints._error(logits[place + 1], expected) < _LARGEST_ERROR
            fresh.roll_back(len(before))
        context.roll_back(len(before) + rng.randint(0, len(tokens) + len(chain)))
        if len(context.tokens) > 400:
            context.roll_back(40)
    fresh.close()


@pytest.mark.parametrize("model", CAN, indirect=True)
def test_nothing_of_the_branches_is_left(context: Context, model: Model) -> None:
    """Neither in what the memory says, nor in what later passes compute: those are the same to the last bit."""
    fresh, rng, size = new(model, 0), random.Random(2), model.vocabulary_size
    prompt = [rng.randrange(size) for _ in range(30)]
    for one in (context, fresh):
        one.decode(prompt, 0)
    memory = llama_cpp.llama_get_memory(context.handle)
    for _ in range(12):
        token = rng.randrange(size)
        draft, parents = tree(rng, size, MAX_DRAFT_LENGTH)
        context.decode_tree([token], draft, parents)
        assert all(llama_cpp.llama_memory_seq_pos_max(memory, number) == -1 for number in range(1, 17))
        context.roll_back(len(fresh.tokens) + 1)
        fresh.decode([token, *draft], len(draft) + 1)  # as wide, because rounding may depend on that
        fresh.roll_back(len(context.tokens))
        assert context.tokens == fresh.tokens
        after = rng.randrange(size)
        ours, theirs = (one.decode([after, after], 2).copy() for one in (context, fresh))
        assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
    fresh.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_context_with_a_tree_is_filled_to_its_end(context: Context) -> None:
    for start in range(0, 495, 55):
        context.decode(list(range(start % 50, start % 50 + 55)), 0)
    assert context.length == 512 and len(context.tokens) == 495
    context.decode_tree([1], [2] * 16, [-1] * 16)
    context.roll_back(496)
    with pytest.raises(ValueError, match="do not fit"):
        context.decode_tree([1], [2] * 16, [-1] * 16)
    context.decode_tree([1], [2] * 15, [-1] * 15)
    context.roll_back(496)
    assert len(context.decode([1] * 16, 16)) == 16


@pytest.mark.parametrize("model", ["llama"], indirect=True)
@pytest.mark.parametrize("code", [1, 2, -3])
def test_a_pass_that_fails_leaves_what_was_there(
    context: Context, model: Model, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = new(model, 0)
    for one in (context, fresh):
        one.decode(list(range(20)), 0)
    decode = llama_cpp.llama_decode

    def failing(handle: object, batch: object) -> int:
        decode(handle, batch)
        return code

    with monkeypatch.context() as patch:
        patch.setattr(llama_cpp, "llama_decode", failing)
        with pytest.raises(Canceled if code == 2 else KnownError):
            context.decode_tree([1, 2], [3, 4, 5], [-1, 0, -1])
    assert context.tokens == list(range(20))
    memory = llama_cpp.llama_get_memory(context.handle)
    assert [llama_cpp.llama_memory_seq_pos_max(memory, number) for number in range(3)] == [19, -1, -1]
    ours, theirs = (one.decode([7, 8], 2).copy() for one in (context, fresh))
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))
    fresh.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_branches_that_do_not_go_away_are_noticed(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    context.decode(list(range(20)), 0)
    with monkeypatch.context() as patch:
        patch.setattr(context._memory, "drop", lambda number: number != 2)
        with pytest.raises(KnownError, match="branches"):
            context.decode_tree([1], [2, 3, 4], [-1, -1, -1])
    assert context.tokens == []
    assert np.isfinite(context.decode([1, 2], 1)).all()


@pytest.mark.parametrize("model", CANNOT, indirect=True)
def test_other_memories_have_no_branches(context: Context) -> None:
    assert context.branches == 0
    context.decode(list(range(8)), 0)
    with pytest.raises(ValueError, match="0 are possible"):
        context.decode_tree([1], [2, 3], [-1, -1])
    assert len(context.decode([1, 2], 2)) == 2


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_without_flash_attention_there_are_no_branches(model: Model) -> None:
    """Their logits would differ in the last bits from those without a draft."""
    settings = LoadSettings(flash_attention="off", micro_batch_size=64)
    context = Context(model, settings, length=512, threads=1, branches=MAX_DRAFT_LENGTH)
    assert context.branches == 0
    context.close()


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_copy_of_the_cache_fits_one_without_branches(context: Context, model: Model) -> None:
    context.decode(list(range(20)), 0)
    context.decode_tree([1], [2, 3], [-1, -1])
    fresh = new(model, 0)
    assert fresh.restore(context.save()) and fresh.tokens == context.tokens
    ours, theirs = (one.decode([7], 1).copy() for one in (context, fresh))
    assert checkpoints._error(ours, theirs) < _LARGEST_ERROR
    assert context.restore(fresh.save())
    context.roll_back(20)
    assert context.decode_tree([1], [2, 3], [-1, -1]).shape[0] == 3
    fresh.close()
