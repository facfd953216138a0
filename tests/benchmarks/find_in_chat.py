"""Finds words in a chat of thousands of messages in the real window.

    python -m tests.benchmarks.find_in_chat [--messages N]

The chat is that of `tests.benchmarks.long_chat`. For a word that is in most messages, one that is in few and one that
is in none, told are the time from the last key until all matches are counted, and how long the turns of the event loop
took meanwhile; and the same while going to the next match forty times. ``cpu`` is what the window's thread computed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app import paths
from app.chats.worker import ChatWorker
from app.settings import SettingsFile
from app.ui.chat.markdown import blocks
from app.ui.engine.local_engine import LocalEngine
from app.ui.shell.application import Application, collect_seldom
from app.ui.shell.controller import Controller
from app.ui.shell.main_window import MainWindow
from tests.benchmarks.long_chat import TITLE, Loop, choose, every_frame, fill

QUERIES = ("the", "Question 1234", "no such words")
STEPS = 40


def type_query(window: MainWindow, query: str) -> Iterator[object]:
    """A key in each frame."""
    for key in query:
        yield QTest.keyClicks(window.find_bar.field, key)


def step_on(window: MainWindow) -> Iterator[object]:
    for _ in range(STEPS):
        yield QTest.keyClick(window.find_bar.field, Qt.Key.Key_Return)


def measure(folder: Path, messages: int) -> dict[str, object]:
    os.environ[paths.HOME_VARIABLE] = str(folder)
    fill(folder / "chats.sqlite", messages)
    application = Application([])
    settings = SettingsFile(folder / "settings.json")
    window = MainWindow(settings.values)
    engine = LocalEngine([sys.executable, "-m", "tests.ui.scripted_engine", "endless"], parent=window)
    controller = Controller(window, settings, engine, ChatWorker(folder / "chats.sqlite"))
    column, bar = window.transcript.column, window.find_bar
    window.show()
    controller.begin()
    loop = Loop(application, window.transcript)

    def wait(seconds: float) -> None:
        until = time.perf_counter() + seconds
        loop.run_until(lambda: time.perf_counter() > until)

    def is_counted() -> bool:
        return bar.count_text() not in ("", "Searching…") and column.is_complete()

    wait(2.0)
    choose(window, TITLE)
    loop.run_until(lambda: len(column.entries) >= messages and column.is_complete())
    blocks.prepare()
    collect_seldom()
    wait(1.0)
    results: dict[str, object] = {}
    for query in QUERIES:
        bar.begin()
        bar.field.clear()
        wait(0.3)
        loop.gaps()
        loop.run_until(every_frame(type_query(window, query)))
        began = time.perf_counter()
        loop.run_until(is_counted)
        counted = round(1000 * (time.perf_counter() - began), 1)
        results[query] = {"found": bar.count_text(), "counted_ms": counted, **asdict(loop.gaps())}
        if bar.count_text().endswith("es"):
            continue
        loop.run_until(every_frame(step_on(window)))
        wait(0.5)
        results[f"{query}, next"] = asdict(loop.gaps())
    controller.shut_down()
    window.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), options.messages)
    sys.stdout.write(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
