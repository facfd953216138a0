"""The line above the composer that shows an answer for another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QTimer, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app import words
from app.ui.engine import Priority
from app.ui.engine.queue import wait_for
from app.ui.widgets import theme
from app.ui.widgets.column import prose_margin
from app.ui.widgets.controls import ElidedLabel, label, plain_tooltip, row, small_button
from app.ui.widgets.theme import SPACING
from app.words import printable

if TYPE_CHECKING:
    from app.ui.server.serving import ServedAnswer, Serving

_REFRESH_MS = 100
_LONGEST_NAME = 40


class ServingBar(QWidget):
    """Hidden unless another program waits for an answer; aligned with the messages above. ``stop`` is its button."""

    def __init__(self) -> None:
        super().__init__()
        self._dot = label("●", "good")
        self._who = ElidedLabel("quiet")
        self._figures = label(role="quiet", figures=True)
        self.stop = small_button("Stop")
        self.stop.setAccessibleName("Stop the answer for the other program")
        self._row: QHBoxLayout = row(self._dot, (self._who, 1), self._figures, self.stop, on=self)
        theme.follow_zoom(self, self._align)
        self._serving: Serving | None = None
        self._refresh = QTimer(self, singleShot=True, interval=_REFRESH_MS)
        self._refresh.timeout.connect(self._show)
        self.hide()

    def follow(self, serving: Serving) -> None:
        """Show this answer from now on."""
        self._serving = serving
        serving.answer_changed.connect(self._show)
        serving.answer_advanced.connect(self._on_answer_advanced)
        self.stop.clicked.connect(serving.stop_answer)

    @Slot()
    def _on_answer_advanced(self) -> None:
        if not self._refresh.isActive():
            self._refresh.start()

    @Slot()
    def _show(self) -> None:
        serving = self._serving
        if serving is None or serving.answer is None:
            self._refresh.stop()
            self.hide()
        else:
            answer, before = serving.answer, serving.waits_for()
            is_written = before is None
            self._show_answer(
                answering_title(answer, before), figures_of(answer, is_written=is_written), is_written=is_written
            )

    def _show_answer(self, who: str, figures: str, *, is_written: bool) -> None:
        """``who`` names the program; ``is_written``: the answer is being written, not waiting."""
        theme.set_role(self._dot, "good" if is_written else "quiet")
        if self._who.text() != who:
            self._who.setText(who)
            self._who.setToolTip(plain_tooltip(who))
        self._figures.setText(figures)
        self.setAccessibleName(f"{who} {figures}".strip())
        self.show()

    def _align(self) -> None:
        side = prose_margin(self.font(), self.width())
        self._row.setContentsMargins(side + SPACING, SPACING, side, 0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align()


def name_of(client: str) -> str:
    """A program's name, which can be any text."""
    name = client.partition("/")[0]
    return "another program" if name in ("", "?") else printable(name, _LONGEST_NAME)


def answering_title(answer: ServedAnswer, before: Sequence[Priority] | None) -> str:
    """``Answering for Zed``; ``before``: what it waits for, if it waits."""
    name = name_of(answer.client)
    if before is None:
        return f"Answering for {name}"
    return f"{name[:1].upper()}{name[1:]} is waiting for the {wait_for(before).program}"


def figures_of(answer: ServedAnswer, *, is_written: bool = True) -> str:
    """``214 tokens · 74 tok/s``; empty before the first token, without a speed while it waits."""
    if not answer.tokens:
        return ""
    speed = answer.tokens_per_second() if is_written else None
    return words.tokens(answer.tokens) + (f" · {words.speed(speed)}" if speed else "")
