"""The check of all architectures finds what is wrong, and says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import llama_cpp
import msgspec
import pytest

from app.engine.llama.checkpoints import Memory
from benchmarks import architecture_checks
from benchmarks.added_heads import add_head
from benchmarks.architecture_checks import WAYS, Case, Check, Kind, Reference
from benchmarks.architectures import Checked, checked, document, write_models
from tests.support.architectures import make

CASE = Case(way="n-grams", sampling="greedy", event="Regenerate", snapshots=0, result="same")


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Check a model in one way, with two of the events; ``break_it`` is called when all is loaded."""
    chosen = ("Regenerate", "Stop, Continue")
    monkeypatch.setattr(architecture_checks, "EVENTS", {name: architecture_checks.EVENTS[name] for name in chosen})
    other = make(tmp_path / "other.gguf", "llama", seed=5)

    def run(model: Path, way: str, break_it: Callable[[], None] = lambda: None) -> set[str]:
        reference = Reference(model)
        checking = Check(model, other, way, 0, reference)
        assert checking.pair.draft_refused is None and checking.pair.head_refused is None
        break_it()
        cases = [case for sampling in architecture_checks.SAMPLINGS for case in checking.cases(sampling)]
        assert all(case.tested for case in cases)
        checking.ours.unload()
        reference.engine.unload()
        return {case.result for case in cases}

    return run


@pytest.mark.parametrize("way", ["right draft", "wrong draft", "partly right"])
def test_a_memory_that_works(tmp_path: Path, check: Callable[..., set[str]], way: str) -> None:
    assert check(make(tmp_path / "m.gguf", "deepseek2"), way) <= {"same", "near-tie"}


def test_a_head_that_was_added(tmp_path: Path, check: Callable[..., set[str]]) -> None:
    model = add_head(make(tmp_path / "m.gguf", "deepseek2"), tmp_path / "with-head.gguf")
    assert check(model, "MTP head") <= {"same", "near-tie"}


def test_a_memory_that_keeps_what_was_rejected(
    tmp_path: Path, check: Callable[..., set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a wrong token where it is told to forget it; llama.cpp doesn't notice."""

    def keep_one(memory: Memory, length: int) -> bool:
        moved = llama_cpp.llama_memory_seq_rm(memory._memory, 0, length - 1, length)
        llama_cpp.llama_memory_seq_add(memory._memory, 0, length, length + 1, -1)
        return bool(moved and llama_cpp.llama_memory_seq_rm(memory._memory, 0, length, -1))

    results = check(
        make(tmp_path / "m.gguf", "llama"), "partly right", lambda: monkeypatch.setattr(Memory, "cut", keep_one)
    )
    assert "different" in results


def test_a_process_that_ends_is_reported(tmp_path: Path) -> None:
    result = checked(tmp_path / "missing.gguf", tmp_path)
    assert not result.is_right and result.kind is None
    assert result.ended.startswith("ended with status 1: ") and "missing.gguf" in result.ended


def test_models_that_are_there_are_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "there.gguf").touch()
    write_models(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["there.gguf"]


def test_the_page() -> None:
    near = msgspec.structs.replace(CASE, result="near-tie", place=7, error=1e-9)
    wrong = msgspec.structs.replace(CASE, way="wrong draft", result="different", place=3, error=0.5, snapshots=8)
    head = msgspec.structs.replace(CASE, way="MTP head", result="refused", message="No.")
    page = document(
        [
            Checked("aha-dense", Kind(architecture="aha", memory="KV cache"), [CASE, near, wrong]),
            Checked("aha-dense+head", Kind(architecture="aha", memory="KV cache"), [head]),
            Checked("bee-moe", Kind(architecture="bee", refused="bee-moe.gguf is a speech model.")),
            Checked("cut-dense", ended="ended by SIGABRT: GGML_ASSERT(x) failed"),
        ],
        ["rwkv7"],
        "the command",
    )
    assert "Not checked, because the generator writes no models of them: rwkv7." in page
    assert "3 models, 1 refused with the reason, 0 the same in all answers; 1 with an MTP head" in page
    assert "3 answers, 1 near-tie, 1 different." in page
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        "| `aha-dense` | KV cache |  | 2 (1 near-tie) |  | 1 (**1 different**) |  | refused: No. |",
        "| `bee-moe` | refused: is a speech model. |" + " |" * len(WAYS),
        "| `cut-dense` |  | " + " | ".join([""] * len(WAYS)) + " |",
    ]
    assert "- `aha-dense`, n-grams, greedy, Regenerate, token 7 (error of the logits 1e-09)" in page
    assert "- `aha-dense`, wrong draft, greedy, Regenerate, 8 snapshots, token 3 (error of the logits 0.5)" in page
    assert "- `cut-dense`: ended by SIGABRT: GGML_ASSERT(x) failed" in page
