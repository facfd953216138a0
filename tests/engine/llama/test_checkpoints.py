"""What a memory holds after roll-backs is what it is said to hold: compared with one that was never rolled back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

from app.engine.llama import backend, checkpoints
from app.engine.llama.checkpoints import Bytes, Memory, try_out
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.options import MAX_DRAFT_LENGTH, LoadSettings
from app.system import KnownError
from tests.support.architectures import Architecture, make
from tests.support.matrix import in_proof

ALL: tuple[Architecture, ...] = ("qwen35", "lfm2", "granitehybrid", "mamba", "gemma3", "deepseek2", "llama")
WITH_RUNNING_STATE: tuple[Architecture, ...] = ("qwen35", "lfm2", "granitehybrid", "mamba")
WITH_SNAPSHOTS: tuple[Architecture, ...] = ("qwen35", "lfm2")
_LARGEST_ERROR = 1e-3
"""Rounding makes up to 3e-5 here, a lost token of a sliding window 0.1, a wrong running state 1 and more."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[Architecture, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: make(folder / f"{name}.gguf", name) for name in ALL}


@pytest.fixture
def model(request: pytest.FixtureRequest, files: dict[Architecture, Path]) -> Iterator[Model]:
    backend.start()
    model = Model(files[request.param], 0, lambda _: True)
    yield model
    model.close()


def new_context(model: Model, snapshots: int = 0) -> Context:
    return Context(model, LoadSettings(batch_size=64, micro_batch_size=64), length=2048, threads=1, snapshots=snapshots)


def error_against_fresh(context: Context, fresh: Context, token: int) -> float:
    """How far the logits behind ``token`` are from those of a memory that was only ever fed what ``context`` holds."""
    tokens = list(context.tokens)
    fresh.clear()
    for start in range(0, len(tokens), fresh.chunk):
        fresh.decode(tokens[start : start + fresh.chunk], 0)
    return checkpoints._error(context.decode([token], 1)[0], fresh.decode([token], 1)[0])


@pytest.mark.parametrize(
    ("model", "snapshots", "in_place"),
    [
        ("gemma3", 0, False),
        ("qwen35", 3, True),
        ("mamba", 0, False),
        ("lfm2", 16, False),
        *in_proof((name, 0, False) for name in ALL if name not in ("gemma3", "mamba")),
        *in_proof((name, 3, False) for name in WITH_SNAPSHOTS),
        *in_proof((name, 0, True) for name in WITH_RUNNING_STATE),
    ],
    indirect=["model"],
)
def test_whatever_is_fed_and_taken_back(model: Model, snapshots: int, in_place: bool) -> None:
    context, fresh, dice = new_context(model, snapshots), new_context(model), random.Random(snapshots)
    assert context.checkpoints.snapshots == snapshots
    context.checkpoints.copies_in_place = in_place
    exact = 0

    def draw(count: int) -> list[int]:
        return [dice.randrange(3, 500) for _ in range(count)]

    for _ in range(400):
        length = len(context.tokens)
        match dice.choice(["feed", "guess", "guess", "cut", "jump", "remember"]) if length < 1200 else "jump":
            case "feed":
                context.decode(draw(dice.choice([1, 2, 30, 64])), 0)
            case "guess":  # a verify pass, or a draft and what was right of it
                guesses = dice.randrange(MAX_DRAFT_LENGTH + 1)
                context.hold(guesses)
                context.decode(draw(guesses + 1), guesses + 1)
                known = length + 1 + dice.randrange(guesses + 1)
                context.roll_back(known)
                assert length <= len(context.tokens) <= known
                exact += len(context.tokens) == known
            case "cut":
                context.roll_back(max(length - dice.randrange(6), 0))
            case "jump":
                context.roll_back(dice.randrange(length + 1))
            case _:
                context.remember()
        if context.tokens and dice.random() < 0.2:
            assert error_against_fresh(context, fresh, dice.randrange(3, 500)) < _LARGEST_ERROR
    assert exact > (50 if snapshots or not model.has_running_state else 5)
    context.close()
    fresh.close()


@pytest.mark.parametrize("model", [name for name in ALL if name != "llama"], indirect=True)
@pytest.mark.parametrize("snapshots", [0, 3])
def test_every_memory_can_take_the_longest_draft_back(model: Model, snapshots: int) -> None:
    context = new_context(model, snapshots)
    assert try_out(context, context.checkpoints, model.vocabulary_size).longest_draft == MAX_DRAFT_LENGTH
    assert context.tokens == [] and context.checkpoints.can_restore and context.checkpoints.can_cut
    context.close()


def cut_deeper(memory: Memory, length: int) -> bool:
    """Succeeds and leaves a state from before."""
    return bool(llama_cpp.llama_memory_seq_rm(memory._memory, 0, max(length - 1, 0), -1))


def copy_nothing_new(memory: Memory, into: Bytes, flags: int) -> bool:
    """Every checkpoint is the first one."""
    if not hasattr(memory, "first"):
        assert real_copy_out(memory, into, flags)
        memory.first = into.copy()  # type: ignore[attr-defined]
    into[:] = memory.first  # type: ignore[attr-defined]
    return True


real_copy_out, real_copy_back = Memory.copy_out, Memory.copy_back


@pytest.mark.parametrize("model", ["mamba", *in_proof(["granitehybrid"])], indirect=True)
def test_checkpoints_that_do_not_work_are_found_out(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    context = new_context(model)
    context.decode([1, 2], 0)
    monkeypatch.setattr(Memory, "copy_out", copy_nothing_new)
    context.remember()
    context.clear()
    assert try_out(context, context.checkpoints, model.vocabulary_size).longest_draft == 0
    monkeypatch.undo()
    context.decode([1, 2, 3, 4], 0)
    context.hold(4)
    context.remember()
    context.decode([5, 6], 0)
    context.roll_back(5)
    assert context.tokens == []  # nothing is believed any more
    context.close()


@pytest.mark.parametrize("model", ["qwen35", "lfm2", "gemma3"], indirect=True)
def test_cuts_that_leave_another_state_are_found_out(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    context = new_context(model, 5)
    monkeypatch.setattr(Memory, "cut", cut_deeper)
    assert try_out(context, context.checkpoints, model.vocabulary_size).longest_draft == 0
    context.close()


@pytest.mark.parametrize("model", ALL, indirect=True)
def test_a_pass_that_fails_leaves_what_was_there_or_nothing_of_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, fresh = new_context(model, 3), new_context(model)
    context.decode(list(range(20, 70)), 0)
    context.remember()
    context.decode(list(range(70, 80)), 0)
    with monkeypatch.context() as failing:
        decode = llama_cpp.llama_decode
        failing.setattr(llama_cpp, "llama_decode", lambda *arguments: decode(*arguments) or 3)
        with pytest.raises(KnownError):
            context.decode([5] * 4, 1)
    assert context.tokens == list(range(20, 80))[: 50 if model.has_running_state else 60]
    assert np.isfinite(error := error_against_fresh(context, fresh, 7)) and error < _LARGEST_ERROR
    context.close()
    fresh.close()
