"""How long the window's chat waits while eight other programs keep its engine busy.

    python -m tests.benchmarks.served_chat [--target FILE] [--draft FILE] [--messages N] [--clients N] [--json]

The real parts of a window without its widgets, the real server process, and clients that ask for one answer after the
other. A message is sent at random moments while a program's answer is being written. Measured from there:

- until the engine is free: in milliseconds, and ÷ the median pass of the answers for programs ("passes");
- passes of the program's answer that began only after the message was sent, by the engine's own clock, and how often;
- until the first token, beside that of the same chat with nobody else there.

Every answer of a program is compared with what it is without interruptions.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from PySide6.QtCore import QEventLoop, QObject, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.protocol.events import GenerationFinished, RoundsReceived
from app.ui.chat.conversation import AnswerSettings
from tests.support.served import Json
from tests.ui.server.rig import ServingRig

GUIDE = Path(__file__).parents[2] / "resources" / "guide"
ANSWER_TOKENS = 8
SERVED_TOKENS = 300
SEEDS = 16


class Waits:
    """Lets the event loop run until something is so."""

    def waitUntil(self, condition: Callable[[], bool], timeout: int = 0) -> None:  # noqa: N802, ARG002 - as QtBot
        loop = QEventLoop()
        timer = QTimer(interval=1)
        timer.timeout.connect(lambda: loop.quit() if condition() else None)
        timer.start()
        loop.exec()
        timer.stop()

    def waitSignal(self, signal: Any, timeout: int = 0) -> Any:  # noqa: N802, ARG002 - as QtBot
        waits = self

        class Waiting:
            def __enter__(self) -> None:
                self.told = False
                signal.connect(self._tell)

            def _tell(self, *_: object) -> None:
                self.told = True

            def __exit__(self, *_: object) -> None:
                waits.waitUntil(lambda: self.told)
                signal.disconnect(self._tell)

        return Waiting()


class Watch(QObject):
    """Times of what is written for programs, on this process's clock."""

    def __init__(self, rig: ServingRig) -> None:
        super().__init__()
        self._rig = rig
        self.passes: list[float] = []
        """Seconds of each."""
        self._ends: list[float] = []
        """Of the passes of this part, on the engine's clock."""
        self._offset = float("inf")
        self.ended = 0.0
        self.late: list[int] = []
        self.sent = 0.0
        rig.engine.rounds_received.connect(self._on_rounds)
        rig.engine.generation_finished.connect(self._on_finished)

    def _on_rounds(self, event: RoundsReceived) -> None:
        if not self._rig.serving.is_own(event.request):
            return
        now = time.monotonic()
        for one in event.rounds:
            if one.verify_passes:
                self.passes.append(one.draft_seconds + one.verify_seconds + one.other_seconds)
                self._ends.append(one.time)
        self._offset = min(self._offset, now - event.rounds[-1].time)

    def _on_finished(self, event: GenerationFinished) -> None:
        if not self._rig.serving.is_own(event.request):
            return
        if event.finish_reason == "cancelled" and self.sent:
            self.ended = time.monotonic()
            begins = self._ends[:-1]  # each begins where the one before ends
            self.late.append(sum(begun + self._offset > self.sent for begun in begins))
        self._ends, self._offset = [], float("inf")


def measure(target: Path, draft: Path, messages: int, clients: int, folder: Path) -> dict[str, Any]:
    """All figures."""
    rig = ServingRig(cast(QtBot, Waits()), folder, (target, draft))
    rig.load()
    rig.settings = AnswerSettings(max_tokens=ANSWER_TOKENS)
    rig.ask("Hello")
    alone = [_first_token(rig) for _ in range(messages)]
    rig.listen()
    expected = {seed: rig.until_done(rig.submit(_served, rig, seed)) for seed in range(SEEDS)}
    watch, stop, wrong, done = Watch(rig), threading.Event(), [0], [0]

    def client(number: int) -> None:
        seed = number
        while not stop.is_set():
            seed = (seed + 1) % SEEDS
            answer = _served(rig, seed)
            done[0] += 1
            wrong[0] += answer != expected[seed]

    asking = [rig.submit(client, number) for number in range(clients)]
    free, first = [], []
    for _ in range(messages):
        rig.until(lambda: rig.serving.is_writing() and rig.serving.answer is not None and rig.serving.answer.tokens > 3)
        _pause(random.randrange(30))
        if not rig.serving.is_writing():
            continue
        watch.sent, watch.ended = time.monotonic(), 0.0
        first.append(_first_token(rig))
        if watch.ended:
            free.append(watch.ended - watch.sent)
        watch.sent = 0.0
    stop.set()
    for one in asking:
        rig.until_done(one)
    passes = statistics.median(watch.passes)
    figures = {
        "messages": len(first),
        "interruptions": len(free),
        "clients": clients,
        "pass_ms": round(passes * 1e3, 2),
        "longest_pass_ms": round(max(watch.passes) * 1e3, 2),
        "until_free_ms": [round(1e3 * value, 2) for value in (statistics.median(free), max(free))],
        "until_free_passes": [round(value / passes, 2) for value in (statistics.median(free), max(free))],
        "passes_begun_after_send": dict(sorted(Counter(watch.late).items())),
        "first_token_ms": [round(1e3 * value, 1) for value in (statistics.median(first), max(first))],
        "first_token_alone_ms": [round(1e3 * value, 1) for value in (statistics.median(alone), max(alone))],
        "served_answers": done[0],
        "served_answers_that_differ": wrong[0],
    }
    rig.close()
    return figures


def _served(rig: ServingRig, seed: int) -> str:
    fields: Json = {"max_tokens": SERVED_TOKENS, "seed": seed, "temperature": 1.0}
    message = rig.client.chat(f"Tell me story number {seed}.", **fields)["choices"][0]["message"]
    return f"{message.get('reasoning_content')}{message['content']}"


def _first_token(rig: ServingRig) -> float:
    """Seconds from Send in a new chat to the first token; returns when the answer has ended."""
    rig.chats.new()
    sent = time.monotonic()
    assert rig.model.send("And now for something else?")
    rig.until(lambda: rig.model.live is None or bool(rig.model.live.pieces))
    seconds = time.monotonic() - sent
    rig.settle()
    return seconds


def _pause(milliseconds: int) -> None:
    end = time.monotonic() + milliseconds / 1e3
    Waits().waitUntil(lambda: time.monotonic() >= end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=GUIDE / "guide-target.gguf")
    parser.add_argument("--draft", type=Path, default=GUIDE / "guide-draft.gguf")
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    application = QApplication([])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SLIPSTREAM_HOME"] = folder
        figures = measure(options.target, options.draft, options.messages, options.clients, Path(folder))
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name.replace('_', ' ')}: {value}")
    application.quit()


if __name__ == "__main__":
    main()
