"""What the helper process costs: its start, its memory, and a render of a chat against one in the same process.

    python -m tests.benchmarks.helper [--runs N] [--json]

Renders take turns; the figures are medians, and the difference is between medians. "Traced" is how it was done before
there was a helper process: in the engine's, under a trace function that looked at the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import psutil

from app.engine.decoding.chat_template import CHATML
from app.helper import Helper, templates
from app.helper.messages import CheckTemplate, Highlight, Message, RenderTemplate


def chat(turns: int) -> list[Message]:
    """A chat of so many turns, 1,200 characters each."""
    both = [("user", "How does a round spend its time? " * 12), ("assistant", "A verify pass covers the draft. " * 25)]
    return [Message(role, text) for _ in range(turns) for role, text in both] + [Message("user", "And then?")]


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def traced(call: Callable[[], object]) -> object:
    """As it was before: every line of the template looks at the clock."""
    deadline = time.monotonic() + 2.0

    def trace(_frame: FrameType, _event: str, _argument: object) -> Any:
        if time.monotonic() > deadline:
            raise TimeoutError
        return trace

    sys.settrace(trace)
    try:
        return call()
    finally:
        sys.settrace(None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    helper = Helper()
    figures: dict[str, Any] = {"first_request_ms": []}
    for _ in range(3):
        helper.stop()
        figures["first_request_ms"].append(
            round(seconds(lambda: helper.check_template(CheckTemplate(CHATML))) * 1000, 1)
        )
    figures["memory_mb_templates"] = round(psutil.Process(helper.process_id).memory_info().rss / 2**20, 1)
    for turns in (1, 20, 200):
        request = RenderTemplate(CHATML, "", "", chat(turns), "2026-11-22T10:00:00")
        calls: dict[str, Callable[[], object]] = {
            "traced": lambda request=request: traced(lambda: templates.answer(request)),  # type: ignore[misc]
            "same process": lambda request=request: templates.answer(request),  # type: ignore[misc]
            "helper": lambda request=request: helper.template(request),  # type: ignore[misc]
        }
        took: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(options.runs):
            for name, call in calls.items():
                took[name].append(seconds(call))
        medians = {name: statistics.median(times) * 1000 for name, times in took.items()}
        figures[f"render_{2 * turns + 1}_messages_ms"] = {
            **{name: round(value, 2) for name, value in medians.items()},
            "helper - traced": round(medians["helper"] - medians["traced"], 2),
        }
    code = "def f(a: int) -> str:\n    return f'{a}'  # text\n" * 20
    helper.highlight(Highlight("python", code))
    times = [seconds(lambda: helper.highlight(Highlight("python", code))) for _ in range(options.runs)]
    figures["highlight_40_lines_ms"] = round(statistics.median(times) * 1000, 2)
    figures["memory_mb_both"] = round(psutil.Process(helper.process_id).memory_info().rss / 2**20, 1)
    helper.stop()
    print(json.dumps(figures, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
