"""How long a start takes: the window painted, and the guide ready after that. Real processes, a warm disk cache.

    python -m benchmarks.startup [--repeat N] [--against FOLDER] [--json]

Uses the display there is, offscreen where there is none. The first start warms the cache and makes the files of a new
home; it is not counted. FOLDER is a checkout of another version, which is started in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGETS = {"window_s": 1.0, "guide_s": 2.0}
LABELS = {"window_s": "window visible after start (warm)", "guide_s": "guide ready after that"}
_WAIT_S = 120
_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*?: (window painted|pair loaded)", re.MULTILINE)


FROM_SOURCE = (sys.executable, "-m", "app")


def start_once(home: Path, program: Sequence[str] = FROM_SOURCE, source: Path = ROOT) -> dict[str, float]:
    """Seconds from the start of ``program`` in ``source`` to the painted window, and from there to the loaded guide."""
    log = home / "logs" / "slipstream.log"
    log.unlink(missing_ok=True)
    environment = {**os.environ, "SLIPSTREAM_HOME": str(home)}
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        environment["QT_QPA_PLATFORM"] = "offscreen"
    began = time.time()
    process = subprocess.Popen(program, cwd=source, env=environment)
    try:
        times = _times(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_WAIT_S)
    return {"window_s": times["window painted"] - began, "guide_s": times["pair loaded"] - times["window painted"]}


def _times(process: subprocess.Popen[bytes], log: Path) -> dict[str, float]:
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        times = {event: datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp() for at, event in _LINE.findall(text)}
        if len(times) == 2:
            return times
        time.sleep(0.05)
    raise SystemExit("The window or the guide did not come; see the log.")


def measure(repeat: int) -> dict[str, Any]:
    """Medians and all values over ``repeat`` starts."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [start_once(Path(folder)) for _ in range(repeat + 1)][1:]
    result: dict[str, Any] = {
        "repeat": repeat,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
    for name in TARGETS:
        values = [run[name] for run in runs]
        result[name] = {"median": round(statistics.median(values), 3), "all": [round(value, 3) for value in values]}
        result[name]["target"] = TARGETS[name]
    return result


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'':36} {'median':>8} {'best':>8} {'worst':>8} {'target':>8}"]
    for name, label in LABELS.items():
        values = result[name]["all"]
        figures = (result[name]["median"], min(values), max(values), result[name]["target"])
        lines.append(f"{label:36} " + " ".join(f"{figure:6.2f} s" for figure in figures))
    lines.append(f"{result['repeat']} starts, load average {result['load_average']}")
    return "\n".join(lines)


def ratio(repeat: int, other: Path) -> dict[str, Any]:
    """Medians of ``repeat`` starts of this version and the one in ``other``, in turn, and this one's ÷ the other's."""
    sources = {"this": ROOT, "other": other.resolve()}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as folder:
        for name in sources:
            Path(folder, name).mkdir()
        for number in range(repeat + 1):
            for name in sorted(sources, reverse=bool(number % 2)):
                runs[name].append(start_once(Path(folder, name), source=sources[name]))
    result: dict[str, Any] = {"repeat": repeat}
    for what in TARGETS:
        medians = {name: round(statistics.median(run[what] for run in runs[name][1:]), 3) for name in sources}
        result[what] = {**medians, "ratio": round(medians["this"] / medians["other"], 3)}
    return result


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time from start to window and to the guide")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="a checkout of another version, for the ratio")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    if options.against is not None:
        result = ratio(max(options.repeat, 1), options.against)
        print(json.dumps(result))
        return result
    result = measure(max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
