"""Opens a chat of thousands of messages in the real window and scrolls through it.

    python -m benchmarks.long_chat [--messages N] [--pages N] [--runs N] [--json]

The chat is a real file of Markdown with code, lists and tables, most messages of 50 to 3,000 characters and some of
20,000, each answer with the origin of its tokens. It is chosen in the list of chats; told are

- the time until its end is painted with its real text, and until it can be scrolled to its beginning,
- the longest times the event loop did not turn: at opening; while the chat is scrolled through with the wheel, by pages
  to its beginning, and by dragging the scroll bar; while a message is sent, and while the next one is typed beside the
  answer to it. ``cpu`` is the time that the window's thread computed in them: beside a busy machine the others contain
  waiting for a core,
- how long a part of the screen showed text without its form while scrolling with the wheel and by pages,
- the memory of the process at the first screen and at the end.

With several runs, each in a process of its own, the medians are told.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path

from PySide6.QtCore import QObject, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app import system
from app.chats.model import pack, to_json
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.markdown.dialect import parser
from app.protocol.events import Piece, Round, RoundsReceived
from app.settings import SettingsFile
from app.ui.app import App
from app.ui.chat.transcript import Transcript
from app.ui.context import make_context
from app.ui.engine.client import EngineClient
from app.ui.shell.all_actions import all_actions
from app.ui.shell.application import Application, tune_garbage_collection
from app.ui.shell.main_window import MainWindow
from benchmarks.transcript import tokens
from tests.support.chats import add_question, begin_answer

TITLE = "A long chat"
FRAME = 1 / 60
LONG = 0.016
KEYS = 40
_EVERY_LONG = 50
"""Every so many answers one is of 20,000 characters."""


@dataclass
class Gaps:
    """Times between two turns of the event loop, in milliseconds."""

    turns: int
    over_16_ms: int
    longest_ms: float
    p99_ms: float
    cpu_over_16_ms: int
    cpu_longest_ms: float


@dataclass
class Result:
    """Times in milliseconds, memory in megabytes."""

    messages: int
    first_screen_ms: float
    first_screen_cpu_ms: float
    all_read_ms: float
    opening: Gaps
    wheel: Gaps
    pages: Gaps
    dragging: Gaps
    sending: Gaps
    typing: Gaps
    pages_seconds: float
    formless_longest_ms: float
    formless_p99_ms: float
    opening_memory_mb: float
    """Above what the window took before."""
    scrolling_memory_mb: float
    """Above what it took at the first screen."""
    widgets_at_the_end: int


# ---------------------------------------------------------------- the chat


def texts(messages: int) -> Iterator[tuple[str, list[Piece]]]:
    """Questions and answers as people have them; always the same."""
    chance = random.Random(15)
    whole = tokens(20_000)
    starts = [place for place, piece in enumerate(whole) if piece.text.startswith("\n\n")]
    for number in range(messages // 2):
        words = "Does that also hold when the draft is longer than usual? " * chance.choice((1, 1, 2, 4, 9))
        yield f"Question {number}: {words.strip()}", []
        size = 20_000 if number % _EVERY_LONG == _EVERY_LONG // 2 else round(50 * 60 ** chance.random())
        first = chance.choice(starts[: len(starts) // 2]) + 1
        last, length = first, 0
        while length < size:
            length += len(whole[last].text)
            last += 1
        pieces = whole[first:last]
        yield "".join(piece.text for piece in pieces), pieces


def fill(path: Path, messages: int) -> None:
    """Store the chat, and another one to come from."""
    with ChatStore(path) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        chat, parent = store.create_chat(TITLE), None
        for text, pieces in texts(messages):
            if not pieces:
                parent = add_question(store, chat.id, parent, text).id
                continue
            answer = begin_answer(store, chat.id, str(parent), "Guide", {"template": "model"})
            figures = to_json({"completion_tokens": len(pieces), "decode_tokens_per_second": 74.0})
            packed = to_json(pack(pieces))
            done = replace(answer, text=text, provenance_json=packed, status="complete", finish_reason="end")
            store.finish_answer(replace(done, figures_json=figures, tokens=range(len(pieces))))
            parent = answer.id
        add_question(store, store.create_chat("Another chat").id, None, "Hello")


# ---------------------------------------------------------------- measuring


def memory_mb() -> float:
    """Resident memory of this process, without what is only kept for later."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Loop(QObject):
    """Runs the event loop as the application does, and knows how long each of its turns took."""

    def __init__(self, application: QApplication, transcript: Transcript) -> None:
        super().__init__()
        self._application = application
        self._transcript = transcript
        self._is_over: Callable[[], bool] = lambda: True
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._on_turn)
        self._last = self._last_cpu = 0.0
        self._formless_since: float | None = None
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.formless: list[float] = []

    def run_until(self, is_over: Callable[[], bool], pause_ms: int = 0) -> None:
        """``is_over`` is asked in each turn of the event loop, and may do something in it.

        Without a pause between the turns, this thread keeps Python from the thread that reads the chat, and its own
        looking counts as time of the processor.
        """
        self._timer.setInterval(pause_ms)
        self._is_over = is_over
        self._last, self._last_cpu = time.perf_counter(), time.thread_time()
        self._timer.start()
        self._application.exec()
        self._timer.stop()

    def _on_turn(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        self.wall.append(now - self._last)
        self.cpu.append(cpu - self._last_cpu)
        if not self._transcript.column.is_complete():
            self._formless_since = self._formless_since or now
        elif self._formless_since is not None:
            self.formless.append(now - self._formless_since)
            self._formless_since = None
        if self._is_over():
            self._application.exit()
        self._last, self._last_cpu = time.perf_counter(), time.thread_time()

    def gaps(self) -> Gaps:
        """What was measured since the last time."""
        wall, cpu = sorted(self.wall), sorted(self.cpu)
        self.wall, self.cpu = [], []
        return Gaps(
            turns=len(wall),
            over_16_ms=sum(one > LONG for one in wall),
            longest_ms=round(1000 * wall[-1], 1),
            p99_ms=round(1000 * wall[len(wall) * 99 // 100], 1),
            cpu_over_16_ms=sum(one > LONG for one in cpu),
            cpu_longest_ms=round(1000 * cpu[-1], 1),
        )


def every_frame(steps: Iterator[object]) -> Callable[[], bool]:
    """Take one step each frame, until there are no more."""
    due = time.perf_counter()

    def is_over() -> bool:
        nonlocal due
        if time.perf_counter() < due:
            return False
        due = max(due + FRAME, time.perf_counter())
        return next(steps, steps) is steps

    return is_over


# ---------------------------------------------------------------- what the user does


def choose(window: MainWindow, title: str) -> None:
    """Click on a chat in the list."""
    view = window.chat_list.view
    model = view.model()
    for row in range(model.rowCount()):
        index = model.index(row, 0)
        if title in str(index.data()):
            QTest.mouseClick(
                view.viewport(),
                Qt.MouseButton.LeftButton,
                Qt.KeyboardModifier.NoModifier,
                view.visualRect(index).center(),
            )
            return
    raise LookupError(title)


def wheel(transcript: Transcript, steps: int, up: bool) -> Iterator[object]:
    """So many steps of a mouse's wheel. They go to the column: Qt passes on from text only those of a real mouse."""
    viewport = transcript.column.viewport()
    middle = viewport.rect().center()
    for _ in range(steps):
        event = QWheelEvent(
            QPointF(middle),
            QPointF(viewport.mapToGlobal(middle)),
            QPoint(0, 0),
            QPoint(0, 120 if up else -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        yield QApplication.sendEvent(viewport, event)


def pages_up(transcript: Transcript, pages: int) -> Callable[[], bool]:
    """Go on as soon as there is something to read."""
    bar, left = transcript.column.verticalScrollBar(), pages

    def is_over() -> bool:
        nonlocal left
        if transcript.column.is_complete():
            left -= 1
            if bar.value() == 0 or left < 0:
                return True
            QTest.keyClick(transcript.column, Qt.Key.Key_PageUp)
        return False

    return is_over


def drag(transcript: Transcript, steps: int) -> Iterator[object]:
    """From the end to the beginning, and back half the way."""
    bar = transcript.column.verticalScrollBar()
    places = [*range(steps, -1, -1), *range(steps // 2)]
    bar.setSliderDown(True)
    for place in places:
        bar.setSliderPosition(round(bar.maximum() * place / steps))
        yield place
    bar.setSliderDown(False)


def type_beside_an_answer(window: MainWindow, engine: EngineClient, request: int, keys: int) -> Iterator[object]:
    """A key every third frame, and in each some tokens of the answer."""
    pieces = cycle(tokens(20_000))
    for number in range(3 * keys):
        if number % 3 == 0:
            QTest.keyClicks(window.composer.editor, "so what "[number // 3 % 8])
        told = [Round(index=number, verify_passes=1, pieces=list(islice(pieces, 2)), tokens=2, time=number * FRAME)]
        engine.rounds_received.emit(RoundsReceived(request=request, rounds=told))
        yield number


def measure(folder: Path, messages: int, pages: int) -> Result:
    os.environ[system.HOME_VARIABLE] = str(folder)
    fill(folder / "chats.sqlite", messages)
    application = Application([])
    settings = SettingsFile(folder / "settings.json")
    actions = all_actions()
    window = MainWindow(settings.values, actions)
    worker = ChatWorker(folder / "chats.sqlite")
    engine = EngineClient([sys.executable, "-m", "tests.ui.scripted_engine", "endless"], parent=window)
    app = App(make_context(settings, engine, worker, actions, window), window)
    transcript = window.transcript
    window.show()
    app.begin()
    loop = Loop(application, transcript)

    def wait(seconds: float) -> None:
        until = time.perf_counter() + seconds
        loop.run_until(lambda: time.perf_counter() > until)

    def is_shown() -> bool:
        return len(transcript.column.entries) > 1 and transcript.column.is_complete()

    wait(2.0)
    choose(window, "Another chat")
    wait(0.5)
    parser()
    tune_garbage_collection()  # both as the application does when it has begun
    before = memory_mb()
    wait(0.1)
    loop.gaps()
    began, began_cpu = time.perf_counter(), time.thread_time()
    choose(window, TITLE)
    loop.run_until(is_shown, pause_ms=2)
    loop.run_until(lambda: True)  # what is drawn is painted in the turn after
    first_screen, first_screen_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
    loop.run_until(lambda: len(transcript.column.entries) >= messages and transcript.column.is_complete())
    all_read = time.perf_counter() - began
    wait(1.0)
    opening = loop.gaps()
    opened = memory_mb()
    wait(0.1)
    loop.gaps()
    loop.formless.clear()
    loop.run_until(every_frame(wheel(transcript, 400, up=True)))
    wheeled = loop.gaps()
    started = time.perf_counter()
    loop.run_until(pages_up(transcript, pages))
    paged, paging = time.perf_counter() - started, loop.gaps()
    formless = sorted(loop.formless) or [0.0]
    transcript.column.go_to_end()
    wait(0.5)
    loop.gaps()
    loop.run_until(every_frame(drag(transcript, 300)))
    dragged = loop.gaps()
    wait(1.0)
    scrolled = memory_mb()
    transcript.column.go_to_end()
    wait(0.5)
    loop.gaps()
    window.composer.send("And now?")
    loop.run_until(lambda: bool(app.ctx.chats.answers.open) and app.ctx.chats.answers.open[0].message is not None)
    wait(1.0)
    sent = loop.gaps()
    job = app.ctx.chats.answers.open[0].job
    assert job is not None
    loop.run_until(every_frame(type_beside_an_answer(window, engine, job.request, KEYS)))
    wait(1.0)
    typed = loop.gaps()
    result = Result(
        messages=messages,
        first_screen_ms=round(1000 * first_screen, 1),
        first_screen_cpu_ms=round(1000 * first_screen_cpu, 1),
        all_read_ms=round(1000 * all_read, 1),
        opening=opening,
        wheel=wheeled,
        pages=paging,
        dragging=dragged,
        sending=sent,
        typing=typed,
        pages_seconds=round(paged, 1),
        formless_longest_ms=round(1000 * formless[-1], 1),
        formless_p99_ms=round(1000 * formless[len(formless) * 99 // 100], 1),
        opening_memory_mb=round(opened - before, 1),
        scrolling_memory_mb=round(scrolled - opened, 1),
        widgets_at_the_end=sum(entry.widget is not None for entry in transcript.column.entries),
    )
    app.shut_down()
    window.close()
    return result


# ---------------------------------------------------------------- several runs


def median(results: list[dict[str, object]]) -> dict[str, object]:
    """Of each figure."""
    found: dict[str, object] = {}
    for name, value in results[0].items():
        values = [one[name] for one in results]
        if isinstance(value, dict):
            found[name] = median([one for one in values if isinstance(one, dict)])
        else:
            found[name] = statistics.median(float(str(one)) for one in values)
    return found


def show(result: dict[str, object]) -> None:
    for name, value in result.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        shown = "   ".join(f"{key.replace('_', ' ')} {one}".strip() for key, one in parts)
        sys.stdout.write(f"{name.replace('_', ' '):<24} {shown}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--pages", type=int, default=10**6, help="as many are read, from the end")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if options.runs > 1:
        command = [sys.executable, "-m", "benchmarks.long_chat", "--json"]
        command += ["--messages", str(options.messages), "--pages", str(options.pages)]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(options.runs)]
        result = median([json.loads(one.stdout.splitlines()[-1]) for one in runs])
    else:
        with tempfile.TemporaryDirectory() as folder:
            result = asdict(measure(Path(folder), options.messages, options.pages))
    if not options.json:
        show(result)
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
