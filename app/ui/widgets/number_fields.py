"""Fields for numbers, and the table they stand in."""

from __future__ import annotations

from PySide6.QtCore import QLocale, QRegularExpression, Qt
from PySide6.QtGui import QRegularExpressionValidator
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QSpinBox,
    QWidget,
)

from app.ui.widgets.controls import explain, guard_wheel, label
from app.ui.widgets.theme import SPACING

_ENGLISH = QLocale(QLocale.Language.English, QLocale.Country.UnitedStates)
FIELD_WIDTH = 132
FIELD_MARGINS = (6 * SPACING, 0, 0, 2 * SPACING)


def _guard(field: QWidget) -> None:
    field.setFixedWidth(FIELD_WIDTH)
    guard_wheel(field)


def _prepare(field: QAbstractSpinBox) -> None:
    _guard(field)
    field.setLocale(_ENGLISH)
    field.setGroupSeparatorShown(True)
    # A style sheet's padding moves the arrows of a spin box, but not its text.
    field.lineEdit().setTextMargins(SPACING, 0, 0, 0)


class Whole(QSpinBox):
    """A whole number."""

    def __init__(self, low: int, high: int, step: int = 1, lowest_means: str = "") -> None:
        """``lowest_means`` is shown in place of the lowest number."""
        super().__init__()
        _prepare(self)
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setSpecialValueText(lowest_means)

    def stepBy(self, steps: int) -> None:  # noqa: N802 - Qt's name
        if steps > 0 and self.value() == self.minimum() < 0:  # the word below 0 is one step away from it
            self.setValue(0)
            steps -= 1
        super().stepBy(steps)


class Decimal(QDoubleSpinBox):
    """A number with up to four decimals, shown with as many as it has."""

    def __init__(self, low: float, high: float, step: float, lowest_means: str = "") -> None:
        super().__init__()
        _prepare(self)
        self.setDecimals(4)
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setSpecialValueText(lowest_means)

    def textFromValue(self, value: float) -> str:  # noqa: N802 - Qt's name
        return f"{value:.4f}".rstrip("0").rstrip(".")


class OneOf(QComboBox):
    """A choice from a short list; each entry has a value and a text."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        super().__init__()
        _guard(self)
        for value, text in entries:
            self.addItem(text, value)

    def value(self) -> str:
        return str(self.currentData())

    def setValue(self, value: str) -> None:  # noqa: N802 - as the other fields have it
        self.setCurrentIndex(max(self.findData(value), 0))


class Digits(QLineEdit):
    """A number too large for a spin box; empty is none."""

    def __init__(self, highest: int) -> None:
        super().__init__()
        self._highest = highest
        self.setFixedWidth(FIELD_WIDTH)
        pattern = QRegularExpression(f"[0-9]{{0,{len(str(highest))}}}")
        self.setValidator(QRegularExpressionValidator(pattern, self))

    def value(self) -> int | None:
        return min(int(self.text()), self._highest) if self.text() else None

    def set_value(self, value: int | None) -> None:
        self.setText("" if value is None else str(value))


class FieldTable(QWidget):
    """Rows of a name, a field and one line that says what the field does."""

    def __init__(self) -> None:
        super().__init__()
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(*FIELD_MARGINS)
        self._grid.setHorizontalSpacing(3 * SPACING)
        self._grid.setVerticalSpacing(2 * SPACING)
        self._grid.setColumnMinimumWidth(0, 120)
        self._grid.setColumnStretch(2, 1)

    def add(self, name: str, field: QWidget, help_text: str, term: str = "") -> QLabel:
        """Add a row and return the label of its help; ``term`` is what the field is called elsewhere."""
        title = label(f"{name}:")
        title.setBuddy(field)
        field.setAccessibleName(name)
        hint = label(help_text, "quiet", wraps=True)
        for part in (title, field):
            explain(part, f"{help_text} ({term})" if term else help_text)
        row = self._grid.rowCount()
        top = Qt.AlignmentFlag.AlignVCenter
        self._grid.addWidget(title, row, 0, top)
        self._grid.addWidget(field, row, 1, top)
        self._grid.addWidget(hint, row, 2, top)
        return hint
