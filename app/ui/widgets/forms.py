"""Forms: rows of a name, a field and a line of help; made of what a typed table says of each setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.inspect import FloatType, IntType, LiteralType, Metadata, Type, UnionType, type_info
from PySide6.QtCore import QRegularExpression, Qt
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

from app.ui.widgets import units
from app.ui.widgets.controls import explain, guard_wheel, label
from app.ui.widgets.theme import SPACING

FIELD_WIDTH = 132
FIELD_MARGINS = (6 * SPACING, 0, 0, 2 * SPACING)
_LARGEST = 2**30
"""Where a range has no end."""


def _prepare(field: QAbstractSpinBox, lowest_means: str) -> None:
    field.setSpecialValueText(lowest_means)
    field.setFixedWidth(FIELD_WIDTH)
    guard_wheel(field)
    field.setLocale(units.LOCALE)
    field.setGroupSeparatorShown(True)
    # A style sheet's padding moves the arrows of a spin box, but not its text.
    field.lineEdit().setTextMargins(SPACING, 0, 0, 0)


class Whole(QSpinBox):
    """A whole number."""

    def __init__(self, low: int, high: int, step: int = 1, lowest_means: str = "") -> None:
        """``lowest_means`` is shown in place of the lowest number."""
        super().__init__(minimum=low, maximum=high, singleStep=step)
        _prepare(self, lowest_means)

    def stepBy(self, steps: int) -> None:  # noqa: N802 - Qt's name
        if steps > 0 and self.value() == self.minimum() < 0:  # the word below 0 is one step away from it
            self.setValue(0)
            steps -= 1
        super().stepBy(steps)


class Decimal(QDoubleSpinBox):
    """A number with up to four decimals, shown with as many as it has."""

    def __init__(self, low: float, high: float, step: float, lowest_means: str = "") -> None:
        super().__init__(decimals=4, minimum=low, maximum=high, singleStep=step)
        _prepare(self, lowest_means)

    def textFromValue(self, value: float) -> str:  # noqa: N802 - Qt's name
        return f"{value:.4f}".rstrip("0").rstrip(".")


class OneOf(QComboBox):
    """A choice from a short list."""

    def __init__(self, values: Sequence[str]) -> None:
        super().__init__()
        self.setFixedWidth(FIELD_WIDTH)
        guard_wheel(self)
        self.addItems(values)

    def value(self) -> str:
        return self.currentText()

    def setValue(self, value: str) -> None:  # noqa: N802 - as the other fields have it
        self.setCurrentIndex(max(self.findText(value), 0))


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


@dataclass(frozen=True)
class Setting:
    """What a row says of a setting, and what its type does not say."""

    key: str
    """Its name in the typed table."""
    name: str
    help: str
    step: float = 1
    lowest: str = ""
    """Shown in place of the lowest number."""
    term: str = ""
    """What it is called elsewhere."""
    low: float | None = None
    high: float | None = None
    """The ends of its range, where the table has none that can be set."""
    suffix: str = ""
    unit: int = 1
    """So many of the table's make one of those shown."""


class Form(QWidget):
    """Shows settings of a struct and gives them back. A number that may be ``None`` is ``None`` at its lowest, 0."""

    def __init__(self, table: type[msgspec.Struct], settings: Sequence[Setting], changed: Callable[[], object]) -> None:
        """``changed`` is called after each change."""
        super().__init__()
        self._settings: dict[str, tuple[Setting, Type]] = {}
        self.fields: dict[str, Whole | Decimal | OneOf] = {}
        self._changed = changed
        self._grid = QGridLayout(self)
        self._grid.setHorizontalSpacing(3 * SPACING)
        self._grid.setVerticalSpacing(2 * SPACING)
        self._grid.setContentsMargins(*FIELD_MARGINS)
        self._grid.setColumnMinimumWidth(0, 120)
        self._grid.setColumnStretch(2, 1)
        self.add_settings(table, settings)

    def add(self, name: str, field: QWidget, help_text: str, term: str = "") -> QLabel:
        """Add a row and return the label of its help; ``term`` is what the field is called elsewhere."""
        title = label(f"{name}:")
        title.setBuddy(field)
        field.setAccessibleName(name)
        hint = label(help_text, "quiet", wraps=True)
        for part in (title, field):
            explain(part, f"{help_text} ({term})" if term else help_text)
        row = self._grid.rowCount()
        for column, part in enumerate((title, field, hint)):
            self._grid.addWidget(part, row, column, Qt.AlignmentFlag.AlignVCenter)
        return hint

    def add_settings(self, table: type[msgspec.Struct], settings: Sequence[Setting]) -> None:
        """Rows below the ones that are there."""
        annotations = {one.name: one.type for one in msgspec.structs.fields(table)}
        for setting in settings:
            annotation = annotations[setting.key]
            kind = _plain(type_info(annotation))
            field = self.fields[setting.key] = _field(setting, kind, annotation)
            self._settings[setting.key] = setting, kind
            self.add(setting.name, field, setting.help, setting.term)
            signal = field.currentIndexChanged if isinstance(field, OneOf) else field.valueChanged
            signal.connect(self._changed)

    def show_values(self, values: object) -> None:
        """Show the attributes of this struct, or of what has them by the same names."""
        for key in self.fields:
            self.set_value(key, getattr(values, key))

    def set_value(self, key: str, value: Any) -> None:
        unit = self._settings[key][0].unit
        if value is None:
            value = 0
        elif unit > 1:
            value = max(1, round(value / unit))
        self.fields[key].setValue(value)

    def value(self, key: str) -> Any:
        setting, kind = self._settings[key]
        value = self.fields[key].value()
        if isinstance(kind, UnionType) and not value:
            return None
        return value if isinstance(value, str) or setting.unit == 1 else value * setting.unit

    def text_of(self, key: str) -> str:
        """What the field shows."""
        field = self.fields[key]
        return field.currentText() if isinstance(field, OneOf) else field.text()

    def values(self) -> dict[str, Any]:
        """What is set now, by key."""
        return {key: self.value(key) for key in self.fields}


def _field(setting: Setting, kind: Type, annotation: Any) -> Whole | Decimal | OneOf:
    if isinstance(kind, LiteralType):
        # In the order of the table: `kind` has them sorted.
        literal = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        return OneOf([str(value) for value in get_args(literal)])
    number = _plain(kind.types[0]) if isinstance(kind, UnionType) else kind
    assert isinstance(number, IntType | FloatType)
    low = 0 if isinstance(kind, UnionType) else _first(setting.low, number.ge, 0)
    high = _first(setting.high, number.le, _LARGEST)
    if isinstance(number, FloatType):
        return Decimal(low, high, setting.step, setting.lowest)
    field = Whole(int(low), int(high), int(setting.step), setting.lowest)
    field.setSuffix(setting.suffix)
    return field


def _plain(kind: Type) -> Type:
    """Without its description."""
    return kind.type if isinstance(kind, Metadata) else kind


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
