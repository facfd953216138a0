"""Hostile code blocks and Markdown through the real transcript: the longest step of the event loop, and hangs.

    python -m benchmarks.hostile_view [--texts N] [--seed N] [--over MS] [--json]

Each text is shown as a stored answer or streamed as a growing one, with tints, in a transcript that is emptied now and
then; with --themes its theme changes sometimes, which styles all widgets anew in one step. A step is what the window's
thread does between two waits for events; on a busy machine look at its time on the processor, by which the worst are
listed: during the rest others had it. Code is highlighted meanwhile as in the app, but not waited for: what a
hostile block costs the helper process may be seconds.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PySide6.QtCore import QCoreApplication, QEvent, QEventLoop
from PySide6.QtWidgets import QApplication

from app.helper.highlighting import languages
from app.protocol.events import Piece
from app.protocol.options import DrafterName
from app.ui.chat.answer import AnswerMessage
from app.ui.chat.markdown.code_blocks import highlighter
from app.ui.chat.transcript import Transcript
from app.ui.shell.all_actions import all_actions
from app.ui.widgets import stylesheet, theme
from tests.ui.chat import stored

HANG_SECONDS = 20.0
_PER_CHAT = 20
_OPENING = (
    "[",
    "{",
    "(",
    "<",
    "<a>",
    "[{(<",
    "/*",
    "<!--",
    "${",
    "`",
    "'",
    '"""',
    "\\",
    "begin ",
    "|",
    "| a ",
    "> ",
    "- ",
)
_INLINE = (
    "*",
    "**",
    "_",
    "__",
    "`",
    "``",
    "~~",
    "[",
    "](",
    "![",
    "<",
    "&",
    "&amp;",
    "\\",
    "!",
    "](<",
    "[a](",
    "[a][",
    "***a",
    "_a_",
)
_BLOCK = (
    "> ",
    "- ",
    "1. ",
    "    ",
    "\t",
    "# ",
    "| a ",
    "|-",
    "---\n",
    "===\n",
    "```",
    "~~~",
    "* * ",
    "+ ",
    "[a]: ",
    "<div>",
    "- [ ] ",
)
_LETTERS = "abc xyz 0129 \n\n*_`[]()<>#|-+!~&\\\t'\":;/=😀é中\u202e\u0300\ufeff\x00\x1b"


def code(chance: random.Random) -> str:
    """A fenced block: nested, repeated, random or with long lines."""
    language = chance.choice(_NAMES)
    size = int(10 ** chance.uniform(1, 4.3))
    kind = chance.randrange(5)
    opening = chance.choice(_OPENING)
    if kind == 0:
        body = opening * (size // len(opening))
    elif kind == 1:
        body = f"a = {opening} b\n" * (size // (len(opening) + 7))
    elif kind == 2:
        body = "".join(chance.choices(_LETTERS, k=size))
    elif kind == 3:
        body = f"{opening}{chance.choice(['x', ' ', '1', 'word ', '. '])}" * (size // 6)
    else:
        body = "\n" * min(size, 3000)
    end = "\n```\n" if chance.random() < 0.8 else ""
    return f"```{language}\n{body}{end}"


def markdown(chance: random.Random) -> str:
    """Marks nested, repeated and mixed, and tables."""
    size = int(10 ** chance.uniform(1, 4.3))
    kind = chance.randrange(7)
    if kind == 6:
        return table(chance, size)
    if kind == 0:
        mark = chance.choice(_INLINE)
        return mark * (size // len(mark))
    if kind == 1:
        mark = chance.choice(_INLINE)
        return f"{mark}a " * (size // (len(mark) + 2))
    if kind == 2:
        mark = chance.choice(_BLOCK)
        return mark * (size // len(mark))
    if kind == 3:
        mark = chance.choice(_BLOCK)
        return "".join(f"{mark * chance.randint(1, 4)}{chance.choice(_INLINE)}a b\n" for _ in range(size // 10))
    if kind == 4:
        return "".join(chance.choices(_LETTERS, k=size))
    parts = (
        chance.choice(chance.choice((_INLINE, _BLOCK, ("a", " ", "\n", "\n\n", "word")))) for _ in range(size // 3)
    )
    return "".join(parts)


def table(chance: random.Random, size: int) -> str:
    """Few or many columns, with cells of marks."""
    columns = int(10 ** chance.uniform(0, 1.7))
    row = f"| {chance.choice(_INLINE)}a " * columns + "|\n"
    return f"{'| a ' * columns}|\n{'|---' * columns}|\n{row * (size // len(row) + 1)}"


_NAMES = sorted(languages())


@dataclass
class Steps:
    """Runs the event loop, step by step, and remembers the long ones."""

    over: float
    longest: float = 0.0
    longest_cpu: float = 0.0
    count: int = 0
    long: list[tuple[float, float, str]] = field(default_factory=list)

    def run(self, name: str, is_over: Callable[[], bool]) -> None:
        """Handle events until ``is_over``."""
        while not is_over():
            self.one(name, lambda: QCoreApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents))
            time.sleep(0.0005)

    def one(self, name: str, step: Callable[[], object]) -> None:
        """Anything else that the window's thread does in one go."""
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        wall, cpu = time.perf_counter(), time.thread_time()
        step()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        faulthandler.cancel_dump_traceback_later()
        self.count += 1
        self.longest, self.longest_cpu = max(self.longest, wall), max(self.longest_cpu, cpu)
        if wall > self.over:
            self.long.append((wall, cpu, name))


def pieces(text: str, chance: random.Random) -> Iterator[list[Piece]]:
    """The text as it streams: tokens, in portions as they come in one frame."""
    at = number = 0
    while at < len(text):
        portion = []
        for _ in range(chance.randint(1, 40)):
            size = chance.randint(1, 6)
            drafter: DrafterName | None = "model" if number % 3 else None
            portion.append(Piece(text=text[at : at + size], round=number // 3, drafter=drafter, rejected=None))
            at, number = at + size, number + 1
        yield [piece for piece in portion if piece.text]


def view_of(transcript: Transcript) -> AnswerMessage | None:
    """The last answer, if it has a widget already."""
    widget = transcript.column.entries[-1].widget
    return widget if isinstance(widget, AnswerMessage) else None


def show(transcript: Transcript, steps: Steps, number: int, text: str, chance: random.Random) -> None:
    """Show one text, and wait until it is drawn."""
    name = f"{number}"
    if chance.random() < 0.5:
        own = [piece for portion in pieces(text, chance) for piece in portion]
        steps.one(f"{name} add", lambda: transcript.add_all([stored.answer(f"a{number}", text, pieces=own)]))
    else:
        steps.one(f"{name} begin", lambda: transcript.begin_answer(stored.answer(f"a{number}")))
        for portion in pieces(text, chance):
            steps.one(f"{name} append", lambda portion=portion: transcript.append_pieces(portion))  # type: ignore[misc]
            steps.one(f"{name} events", QCoreApplication.processEvents)
        steps.one(f"{name} finish", lambda: transcript.finish_answer(stored.answer(f"a{number}", text)))
    steps.run(f"{name} draw", lambda: (answer := view_of(transcript)) is None or answer.view.is_drawn)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--over", type=float, default=100.0, help="milliseconds from which a step is named")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="end after so long, with the texts shown so far"
    )
    parser.add_argument("--themes", action="store_true", help="change the theme now and then")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    application = QApplication([sys.argv[0]])
    stylesheet.apply(application)
    transcript = Transcript(all_actions())
    transcript.resize(900, 720)
    transcript.set_show_drafted(True)
    transcript.show()
    gc.freeze()  # as the application does when it has started
    steps = Steps(options.over / 1000)
    characters = shown = 0
    began = time.perf_counter()
    for number in range(options.first, options.first + options.texts):
        if time.perf_counter() - began > options.seconds:
            break
        shown += 1
        if shown % 250 == 0:
            passed = time.perf_counter() - began
            longest = f"longest {steps.longest * 1000:.0f} ms ({steps.longest_cpu * 1000:.0f} on the processor)"
            print(f"{shown} texts, {passed:.0f} s, {longest}", file=sys.stderr, flush=True)
        chance = random.Random(f"{options.seed} {number}")
        text = code(chance) if chance.random() < 0.5 else markdown(chance)
        characters += len(text)
        if number % _PER_CHAT == 0:
            steps.one(f"{number} clear", transcript.clear)
            # As an application's loop would: without one Qt keeps what was to be deleted.
            steps.one(f"{number} delete", lambda: QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete))
            if options.themes:
                steps.one(f"{number} theme", lambda: theme.override(chance.choice((theme.LIGHT, theme.DARK))))  # noqa: B023
        show(transcript, steps, number, text, chance)
    seconds = time.perf_counter() - began
    highlighter().close()
    figures = {
        "texts": shown,
        "characters": characters,
        "seconds": round(seconds, 1),
        "steps": steps.count,
        "longest_ms": round(steps.longest * 1000, 1),
        "longest_cpu_ms": round(steps.longest_cpu * 1000, 1),
        f"over_{options.over:.0f}_ms": len(steps.long),
        f"over_{options.over:.0f}_ms_cpu": sum(cpu > steps.over for _, cpu, _ in steps.long),
        "kinds": dict(Counter(name.split()[1] for *_, name in steps.long)),
        "worst": [
            f"{name}: {wall * 1000:.0f} ms ({cpu * 1000:.0f} on the processor)"
            for wall, cpu, name in sorted(steps.long, key=lambda step: step[1], reverse=True)[:12]
        ],
    }
    print(json.dumps(figures, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
