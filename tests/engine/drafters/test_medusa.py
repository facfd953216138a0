"""Medusa heads: paired with the right hidden state they are always right; files that aren't heads cost nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.decoding.sampling import Floats
from app.engine.drafters.medusa import _likeliest
from app.engine.drafters.tree import Ranked
from app.engine.host.engine import Engine
from app.engine.host.medusa_files import read_tensors
from app.engine.llama.context import Context
from app.protocol.commands import Load
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings, Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, ask, assert_same, assert_sums_close, run
from tests.support.gguf_files import CHATML_TEMPLATE, make_model
from tests.support.medusa_files import make_medusa, table_heads, write_safetensors
from tests.support.mtp_models import SIZE, make_table_model

HOT = Sampling(temperature=1.5, top_k=0, top_p=1.0)
Asked = Callable[..., PairLoaded]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table_model(tmp_path_factory.mktemp("model") / "target.gguf", "glm4moe")


@pytest.fixture
def asked(engine: Engine, target: Path) -> Asked:
    """Load the target with the Medusa heads in a file."""

    def load(path: Path | None, branches: int = 0) -> PairLoaded:
        settings = LoadSettings(context_length=512, micro_batch_size=32, threads=1, branches=branches)
        medusa = str(path) if path else None
        return engine.load(
            Load(request=1, target=str(target), head="off", medusa=medusa, settings=settings), lambda _: None
        )

    return load


@pytest.mark.parametrize("branches", [0, 5])
@pytest.mark.parametrize("options", [{}, {"prefix": ""}])
def test_heads_that_know_the_text_are_always_right(
    engine: Engine, asked: Asked, tmp_path: Path, branches: int, options: dict[str, Any]
) -> None:
    pair = asked(make_medusa(tmp_path / "heads", **options), branches)
    assert pair.medusa_refused is None and "medusa" in pair.all_drafters
    for sampling in (GREEDY, HOT):
        for prompt in ("Well?", "a longer question than fits into a single chunk. " * 3):
            command = ask(prompt, drafter="medusa", draft_length=3, sampling=sampling, max_tokens=41)
            answer = run(engine, command)
            assert_same(
                engine, command, answer, run(engine, ask(prompt, draft_length=0, sampling=sampling, max_tokens=41))
            )
            assert_sums_close(answer)
            draft = answer.finished.figures.draft
            assert (draft.tested, draft.accepted, draft.verify_passes) == (30, 30, 10)


@pytest.mark.parametrize("ahead", [1, 3])
def test_heads_for_another_place_are_always_wrong(engine: Engine, asked: Asked, tmp_path: Path, ahead: int) -> None:
    asked(make_medusa(tmp_path / "heads", ahead=ahead))
    answer = run(engine, ask("Well?", drafter="medusa", draft_length=3, sampling=GREEDY, max_tokens=20))
    draft = answer.finished.figures.draft
    assert draft.tested > 40 and draft.accepted == 0


def test_a_reduced_vocabulary(engine: Engine, asked: Asked, tmp_path: Path) -> None:
    """The heads are right where it has the token."""
    asked(make_medusa(tmp_path / "heads", reduced=True))
    command = ask("Well?", drafter="medusa", draft_length=1, sampling=GREEDY, max_tokens=60)
    answer = run(engine, command)
    assert_same(engine, command, answer, run(engine, ask("Well?", draft_length=0, sampling=GREEDY, max_tokens=60)))
    known = set(table_heads(reduced=True)["d2t"].tolist())
    place, expected = 0, 0
    while place < len(answer.token_ids) - 2:
        hit = answer.token_ids[place + 1] in known
        expected += hit
        place += 1 + hit
    assert answer.finished.figures.draft.accepted == expected > 5


def test_after_a_stop_and_in_another_turn(engine: Engine, asked: Asked, tmp_path: Path) -> None:
    asked(make_medusa(tmp_path / "heads"))
    command = ask("Well?", drafter="medusa", draft_length=3, sampling=GREEDY, max_tokens=33)
    plain = run(engine, ask("Well?", draft_length=0, sampling=GREEDY, max_tokens=33))
    stopped = run(engine, command, cancel_after=3)
    assert stopped.finished.finish_reason == "cancelled"
    assert stopped.token_ids == plain.token_ids[: len(stopped.token_ids)]
    longer = ask("Well?", drafter="medusa", draft_length=3, sampling=GREEDY, max_tokens=20, continued=stopped.token_ids)
    continued = run(engine, longer)
    assert [*stopped.token_ids, *continued.token_ids] == plain.token_ids[: len(stopped.token_ids) + 20]
    draft = continued.finished.figures.draft
    assert draft.accepted == draft.tested > 10


def test_without_heads_nothing_is_asked_of_the_target(engine: Engine, asked: Asked, tmp_path: Path) -> None:
    asked(make_medusa(tmp_path / "heads"))
    pair = asked(None)
    assert "medusa" not in pair.all_drafters and pair.medusa_refused is None
    assert engine._target
    engine._target.context.decode([1, 2], 2)
    assert engine._target.context.state(0) is None


def test_logits_are_the_same_with_states(engine: Engine, asked: Asked) -> None:
    """Also in passes of which only the last tokens are asked for, whose other rows llama.cpp gives with the states."""
    asked(None, 3)
    assert engine._target
    context = engine._target.context

    def rows() -> list[Any]:
        context.clear()
        tree = ([5, 6], [7, 8, 9, 10], [-1, 0, -1, 2])
        found = [context.decode([1, 2, 3, 4], 2).copy(), context.decode_tree(*tree).copy()]
        context.roll_back(6)
        return [*found, context.decode([4], 1).copy(), context.decode(list(range(20)), 1).copy()]

    before = rows()
    context.keep_states(True)
    assert all(np.allclose(ours, theirs, atol=1e-3) for ours, theirs in zip(rows(), before, strict=True))
    assert context.state(0) is None, "too many tokens for states"
    context.roll_back(4)
    context.decode_tree([5], [6, 7, 8], [-1, -1, 1])
    found = [context.state(row) for row in range(4)]
    assert context.state(4) is None
    # The state of a table model says which token it belongs to.
    assert [int(np.argmax(state)) for state in found if state is not None] == [5, 6, 7, 8]


def test_heads_that_compute_no_numbers_cost_their_drafts_alone(engine: Engine, asked: Asked, tmp_path: Path) -> None:
    heads = table_heads()
    heads["medusa_head.1.1.weight"][:] = np.nan
    pair = asked(write_safetensors(tmp_path / "heads", heads))
    assert pair.medusa_refused is None
    answer = run(engine, ask("Well?", drafter="medusa", draft_length=3, sampling=GREEDY, max_tokens=20))
    assert answer.finished.draft_failure == (
        "The Medusa heads produced invalid numbers, so the model's file is probably damaged. Download it again."
    )
    assert answer.text == run(engine, ask("Well?", draft_length=0, sampling=GREEDY, max_tokens=20)).text


# ---------------------------------------------------------------- files


NESTED = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BYTES = {
    "empty": b"",
    "short": b"\x05\0\0",
    "long header": (1 << 62).to_bytes(8, "little") + b"{}",
    "no JSON": (4).to_bytes(8, "little") + b"{{{{",
    "nested": len(NESTED).to_bytes(8, "little") + NESTED,
}


def damaged(folder: Path, kind: str) -> Path:
    path, good = folder / "heads.safetensors", table_heads()
    if kind in BYTES:
        path.write_bytes(BYTES[kind])
    elif kind in ENTRIES:
        write_safetensors(path, good, **{"medusa_head.0.1.weight": ENTRIES[kind]})
    elif kind in TENSORS:
        write_safetensors(path, {**good, **TENSORS[kind]})
    elif kind == "cut off":
        path.write_bytes(write_safetensors(path, good).read_bytes()[:-100])
    elif kind == "no heads":
        write_safetensors(path, {"other": np.zeros(3, np.float32)})
    return {"a folder without them": folder, "pickle": folder / "medusa_lm_head.pt"}.get(kind, path)


ENTRIES: dict[str, Any] = {
    "unknown type": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},
    "outside": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 40, (1 << 40) + 4]},
    "backwards": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]},
    "negative": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]},
    "another size": {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]},
    "huge": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]},
    "no offsets": {"dtype": "F32", "shape": [1]},
}
TENSORS: dict[str, dict[str, Any]] = {
    "another width": table_heads(width=SIZE + 2),
    "another vocabulary": {"medusa_head.0.1.weight": np.zeros((SIZE - 1, SIZE), np.float16)},
    "no output": {"medusa_head.3.0.linear.weight": np.zeros((SIZE, SIZE), np.float16)},
    "a short bias": {"medusa_head.1.0.linear.bias": np.zeros(3, np.float16)},
    "a flat output": {"medusa_head.0.1.weight": np.zeros(SIZE * SIZE, np.float16)},
    "ids outside": {**table_heads(reduced=True), "d2t": np.arange(SIZE // 2) + SIZE},
    "ids below": {**table_heads(reduced=True), "d2t": np.arange(SIZE // 2) - 1},
    "ids that are no numbers": {**table_heads(reduced=True), "d2t": np.zeros(SIZE // 2, np.float32)},
    "one id": {**table_heads(reduced=True), "d2t": np.array(3)},
    "ids of another length": {**table_heads(reduced=True), "d2t": np.arange(3)},
}
OTHERS = ("a folder without them", "missing", "pickle", "cut off", "no heads")


@pytest.mark.parametrize("kind", [*OTHERS, *BYTES, *ENTRIES, *TENSORS])
def test_a_file_that_is_no_use_costs_its_drafts_alone(engine: Engine, asked: Asked, tmp_path: Path, kind: str) -> None:
    pair = asked(damaged(tmp_path, kind))
    assert pair.medusa_refused and pair.medusa_refused.endswith(".") and "medusa" not in pair.all_drafters
    assert str(tmp_path) not in pair.medusa_refused
    assert run(engine, ask("Well?", max_tokens=5, draft_length=0)).text


def test_heads_of_a_model_with_another_width(engine: Engine, tmp_path: Path) -> None:
    small = make_model(tmp_path / "small.gguf", chat_template=CHATML_TEMPLATE)
    heads = str(make_medusa(tmp_path / "heads"))
    pair = engine.load(Load(request=1, target=str(small), medusa=heads), lambda _: None)
    assert pair.medusa_refused == (
        "These Medusa heads belong to another model: their width or vocabulary isn't the target's."
    )


@pytest.mark.parametrize("fails", [True, False])
def test_a_target_that_gives_no_states_is_no_longer_asked_for_them(
    engine: Engine, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    def decode(context: Context, tokens: Sequence[int], outputs: int) -> Floats:
        if fails and context._keeps_states:
            raise KnownError("It failed.")
        return decoded(context, tokens, outputs)

    decoded = Context.decode
    monkeypatch.setattr(Context, "decode", decode)
    monkeypatch.setattr(Context, "state", lambda *_: None)
    assert asked(make_medusa(tmp_path / "heads")).medusa_refused
    assert engine._target and not engine._target.context._keeps_states
    assert run(engine, ask("Well?", max_tokens=5, draft_length=0)).text


def test_numbers_of_each_type(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.0, 0.25], [3.0, 0.0, -1e-3]], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    found = read_tensors(
        write_safetensors(
            tmp_path / "t", {"a": values, "b": values.astype(np.float16), "c": bits, "d": np.array([1, -7])}
        )
    )
    assert np.array_equal(found["a"], values) and np.allclose(found["b"], values, atol=1e-5)
    assert found["c"].dtype == np.float32 and np.allclose(found["c"], values, rtol=1e-2)
    assert found["d"].tolist() == [1, -7]
    with pytest.raises(KnownError, match="couldn't be read"):
        read_tensors(tmp_path / "none")


def test_a_tree_of_the_likeliest() -> None:
    first: Ranked = ([1, 2, 3], [2.0, 1.9, -5.0])
    second: Ranked = ([4, 5, 6], [3.0, 0.0, -1.0])
    draft = _likeliest([first, second], 5, 3)
    assert list(zip(draft.tokens, draft.parents or (), strict=True)) == [(1, -1), (4, 0), (2, -1), (4, 2), (5, 0)]
    likely = [math.exp(confidence) for confidence in draft.confidences]
    assert likely == sorted(likely, reverse=True)
    assert likely[0] == pytest.approx(1 / (1 + math.exp(-0.1) + math.exp(-7.0)))
    chain = _likeliest([first, second], 5, 0)
    assert (chain.tokens, chain.parents) == ([1, 4], [-1, 0])
    assert _likeliest([first, second], 16, 1).tokens == [1, 4, 2, 4]
    assert _likeliest([([1, 2], [5000.0, 0.0]), second], 2, 3).tokens == [1, 4]
    whole = _likeliest([first, second], 16, 16)
    assert len(whole.tokens) == 3 + 9
