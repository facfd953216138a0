"""How much the window pays for a fast answer: 10,000 tokens at 1,000 tok/s through the real transcript.

    python -m benchmarks.transcript [--tokens N] [--speed N] [--thinking] [--json]

``--thinking``: the same as 50,000 characters of thinking, while it is closed, while it is open, and when it is opened
after its end, where an update is one from the click until all is drawn.

An update is what the window thread does between two waits for events: taking tokens, drawing Markdown, laying out,
painting. The median is over updates that did anything. Busy is the share of time the thread does that. Figures on a
loaded machine include waiting for a core, so the time on the processor is given too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import accumulate

import msgspec
from PySide6.QtCore import QCoreApplication, QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.protocol.events import Piece
from app.ui.chat.answer import AnswerMessage, ThinkingPart
from app.ui.chat.transcript import Transcript
from app.ui.shell.all_actions import all_actions
from app.ui.widgets import stylesheet
from tests.ui.chat import stored

SECTION = """## {n}. Where the time of a round goes

A **verify pass** covers the pending token and the draft, so its cost grows with the *draft length*. On most machines it
grows slowly at first, because reading the weights takes longer than the arithmetic; see `Round.verify_seconds` and
[the definition](https://example.org/rounds) for what is counted. Number {n} differs from the others in this sentence.

- The draft proposes up to five tokens, one at a time.
- The target checks all of them **at once**:
  - what agrees is kept,
  - what does not is thrown away together with all that follows it.
- The target's own token is added in any case, so every pass yields at least one.

```python
class Panel{n}:
    \"\"\"Shows how drafting is doing.\"\"\"

    def __init__(self, window: float = 3.0) -> None:
        self.rounds: deque[Round] = deque(maxlen=240)  # about a minute
        self.window = window

    def kept(self) -> float | None:
        tested = sum(r.tested for r in self.rounds)
        return sum(r.accepted for r in self.rounds) / tested if tested else None
```

1. Measure the plain speed first, {n} times if need be.
2. Then switch the draft on and read `tokens a pass`.
3. Compare: a speed-up below `1.0×` means that drafting does not pay here.

| Draft length | Kept | Tokens a pass | Speed |
|---|--:|--:|--:|
| 0 | – | 1.0 | 41 tok/s |
| 3 | 81 % | 2.6 | 69 tok/s |
| 5 | 72 % | 3.1 | 74 tok/s |

> A longer draft is not always a faster one: the tail is rarely kept, and each token of it costs time.

"""
_TOKEN = re.compile(r" ?[A-Za-z]{1,5}|\d{1,3}|\n+| {1,4}|.", re.DOTALL)
_FEEDS_PER_SECOND = 60
THINKING = 50_000
"""Characters."""


@dataclass
class Figures:
    """One run. Times in milliseconds, shares of the whole time."""

    tints: bool
    thinking: str
    """Empty: the tokens are the answer."""
    tokens: int
    seconds: float
    updates: int
    longest_update_ms: float
    updates_over_16_ms: int
    longest_update_cpu_ms: float
    median_update_ms: float
    busy_share: float
    busy_cpu_share: float


def tokens(count: int) -> list[Piece]:
    """An answer of this many tokens, three of four of them from the draft."""
    texts: list[str] = []
    section = 0
    while len(texts) < count:
        section += 1
        texts += _TOKEN.findall(SECTION.format(n=section))
    return [
        Piece(text=text, round=at // 4, drafter="model" if at % 4 else None, rejected=None if at % 4 else " guess")
        for at, text in enumerate(texts[:count])
    ]


class Meter:
    """Runs the event loop and times what it does between two waits."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Handle events until ``is_over``, waiting a millisecond where there are none."""
        while not is_over():
            wall, cpu = time.perf_counter(), time.thread_time()
            QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents)
            self.wall.append(time.perf_counter() - wall)
            self.cpu.append(time.thread_time() - cpu)
            time.sleep(0.001)


def run(count: int, speed: int, *, tints: bool, thinking: str = "") -> Figures:
    """Stream ``count`` tokens at ``speed`` tokens per second. ``thinking``: as thinking that is ``closed``, ``open`` or
    ``opened later``."""
    transcript = Transcript(all_actions())
    transcript.resize(900, 720)
    transcript.set_show_drafted(tints)
    transcript.show()
    for turn in range(10):
        transcript.add_all([stored.question(f"u{turn}", "An earlier question")])
        transcript.add_all([stored.answer(f"a{turn}", SECTION.format(n=turn))])
    transcript.add_all([stored.question("question", "How does a round spend its time?")])
    ready_at = time.perf_counter() + 1.5
    Meter().run_until(lambda: time.perf_counter() > ready_at)

    pieces = [msgspec.structs.replace(piece, thinking=bool(thinking)) for piece in tokens(count)]
    sent, ends_at = 0, math.inf
    feeder = QTimer(interval=1000 // _FEEDS_PER_SECOND)
    meter = Meter()
    began = time.perf_counter()

    def part() -> ThinkingPart:
        widget = transcript.column.entries[-1].widget
        assert isinstance(widget, AnswerMessage) and widget.thinking is not None
        return widget.thinking

    def feed() -> None:
        nonlocal sent, ends_at
        due = min(count, int((time.perf_counter() - began) * speed))
        if due > sent:
            transcript.append_pieces(pieces[sent:due])
            if thinking == "open" and not sent:
                part().button.click()
            sent = due
        if sent == count:
            feeder.stop()
            text = "".join(piece.text for piece in pieces)
            ended = stored.answer("answer", "" if thinking else text)
            transcript.finish_answer(dataclasses.replace(ended, thinking=text if thinking else ""))
            ends_at = time.perf_counter() + 0.3

    feeder.timeout.connect(feed)
    transcript.set_busy(True)
    transcript.begin_answer(stored.answer("answer"))
    feeder.start()
    meter.run_until(lambda: time.perf_counter() > ends_at)
    if thinking == "opened later":
        meter, began = Meter(), time.perf_counter()
        QTimer.singleShot(0, part().button.click)
        meter.run_until(lambda: time.perf_counter() > began + 0.2 and part().is_open and part().is_drawn())
    seconds = time.perf_counter() - began
    transcript.close()
    transcript.deleteLater()
    updates = sorted(update for update in meter.wall if update > 0.0002)
    return Figures(
        tints=tints,
        thinking=thinking,
        tokens=count,
        seconds=round(seconds, 2),
        updates=len(updates),
        longest_update_ms=round(updates[-1] * 1000, 1),
        updates_over_16_ms=sum(update > 0.016 for update in updates),
        longest_update_cpu_ms=round(max(meter.cpu) * 1000, 1),
        median_update_ms=round(updates[len(updates) // 2] * 1000, 2),
        busy_share=round(sum(meter.wall) / seconds, 3),
        busy_cpu_share=round(sum(meter.cpu) / seconds, 3),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=10_000)
    parser.add_argument("--speed", type=int, default=1000, help="tokens per second")
    parser.add_argument("--thinking", action="store_true", help=f"{THINKING:,} characters of thinking")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    application = QApplication([sys.argv[0]])
    stylesheet.apply(application)
    if options.thinking:
        count = bisect_left(list(accumulate(len(piece.text) for piece in tokens(THINKING))), THINKING)
        results = [run(count, options.speed, tints=False, thinking=how) for how in ("closed", "open", "opened later")]
    else:
        results = [run(options.tokens, options.speed, tints=tints) for tints in (False, True)]
    if not options.json:
        print("thinking      tints   tokens   longest     (cpu)  > 16 ms    median   busy  (cpu)")
        for r in results:
            print(
                f"{r.thinking or '–':<13} {'on' if r.tints else 'off':<6} {r.tokens:>7} {r.longest_update_ms:>6} ms "
                f"{r.longest_update_cpu_ms:>6} ms {r.updates_over_16_ms:>8} {r.median_update_ms:>6} ms "
                f"{r.busy_share:>6.1%} {r.busy_cpu_share:>6.1%}"
            )
    print(json.dumps([asdict(result) for result in results]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
