"""What `overhead` takes for the engine's own time, on a tiny pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.protocol.options import Sampling
from benchmarks.inflate import vocabulary_pair
from benchmarks.overhead import CASES, PARTS, Case, measure, table
from tests.support.generation import GREEDY


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return vocabulary_pair(tmp_path, 512)


def test_parts_add_up_and_llama_cpp_is_left_out(pair: tuple[Path, Path]) -> None:
    cases = [Case("greedy", GREEDY), Case("rejection", Sampling(temperature=1.0), "rejection")]
    result = measure(pair, draft_length=3, rounds=10, threads=1, cases=cases)

    assert list(result) == ["greedy", "rejection"]
    for figures in result.values():
        assert list(figures) == list(PARTS)
        assert all(figures[part] > 0.0 for part in PARTS)
        assert figures["own"] > max(figures["drafting"], figures["judging"])
    settings = {"vocabulary": 512, "draft_length": 3, "threads": 1, "cases": result}
    assert "512 tokens, draft length 3" in table(settings)


def test_cases_differ() -> None:
    assert len({(case.sampling, case.accept) for case in CASES}) == len({case.name for case in CASES}) == len(CASES)
