"""Opens a chat of thousands of messages and scrolls through it.

    python -m tests.benchmarks.long_chat [--messages N] [--json]

The chat is stored in a real file and shown by the real session and transcript. Told are the time from the click to the
first screen that is complete, the longest step of the event loop at opening and while scrolling from the end to the
beginning, and how much memory each took.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop
from PySide6.QtWidgets import QApplication

from app.chats.model import pack, to_json
from app.chats.settings import ChatSettings
from app.chats.store import ChatStore
from app.chats.worker import ChatWorker
from app.ui.chat.answer_queue import AnswerQueue
from app.ui.chat.conversation import AnswerSettings
from app.ui.chat.messages import MessageWidget
from app.ui.chat.open_chats import OpenChats
from app.ui.chat.page import ChatPage
from app.ui.chat.stored_chats import StoredChats
from app.ui.chat.transcript import Transcript
from app.ui.engine.local_engine import LocalEngine
from app.ui.engine.pair import PairLoader
from app.ui.engine.pair_files import LoadingMarker
from app.ui.notices import NoticeList
from app.ui.widgets import stylesheet
from tests.benchmarks.transcript import tokens
from tests.support.chats import add_question, begin_answer

TOKENS = 220
"""In each answer."""


@dataclass
class Result:
    """Times in milliseconds, memory in megabytes above what the window took before."""

    messages: int
    first_screen_ms: float
    opening_longest_step_ms: float
    opening_steps_over_16_ms: int
    opening_memory_mb: float
    scrolling_seconds: float
    scrolling_longest_step_ms: float
    scrolling_steps_over_16_ms: int
    scrolling_memory_mb: float
    widgets_at_the_end: int


class Steps:
    """Runs the event loop, and times what it does between two waits."""

    def __init__(self) -> None:
        self.wall: list[float] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            began = time.perf_counter()
            QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
            self.wall.append(time.perf_counter() - began)
            time.sleep(0.0005)

    def longest(self) -> float:
        return round(1000 * max(self.wall), 1)

    def slow(self) -> int:
        return sum(step > 0.016 for step in self.wall)


def fill(path: Path, messages: int) -> str:
    """A stored chat of questions and answers with the origin of each token."""
    pieces = tokens(TOKENS)
    text, packed = "".join(piece.text for piece in pieces), to_json(pack(pieces))
    figures = to_json({"completion_tokens": TOKENS, "decode_tokens_per_second": 74.0})
    with ChatStore(path) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        chat, parent = store.create_chat("Long"), None
        for number in range(messages // 2):
            question = add_question(store, chat.id, parent, f"Question {number}: how does it go on from there?")
            answer = begin_answer(store, chat.id, question.id, "Guide", {})
            store.finish_answer(
                replace(
                    answer,
                    text=text,
                    provenance_json=packed,
                    status="complete",
                    finish_reason="end",
                    figures_json=figures,
                )
            )
            parent = answer.id
    return chat.id


def memory_mb() -> float:
    """Resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def is_drawn(transcript: Transcript) -> bool:
    built = [entry.widget for entry in transcript.column.entries if isinstance(entry.widget, MessageWidget)]
    return bool(built) and not transcript.column._soon.isActive() and all(one.view.is_drawn for one in built)


def measure(folder: Path, messages: int) -> Result:
    chat_id = fill(folder / "chats.sqlite", messages)
    worker, engine, notice_list = ChatWorker(folder / "chats.sqlite"), LocalEngine(), NoticeList()
    pair_loader = PairLoader(engine, notice_list, LoadingMarker(folder / "loading.json"))
    transcript = Transcript()
    transcript.resize(900, 720)
    transcript.show()
    queue = AnswerQueue(engine, pair_loader, notice_list, lambda _chat, _pair: AnswerSettings())
    stored = StoredChats(worker, notice_list)
    chats, page = OpenChats(stored, queue, notice_list, ChatSettings, lambda: stored), ChatPage(transcript)
    chats.current_changed.connect(page.show)
    page.show(chats.current)
    ready = time.perf_counter() + 0.5
    Steps().run_until(lambda: time.perf_counter() > ready)

    before, opening, began = memory_mb(), Steps(), time.perf_counter()
    chats.open(chat_id)
    opening.run_until(lambda: len(chats.current.messages) > 0 and is_drawn(transcript))
    first_screen = time.perf_counter() - began
    opened = memory_mb()

    scrolling, bar, began = Steps(), transcript.column.verticalScrollBar(), time.perf_counter()
    while bar.value() > 0:
        bar.setValue(max(0, bar.value() - 2000))
        scrolling.run_until(lambda: is_drawn(transcript))
    result = Result(
        messages=messages,
        first_screen_ms=round(1000 * first_screen, 1),
        opening_longest_step_ms=opening.longest(),
        opening_steps_over_16_ms=opening.slow(),
        opening_memory_mb=round(opened - before, 1),
        scrolling_seconds=round(time.perf_counter() - began, 1),
        scrolling_longest_step_ms=scrolling.longest(),
        scrolling_steps_over_16_ms=scrolling.slow(),
        scrolling_memory_mb=round(memory_mb() - opened, 1),
        widgets_at_the_end=sum(entry.widget is not None for entry in transcript.column.entries),
    )
    chats.shut_down()
    worker.close()
    transcript.close()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    application = QApplication([sys.argv[0]])
    stylesheet.apply(application)
    with tempfile.TemporaryDirectory() as folder:
        result = asdict(measure(Path(folder), options.messages))
    if not options.json:
        for name, value in result.items():
            print(f"{name.replace('_', ' '):<32} {value}")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
