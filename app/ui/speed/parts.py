"""The rows of the Speed panel that show something; `app.ui.speed.controls` has those one changes something with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QToolButton, QToolTip, QVBoxLayout, QWidget

from app.ui.speed import wording
from app.ui.speed.drawings import Sparkline
from app.ui.widgets import icons, theme, units
from app.ui.widgets.controls import explain, label
from app.ui.widgets.theme import SPACING

_HEADING_ROLES: dict[wording.Mood, str] = {
    "good": "heading-accent",
    "plain": "heading",
    "warning": "heading-warning",
    "bad": "heading-bad",
}


def _row(*widgets: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(2 * SPACING)
    for widget in widgets:
        row.addWidget(widget)
    return row


def _large_figure(text: str = "") -> QLabel:
    return label(text, scale=1.5, bold=True, figures=True)


class StatusLines(QWidget):
    """The status sentence: what in bold, then the figures or the reason; for a pause, what one can do about it.

    Attributes:
        always_draft_button: Ends a pause.
    """

    focus_lost = Signal()
    """The pause that the keyboard was at is over."""

    def __init__(self) -> None:
        super().__init__()
        self._status = wording.Status("", "")
        self._heading = label(role="heading")
        self._detail = label(role="quiet", wraps=True, figures=True)
        self._detail.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._detail.setAlignment(Qt.AlignmentFlag.AlignTop)
        # Two lines are kept free, so that what stands below does not move when the figures come.
        self._detail.setMinimumHeight(2 * self._detail.fontMetrics().lineSpacing())
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACING)
        column.addWidget(self._heading)
        column.addWidget(self._detail)
        column.addWidget(self._pause_buttons())
        explain(self, wording.HELP["status"])

    def _pause_buttons(self) -> QWidget:
        self.always_draft_button = QPushButton("Keep on")
        self._why = QPushButton("Why?")
        self._why.setAccessibleName("Why is drafting paused?")
        for button in (self.always_draft_button, self._why):
            theme.set_role(button, "small")
        self._why.clicked.connect(self._on_why)
        self._buttons = QWidget()
        row = _row(self.always_draft_button, self._why)
        row.addStretch(1)
        row.setContentsMargins(0, SPACING, 0, 0)
        self._buttons.setLayout(row)
        self._buttons.hide()
        return self._buttons

    def set_default_length(self, length: int) -> None:
        """The draft length that "Keep on" begins with."""
        explain(self.always_draft_button, wording.always_draft(length))

    def show_status(self, status: wording.Status) -> None:
        if status == self._status:
            return
        self._status = status
        self._heading.setText(status.heading + status.joint.rstrip(" ·"))
        theme.set_role(self._heading, _HEADING_ROLES[status.mood])
        # A word joiner keeps "tok/s" together, which would break at its slash.
        self._detail.setText(status.detail.replace("/", "/\u2060"))
        self.setAccessibleName(status.sentence)
        if status.why != self._why.whatsThis():
            explain(self._why, status.why)
            self._why.setAccessibleDescription(status.why)
        # Before they are hidden: else the keyboard goes wherever Qt finds a place.
        if not status.why and self.window().focusWidget() in (self.always_draft_button, self._why):
            self.focus_lost.emit()
        self._buttons.setVisible(bool(status.why))

    @Slot()
    def _on_why(self) -> None:
        # The tool tip at once, and also for those who do not point.
        place = self._why.mapToGlobal(self._why.rect().bottomLeft())
        QToolTip.showText(place, self._why.toolTip(), self._why)


class LiveFigure(QWidget):
    """A name, a number with its unit, and the last minute of it."""

    def __init__(self, name: str, line_name: str, widest: str, help_text: str, ceiling: float | None = None) -> None:
        """``widest`` is the longest text the number may become: it fixes the width, so that nothing dances."""
        super().__init__()
        self._name = name
        self._number = _large_figure(units.UNKNOWN)
        self._line = Sparkline(line_name, ceiling)
        left = QWidget()
        left.setFixedWidth(self._number.fontMetrics().horizontalAdvance(widest) + SPACING)
        column = QVBoxLayout(left)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(label(name, "quiet"))
        column.addWidget(self._number)
        self.setLayout(_row(left, self._line))
        self.setAccessibleName(name)
        explain(self, help_text)

    def show_figure(self, text: str, values: list[float | None], mark: float | None = None) -> None:
        if text != self._number.text():
            self._number.setText(text)
            self._number.setAccessibleName(f"{self._name}: {text}")
        self._line.show_values(values, mark, f"Now {text}")

    def text(self) -> str:
        return self._number.text()

    def line(self) -> Sparkline:
        return self._line


class PlainSpeed(QWidget):
    """The button that measures plain speed; once that is known, how much faster the answer was.

    Attributes:
        buttons: Those that measure, of which one is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self._measuring = False
        self._can_measure = False
        self._known = False
        self._button = QPushButton("Measure plain speed")
        explain(self._button, wording.HELP["measure"])
        self._factor = _large_figure()
        explain(self._factor, wording.HELP["speed-up"])
        self._baseline = label(role="quiet", figures=True)
        self._again = QToolButton()
        icons.set_icon(self._again, "regenerate")
        self._again.setAccessibleName("Measure plain speed again")
        explain(self._again, "Measure plain speed again. " + wording.HELP["measure"])
        column = QVBoxLayout()
        column.setSpacing(0)
        column.addWidget(self._baseline)
        column.addWidget(self._factor)
        row = _row(self._button)
        row.addLayout(column)
        row.addStretch(1)
        row.addWidget(self._again)
        self.setLayout(row)
        self.buttons = (self._button, self._again)
        self._arrange()

    def show_speeds(self, plain: float | None, speed_up: float | None, *, can_measure: bool) -> None:
        self._known = plain is not None
        self._can_measure = can_measure
        self._factor.setText(units.factor(speed_up))
        theme.set_role(self._factor, "warning" if speed_up is not None and speed_up < wording.SLOWER else "plain")
        self._baseline.setText(f"Plain {units.speed(plain)}")
        self._arrange()

    def set_measuring(self, measuring: bool) -> None:
        self._measuring = measuring
        self._arrange()

    def _arrange(self) -> None:
        shows_figure = self._known and not self._measuring
        self._button.setVisible(not shows_figure)
        for part in (self._factor, self._baseline, self._again):
            part.setVisible(shows_figure)
        self._button.setText("Measuring plain speed …" if self._measuring else "Measure plain speed")
        for button in self.buttons:
            button.setEnabled(self._can_measure and not self._measuring)


class Heading(QWidget):
    """A small heading with, where it has one, its figure on the right."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._value = label(figures=True)
        row = _row(label(text, "heading"))
        row.addStretch(1)
        row.addWidget(self._value)
        self.setLayout(row)

    def set_value(self, text: str) -> None:
        self._value.setText(text)
