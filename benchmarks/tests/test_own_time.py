"""What `own_time` measures, on a tiny pair."""

from __future__ import annotations

from pathlib import Path

from app.engine.llama import context
from benchmarks.inflate import vocabulary_pair
from benchmarks.overhead import Case
from benchmarks.own_time import CASES, FIGURES, measure, table
from tests.support.generation import GREEDY


def test_figures_with_and_without_picking(tmp_path: Path) -> None:
    pays = context.pays
    pair = vocabulary_pair(tmp_path, 1024)
    cases = measure(pair, draft_length=3, rounds=10, threads=1, cases=[Case("greedy", GREEDY), CASES[1]])
    assert list(cases) == ["greedy", CASES[1].name]
    for figures in cases.values():
        assert list(figures) == list(FIGURES)
        assert figures["whole rows"] > 0.0 and figures["llama.cpp"] > 0.0
        assert figures["picked"] > figures["picking"]
        assert figures["CPU, whole rows"] > 0.0 and figures["CPU, picked"] > 0.0
    assert context.pays is pays
    settings = {"vocabulary": 1024, "draft_length": 3, "threads": 1, "devices": [], "cases": cases}
    assert "1,024 tokens, draft length 3, 1 threads, no GPU" in table(settings)
