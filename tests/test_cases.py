"""The tests that benchmarks/notes/cases.md names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NAMED = re.compile(r"(tests/[\w/]+\.py)((?:::test_\w+)?)")


def test_each_case_is_held_by_a_test_that_exists() -> None:
    named = _NAMED.findall((ROOT / "benchmarks" / "notes" / "cases.md").read_text(encoding="utf-8"))
    assert len(named) > 100
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path, _ in named}
    assert not [f"{path}{name}" for path, name in named if name and f"def {name[2:]}(" not in sources[path]]
