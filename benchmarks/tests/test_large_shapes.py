"""Turns of programs that are loaded one at a time, and engines that wait for different lengths of time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import large_shapes, llama_cpp_tools, spin_count
from benchmarks.real_contestants import engine
from benchmarks.real_figures import Ratio
from tests.support.gguf_files import make_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "qwen3.5-4b.gguf", context_length=1024)


def test_both_take_turns_and_have_the_same_number_of_answers(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = []

    def peer(_tools: Any, target: Path, context: int, threads: int) -> Any:
        loads.append(threads)
        return engine(target, context)

    monkeypatch.setattr(large_shapes, "tools", lambda: llama_cpp_tools.Tools(model, model, "cpu"))
    monkeypatch.setattr(large_shapes, "llama_server", peer)
    options = ["--only", "qwen3.5-4b", "--folder", str(model.parent), "--json", str(model.with_suffix(".json"))]
    result = large_shapes.main([*options, "--prompt-tokens", "120", "--answers", "3", "--tokens", "8"])
    figures, shown = result["files"]["qwen3.5-4b"], capsys.readouterr().out
    for name, count in (("tokens per second", 6), ("first token, s", 2), ("load, s", 2)):
        assert [len(values) for values in figures[name].values()] == [count, count]
        assert name in shown
    assert len(loads) == 2 and model.with_suffix(".json").is_file()


def test_rounds_beside_other_programs_are_left_out(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def timed(_ours: object, request: Any) -> tuple[float, float]:
        asked.append(request.seed)
        return 100.0 + request.seed, 0.9 if request.seed == 2 else 0.1

    monkeypatch.setattr(spin_count, "_timed", timed)
    monkeypatch.setattr(spin_count, "_engine", lambda *_: None)
    spin_count.main(["--target", str(model), "--answers", "3", "--counts", "300"])
    shown = capsys.readouterr().out
    assert "1 rounds were not quiet" in shown and shown.count(str(Ratio(1.0, 1.0, 1.0, 2))) == 2
    assert len(asked) == 8
