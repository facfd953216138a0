"""How long the window is kept from its work while the library is looked into and its list is filled.

    python -m tests.benchmarks.library_window [--files N] [--repeat N] [--json]

Real models of 300 KB and less, the real Models window, offscreen. A timer that wants to ring every two milliseconds
says how late it was: that is how long a click or a key would have waited. Cold is the first look, without an index;
warm is a look with nothing new; a choice shows a model's page with the drafts ranked for it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QElapsedTimer, Qt, QTimer, SignalInstance

from app.models.machine_memory import machine_now
from app.settings import Settings
from app.ui.models.library_service import LibraryService
from app.ui.models.presenter import ModelsPresenter
from app.ui.shell.application import Application
from app.ui.widgets import stylesheet
from tests.benchmarks.library import FILES, make_files
from tests.ui.models.windows import Commands

TARGET_MS = 16.0
_RING_MS = 2
_SETTLE_S = 0.3
_WAIT_S = 120.0
LABELS = {
    "cold_ms": "first look, without an index",
    "warm_ms": "another look",
    "choice_ms": "a model chosen, drafts ranked",
    "search_ms": "a letter typed into the search",
    "sort_ms": "another column sorted by",
}


class Lateness:
    """The longest time the event loop did not come round."""

    def __init__(self) -> None:
        self._clock = QElapsedTimer()
        self._timer = QTimer(interval=_RING_MS, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_rung)
        self._longest = 0.0

    def of(self, action: Callable[[], object], ended: SignalInstance | None = None) -> float:
        """Milliseconds, from ``action`` until things are settled after ``ended``."""
        seen: list[bool] = []
        connection = ended.connect(lambda *_: seen.append(True)) if ended is not None else None
        self._longest = 0.0
        self._clock.start()
        self._timer.start()
        QTimer.singleShot(0, action)
        give_up = time.monotonic() + _WAIT_S
        while ended is not None and not seen:
            assert time.monotonic() < give_up, "the library gave no answer"
            QCoreApplication.processEvents()
        self._settle()
        self._timer.stop()
        if ended is not None and connection is not None:
            ended.disconnect(connection)
        return self._longest

    def _settle(self) -> None:
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end:
            QCoreApplication.processEvents()

    def _on_rung(self) -> None:
        self._longest = max(self._longest, self._clock.nsecsElapsed() / 1e6 - _RING_MS)
        self._clock.start()


def measure(files: int, repeat: int) -> dict[str, Any]:
    """All values in milliseconds, and the worst of each."""
    application = Application([])
    stylesheet.apply(application)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SLIPSTREAM_HOME"] = str(folder / "home")
        make_files(folder, files)
        found = measure_window(folder, files, repeat)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    result: dict[str, Any] = {"files": files, "repeat": repeat, "load_average": load, "target_ms": TARGET_MS}
    for key, values in found.items():
        result[key] = {"worst": max(values), "all": values}
    return result


def measure_window(folder: Path, files: int, repeat: int) -> dict[str, list[float]]:
    values = Settings()
    values.models_folder = str(folder / "empty")
    library = LibraryService(values, machine_now)
    presenter = ModelsPresenter(values, library, Commands(SimpleNamespace(machine=machine_now(), loaded=())))  # type: ignore[arg-type]
    tab, late = presenter.window.library, Lateness()
    late.of(presenter.show_library, library.scanned)  # opening a window takes its own time, once
    gc.freeze()  # as the app does when it has started
    values.models_folder = str(folder / "models")
    found = {"cold_ms": [late.of(presenter.show_library, library.scanned)]}
    assert len(library.entries()) == files
    found["warm_ms"] = [late.of(presenter.show_library, library.scanned) for _ in range(repeat)]
    chosen = [str(entry.path) for entry in library.entries()[:: max(files // repeat, 1)]]
    found["choice_ms"] = [late.of(lambda path=path: tab.list.select(path)) for path in chosen]  # type: ignore[misc]
    texts = ("m", "mo", "model-1", "")
    found["search_ms"] = [late.of(lambda text=text: tab.list.rows.set_words(text)) for text in texts]  # type: ignore[misc]
    orders = (Qt.SortOrder.AscendingOrder, Qt.SortOrder.DescendingOrder)
    found["sort_ms"] = [
        late.of(lambda column=column, order=order: tab.list.sortByColumn(column, order))  # type: ignore[misc]
        for column in range(6)
        for order in orders
    ]
    presenter.close()
    library.close()
    return found


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [f"{'longest time the window was kept waiting':42} {'worst':>9} {'best':>9}"]
    for key, label in LABELS.items():
        values = result[key]["all"]
        lines.append(f"{label:42} {max(values):6.1f} ms {min(values):6.1f} ms")
    lines.append(f"{result['files']} files, target {TARGET_MS:.0f} ms, load average {result['load_average']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Longest blocking of the window by the library")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    result = measure(options.files, max(options.repeat, 1))
    if not options.json:
        print(table(result))
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
