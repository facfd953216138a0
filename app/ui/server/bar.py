"""The line above the composer that says what is being written for another program."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.ui.widgets import theme
from app.ui.widgets.controls import ElidedLabel, label, plain_tooltip, small_button
from app.ui.widgets.entries import prose_margin
from app.ui.widgets.layouts import row
from app.ui.widgets.theme import SPACING


class ServingBar(QWidget):
    """Hidden while nothing is written for anybody; in line with the messages above it.

    Attributes:
        stop: Its button.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dot = label("●", "good")
        self._who = ElidedLabel("quiet")
        self._figures = label(role="quiet", figures=True)
        self.stop = small_button("Stop")
        self.stop.setAccessibleName("Stop the answer for the other program")
        self._row: QHBoxLayout = row(self._dot, (self._who, 1), self._figures, self.stop, on=self)
        theme.follow_zoom(self, self._align)
        self.hide()

    def show_answer(self, who: str, figures: str, *, is_written: bool) -> None:
        """``who`` says for which program; ``is_written``: now, and not later."""
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
