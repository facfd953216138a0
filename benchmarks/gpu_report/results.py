"""The file with what was measured: each step's state and figures, written as soon as there is something new."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

State = Literal["done", "failed", "too slow", "interrupted"]
"""``interrupted``: the call ended first, so it doesn't count as an attempt."""


@dataclass
class StepResult:
    """What came of a step; ``figures`` has what it had measured before it failed, too."""

    state: State
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 1
    date: str = ""
    error: str = ""


@dataclass
class Results:
    """All steps by name, and what they ran on."""

    machine: dict[str, Any] = field(default_factory=dict)
    """The GPU, how the libraries were built, the commit: results of another machine don't belong in the same file."""
    steps: dict[str, StepResult] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """The results in a file; none if it isn't there. Raises `SystemExit` for another kind of file."""
        if not path.is_file():
            return cls()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            steps = {name: StepResult(**step) for name, step in content["steps"].items()}
            return cls(content["machine"], steps)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SystemExit(f"{path} has no results of scripts/gpu-report: {error}") from None

    def write(self, *paths: Path) -> None:
        """Replace the files as a whole."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)

    def add(self, other: Results) -> None:
        """Take over the steps of ``other`` that got further, or were run later, than ours."""
        for name, theirs in other.steps.items():
            ours = self.steps.get(name)
            if ours is None or (theirs.state == "done", theirs.date) > (ours.state == "done", ours.date):
                self.steps[name] = theirs


def now() -> str:
    """The time, as it is written into results."""
    return datetime.now(UTC).isoformat(timespec="seconds")
