"""What the Speed panel shows; its settings are in `app.ui.speed.controls`.

About the answer: the status, live figures, speed-up. About several answers, and hidden until there is something to
show: speed by draft length, and where drafting helps.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QGridLayout, QLabel, QPushButton, QToolButton, QToolTip, QWidget

from app import words
from app.protocol.events import KindFigures
from app.protocol.statistics import acceptance_rate, kind_speed
from app.ui.speed import wording
from app.ui.speed.drawings import PositionBars, Sparkline
from app.ui.speed.wording import HELP
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import TOP, column, explain, label, row, small_button
from app.ui.widgets.theme import SPACING

_HEADING_ROLES: dict[wording.Mood, str] = {
    "good": "heading-accent",
    "plain": "heading",
    "warning": "heading-warning",
    "bad": "heading-bad",
}
_MEASURE = "Measure without a draft"
_LEAST_TOKENS = 20
"""With fewer tokens than this, the figures for a kind of text are mostly chance."""


class Heading(QWidget):
    """A small heading with, where it has one, its figure on the right."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._value = label(figures=True)
        row(label(text, "heading"), None, self._value, on=self)

    def set_value(self, text: str) -> None:
        self._value.setText(text)


class StatusLines(QWidget):
    """The status: what drafting does, in bold, then the figures or the reason; for a pause, what can be done about it.
    ``always_draft_button``: ends a pause."""

    focus_lost = Signal()
    """The pause is over, and one of its buttons had the keyboard focus."""

    def __init__(self) -> None:
        super().__init__()
        self._status = wording.Status("", "")
        self._heading = label(role="heading")
        self._detail = label(role="quiet", wraps=True, figures=True)
        self._detail.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._detail.setAlignment(TOP)
        # Room for two lines, so that nothing below moves when the figures arrive.
        detail = self._detail
        theme.follow_zoom(detail, lambda: detail.setMinimumHeight(2 * detail.fontMetrics().lineSpacing()))
        self.always_draft_button = small_button("Always draft")
        self._why = small_button("Why?")
        self._why.setAccessibleName("Why is drafting paused?")
        self._why.clicked.connect(self._on_why)
        self._buttons = QWidget()
        row(self.always_draft_button, self._why, None, margins=(0, SPACING, 0, 0), on=self._buttons)
        self._buttons.hide()
        column(self._heading, self._detail, self._buttons, gap=SPACING, on=self)
        self._details: list[str] = []
        explain(self, HELP["status"])

    def set_default_length(self, length: int) -> None:
        """The draft length that "Always draft" switches to."""
        explain(self.always_draft_button, wording.always_draft(length))

    def show_status(self, status: wording.Status) -> None:
        if status == self._status:
            return
        self._status = status
        self._heading.setText(status.heading)
        theme.set_role(self._heading, _HEADING_ROLES[status.mood])
        # A word joiner keeps "tok/s" together, which would break at its slash.
        self._detail.setText(status.detail.replace("/", "/\u2060"))
        self.setAccessibleName(status.sentence)
        if status.why != self._why.whatsThis():
            explain(self._why, status.why)
            self._why.setAccessibleDescription(status.why)
        # Before they are hidden: otherwise Qt gives the focus to whatever comes next.
        if not status.why and self.window().focusWidget() in (self.always_draft_button, self._why):
            self.focus_lost.emit()
        self._buttons.setVisible(bool(status.why))

    def show_details(self, details: Sequence[str]) -> None:
        """More figures of the answer, in the explanation: one a line."""
        if self._details != list(details):
            self._details = list(details)
            help_text = HELP["status"]
            explain(self, "\n".join([help_text, "", *details]) if details else help_text)

    @Slot()
    def _on_why(self) -> None:
        # Shows the tooltip immediately, and for keyboard users too.
        place = self._why.mapToGlobal(self._why.rect().bottomLeft())
        QToolTip.showText(place, self._why.toolTip(), self._why)


class LiveFigure(QWidget):
    """A name, a number with its unit, and the last minute of it."""

    def __init__(self, name: str, line_name: str, help_text: str, ceiling: float | None = None) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self._number = number = label(words.UNKNOWN, scale=1.5, bold=True, figures=True)
        self._line = Sparkline(line_name, ceiling)
        left = QWidget()
        # As wide as the longest text the number can have, so that nothing moves.
        widest = "8,888 tok/s"
        theme.follow_zoom(left, lambda: left.setFixedWidth(number.fontMetrics().horizontalAdvance(widest) + SPACING))
        column(label(name, "quiet"), self._number, gap=0, on=left)
        row(left, self._line, on=self)
        self._help, self._note = help_text, ""
        explain(self, help_text)

    def show_note(self, note: str) -> None:
        """A sentence before the explanation; empty: none."""
        if note != self._note:
            self._note = note
            explain(self, f"{note}\n\n{self._help}" if note else self._help)

    def show_figure(self, text: str, values: list[float | None], mark: float | None = None) -> None:
        if text != self._number.text():
            self._number.setText(text)
            self._number.setAccessibleName(f"{self.accessibleName()}: {text}")
        self._line.show_values(values, mark, f"Now {text}")


class PlainSpeed(QWidget):
    """The button that measures the speed without a draft; once that is known, how much faster the answer was.
    ``buttons``: those that measure, of which one is shown."""

    def __init__(self) -> None:
        super().__init__()
        self._measuring = False
        self._running_text = ""
        self._can_measure = False
        self._known = False
        self._button = QPushButton(_MEASURE)
        explain(self._button, HELP["measure"])
        self._factor = label(scale=1.5, bold=True, figures=True)
        explain(self._factor, HELP["speed-up"])
        self._baseline = label(role="quiet", figures=True)
        self._again = QToolButton()
        self._again.setAccessibleName("Measure without a draft again")
        icons.set_icon(self._again, "regenerate")
        explain(self._again, "Measure without a draft again. " + HELP["measure"])
        row(self._button, column(self._baseline, self._factor, gap=0), None, self._again, on=self)
        self.buttons = (self._button, self._again)
        self._arrange()

    def show_speeds(self, plain: float | None, speed_up: float | None, *, can_measure: bool) -> None:
        self._known = plain is not None
        self._can_measure = can_measure
        self._factor.setText(words.speed_up(speed_up))
        theme.set_role(self._factor, "warning" if speed_up is not None and speed_up < wording.SLOWER else "plain")
        self._baseline.setText(f"{words.speed(plain)} without a draft")
        self._arrange()

    def set_measuring(self, measuring: bool, *, waits: bool = False) -> None:
        """``waits``: the engine is busy with something that goes first."""
        self._measuring = measuring
        self._running_text = "Waiting to measure…" if waits else "Measuring…"
        self._arrange()

    def _arrange(self) -> None:
        shows_figure = self._known and not self._measuring
        self._button.setVisible(not shows_figure)
        for part in (self._factor, self._baseline, self._again):
            part.setVisible(shows_figure)
        self._button.setText(self._running_text if self._measuring else _MEASURE)
        for button in self.buttons:
            button.setEnabled(self._can_measure and not self._measuring)


class ServerSection(QWidget):
    """With a model on a server: where its figures come from, and how many draft tokens its passes accepted."""

    def __init__(self) -> None:
        super().__init__()
        self._note = label("", "quiet", wraps=True)
        self._note.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._positions = PositionBars()
        self._bars = QWidget()
        column(Heading("Draft tokens accepted per pass"), self._positions, on=self._bars)
        explain(self._bars, HELP["server-positions"])
        column(self._bars, 2 * SPACING, Heading("The server's drafting"), self._note, gap=SPACING, on=self)
        explain(self._note, HELP["server"])
        self.hide()

    def note(self) -> str:
        """What is said about its figures."""
        return self._note.text()

    def show_server(self, note: str, shares: list[float]) -> None:
        """``shares``: of all passes, how many accepted at least 1, 2, … tokens; empty if that isn't known."""
        self._note.setText(note)
        self._bars.setVisible(bool(shares))
        self._positions.show_shares(shares, len(shares))


class KindsSection(QWidget):
    """A row for each kind of text: how much was accepted, and how much faster that made the target."""

    def __init__(self) -> None:
        super().__init__()
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * SPACING)
        grid.setVerticalSpacing(SPACING)
        grid.setColumnStretch(0, 1)
        self._rows = {kind: _labels(grid, name) for kind, name in wording.KINDS.items()}
        column(Heading("Where drafting helps"), grid, on=self)
        explain(self, HELP["kinds"])
        self.hide()

    def show_kinds(self, kinds: Sequence[KindFigures], plain: float | None) -> None:
        """``plain``: the measured plain speed, ``None`` if there is none."""
        known = {one.kind: one for one in kinds if one.tokens >= _LEAST_TOKENS}
        for kind, labels in self._rows.items():
            if (figures := known.get(kind)) is not None:
                _show_kind(labels, figures, plain)
            for part in labels:
                part.setVisible(figures is not None)
        self.setVisible(bool(known))


def _labels(grid: QGridLayout, name: str) -> tuple[QLabel, QLabel, QLabel]:
    """A row with the name of a kind of text, its acceptance rate, and its speed-up."""
    labels = label(name), label(role="quiet", figures=True), label(figures=True)
    line = grid.rowCount()
    for place, part in enumerate(labels):
        if place:
            part.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        part.hide()
        grid.addWidget(part, line, place)
    return labels


def _show_kind(labels: tuple[QLabel, QLabel, QLabel], figures: KindFigures, plain: float | None) -> None:
    speed, rate = kind_speed(figures), acceptance_rate(figures.accepted, figures.tested)
    gain = speed / plain if speed and plain else None
    labels[1].setText(words.accepted(rate) if rate is not None else "not drafted")
    labels[2].setText(words.speed_up(gain) if gain is not None else words.speed(speed))
    theme.set_role(labels[2], "warning" if gain is not None and gain < wording.SLOWER else "plain")
    for part in labels:
        explain(part, wording.kind_details(figures, plain))
