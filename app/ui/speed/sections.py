"""The sections of the Speed panel about more than one answer: speed by draft length, and what drafting pays on.

Each is hidden until there is something to show.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.protocol.messages import DraftLength, KindFigures, TextKind
from app.protocol.statistics import acceptance_rate, kind_speed
from app.ui.speed import wording
from app.ui.speed.drawings import LengthCurve
from app.ui.speed.parts import Heading
from app.ui.widgets import theme, units
from app.ui.widgets.controls import explain, label
from app.ui.widgets.theme import SPACING

_LEAST_TOKENS = 20
"""With fewer the figures of a kind of text are luck."""


class CurveSection(QWidget):
    """Tokens per second by draft length, as the engine worked it out after the last answer."""

    def __init__(self) -> None:
        super().__init__()
        self._curve = LengthCurve()
        _lay_out(self, Heading("Speed by draft length"), self._curve)
        explain(self, wording.HELP["curve"])
        self.hide()

    def show_curve(self, speeds: Sequence[float], in_use: int | None, chosen: DraftLength) -> None:
        """``in_use``: the draft length of the last answer; ``chosen``: what the next one is asked with."""
        fixed = chosen if chosen != "auto" else None
        self._curve.show_curve(speeds, in_use, fixed)
        self.setVisible(bool(speeds))


class KindsSection(QWidget):
    """A row for each kind of text: how much was kept, and how much faster that made the target."""

    def __init__(self) -> None:
        super().__init__()
        self._rows = {kind: _KindRow(name) for kind, name in wording.KINDS.items()}
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * SPACING)
        grid.setVerticalSpacing(SPACING)
        grid.setColumnStretch(0, 1)
        for line, row in enumerate(self._rows.values()):
            for column, part in enumerate(row.parts):
                grid.addWidget(part, line, column)
        body = QWidget()
        body.setLayout(grid)
        grid.setContentsMargins(0, 0, 0, 0)
        _lay_out(self, Heading("What drafting pays on"), body)
        explain(self, wording.HELP["kinds"])
        self.hide()

    def show_kinds(self, kinds: Sequence[KindFigures], plain: float | None) -> None:
        """``plain``: the measured plain speed, ``None`` where there is none."""
        known = {one.kind: one for one in kinds if one.tokens >= _LEAST_TOKENS}
        for kind, row in self._rows.items():
            row.show_figures(known.get(kind), plain)
        self.setVisible(bool(known))

    def texts(self) -> dict[TextKind, str]:
        """What the visible rows say."""
        return {kind: row.text() for kind, row in self._rows.items() if not row.parts[0].isHidden()}


class _KindRow:
    """The labels of one kind of text."""

    def __init__(self, name: str) -> None:
        self._name = label(name)
        self._acceptance = label(role="quiet", figures=True)
        self._gain = label(figures=True)
        self.parts: tuple[QLabel, ...] = (self._name, self._acceptance, self._gain)
        for part in self.parts[1:]:
            part.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for part in self.parts:
            part.hide()

    def show_figures(self, figures: KindFigures | None, plain: float | None) -> None:
        if figures is not None:
            speed = kind_speed(figures)
            rate = acceptance_rate(figures.accepted, figures.tested)
            gain = speed / plain if speed and plain else None
            self._acceptance.setText(units.accepted(rate) if rate is not None else "not drafted")
            self._gain.setText(units.factor(gain) if gain is not None else units.speed(speed))
            theme.set_role(self._gain, "warning" if gain is not None and gain < wording.SLOWER else "plain")
            for part in self.parts:
                explain(part, wording.kind_details(figures, plain))
        for part in self.parts:
            part.setVisible(figures is not None)

    def text(self) -> str:
        return " · ".join(part.text() for part in self.parts)


def _lay_out(section: QWidget, heading: Heading, body: QWidget) -> None:
    column = QVBoxLayout(section)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(2 * SPACING)
    column.addWidget(heading)
    column.addWidget(body)
