"""Shows an answer with many formulas in the window's message view, and times the turns of the event loop.

    python -m tests.benchmarks.formulas [--formulas N] [--json]

First the formulas are unknown, so that the helper process has to draw each of them; then the same answer is shown
again, and drawn in another theme, when they are known. The figures are the times between two turns of a timer that
always wants one, in milliseconds; ``cpu`` is what the window's thread computed meanwhile. ``painted`` is one formula
painted from its picture, ``drawn`` one drawn from its outlines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QElapsedTimer, QTimer
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QApplication, QScrollArea

from app.ui.chat.markdown.formulas import Pictures, formula_service
from app.ui.chat.markdown.view import MarkdownView
from app.ui.widgets import theme

_FORMS = (
    r"$x_{%d} = \frac{a_{%d}}{b + %d}$",
    r"\(\sqrt{x^2 + %d} \leq \sum_{i=1}^{%d} i^{%d}\)",
    "$$\n\\int_0^{%d} e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{%d} + %d\n$$\n",
    r"\[\begin{pmatrix} %d & b \\ c & %d \end{pmatrix} = \begin{cases} x & x > %d \\ -x & \text{else} \end{cases}\]",
)
SECONDS = 120.0


def page(formulas: int) -> str:
    """An answer with so many different formulas."""
    parts = []
    for number in range(formulas):
        formula = _FORMS[number % len(_FORMS)] % (number, number, number)
        parts.append(f"Step {number}: the value that follows from what was said above is {formula} and so on.\n\n")
    return "".join(parts)


class Gaps:
    """The longest times between two turns of the event loop."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.computed: list[float] = []
        self._computed = 0.0
        self._clock = QElapsedTimer()
        self._timer = QTimer(interval=0)
        self._timer.timeout.connect(self._on_turn)

    def start(self) -> None:
        self.milliseconds.clear()
        self.computed.clear()
        self._computed = time.thread_time()
        self._clock.start()
        self._timer.start()

    def _on_turn(self) -> None:
        self.milliseconds.append(self._clock.nsecsElapsed() / 1e6)
        self._clock.restart()
        now = time.thread_time()
        self.computed.append((now - self._computed) * 1000)
        self._computed = now

    def figures(self) -> dict[str, float]:
        self._timer.stop()
        ordered = sorted(self.milliseconds)
        return {
            "longest": round(ordered[-1], 2),
            "p99.9": round(ordered[int(len(ordered) * 0.999)], 2),
            "over 16 ms": sum(gap > 16 for gap in ordered),
            "longest cpu": round(max(self.computed), 2),
        }


def measure(formulas: int) -> dict[str, object]:
    application = QApplication.instance() or QApplication([])
    area = QScrollArea()
    area.resize(800, 700)
    view = MarkdownView()
    view.set_widths(560, 680)
    area.setWidget(view)
    area.show()
    service, gaps = formula_service(), Gaps()
    text = page(formulas)

    def wait() -> float:
        """Until nothing is left to draw."""
        began = time.perf_counter()
        quiet = 0
        while quiet < 5 and time.perf_counter() - began < SECONDS:
            application.processEvents()
            quiet = quiet + 1 if view.is_drawn and service.is_idle else 0
        return round(time.perf_counter() - began, 2)

    theme.override(theme.LIGHT)
    view.set_text("One $x$ and `code`.")
    wait()
    results: dict[str, object] = {"formulas": formulas, "characters": len(text)}
    for name in ("first", "again"):
        view.set_text("")
        wait()
        gaps.start()
        view.set_text(text)
        results[name] = {"seconds": wait(), **gaps.figures()}
    gaps.start()
    theme.override(theme.DARK)
    results["other theme"] = {"seconds": wait(), **gaps.figures()}
    gaps.start()
    for at in range(0, area.verticalScrollBar().maximum(), 37):
        area.verticalScrollBar().setValue(at)
        application.processEvents()
    results["scrolled through"] = gaps.figures()
    results["one"] = one_formula()
    service.close()
    return results


def one_formula() -> dict[str, float]:
    """Milliseconds for a formula of a usual size."""
    drawings = [one for one in formula_service()._known.values() if one is not None]
    target = QImage(1200, 400, QImage.Format.Format_RGB32)
    painter = QPainter(target)
    current = theme.current()
    pictures = Pictures()
    times: dict[str, list[float]] = {"drawn": [], "painted": []}
    for drawing in drawings:
        for name in ("drawn", "painted"):
            began = time.perf_counter()
            picture = pictures.picture(drawing, 16.0, current.text, 2.0, current)
            painter.drawPixmap(10, 10, picture)
            times[name].append((time.perf_counter() - began) * 1000)
    painter.end()
    return {name: round(statistics.median(found), 4) for name, found in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formulas", type=int, default=100, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    results = measure(options.formulas)
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        for name, found in results.items():
            print(f"{name:18} {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
