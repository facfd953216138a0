"""Forms: rows with a name, a field and a line of help, built from what a typed table says about each setting."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.inspect import FloatType, IntType, LiteralType, Metadata, StrType, Type, UnionType, type_info
from PySide6.QtCore import QRegularExpression, Qt, Slot
from PySide6.QtGui import QRegularExpressionValidator, QValidator
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QRadioButton,
    QSpinBox,
    QWidget,
)

from app.ui.widgets import theme
from app.ui.widgets.controls import LOCALE, explain, guard_wheel, label, named
from app.ui.widgets.theme import SPACING

FIELD_WIDTH = 132
FIELD_MARGINS = (6 * SPACING, 0, 0, 2 * SPACING)
SMALLEST = 0.0001
"""What a decimal field can show."""
_LARGEST = 2**30
"""Qt's numbers have 32 bits."""


_SIGNS = {ord(sign): "." for sign in "٫．。"} | {ord("，"): ","} | {ord("−"): "-"}
_GROUPED = re.compile(r"\d{1,3}(?:(?P<sign>[.,'’٬ \u00a0\u2009\u202f])\d{3})(?:(?P=sign)\d{3})*")
_TYPED = re.compile(r"-?[\d.,'’٬ \u00a0\u2009\u202f]*")


def plain_number(text: str, *, is_whole: bool = False) -> str | None:
    """A number as a person writes it, in any country's digits and separators, as Python reads it; ``None`` where that
    isn't clear. One comma or point is a decimal one, except in whole numbers.
    """
    text = "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in text.translate(_SIGNS))
    minus, text = text[:1] if text.startswith("-") else "", text.strip("- ")
    place = -1 if is_whole else max(text.rfind("."), text.rfind(","))
    if place >= 0 and text.count(text[place]) == 1:
        whole, part = text[:place], text[place + 1 :]
    else:
        whole, part = text, ""
    if found := _GROUPED.fullmatch(whole):
        whole = whole.replace(found["sign"], "")
    if not re.fullmatch(r"\d*", whole + part) or not whole + part:
        return None
    return f"{minus}{whole or 0}{f'.{part}' if part else ''}"


class _Typed:
    """What spin boxes do with text; ``is_whole`` says which numbers they have."""

    is_whole = False

    def validate(self: Any, text: str, position: int, /) -> tuple[QValidator.State, str, int]:
        """The state of the text, the text, and the position."""
        typed = text.removesuffix(self.suffix())
        plain = plain_number(typed, is_whole=self.is_whole)
        if plain is not None:
            return super().validate(plain + self.suffix(), position)[0], text, position  # type: ignore[misc]
        if not typed or text == self.specialValueText():
            return super().validate(text, position)  # type: ignore[misc,no-any-return]
        state = QValidator.State.Intermediate if _TYPED.fullmatch(typed) else QValidator.State.Invalid
        return state, text, position

    def fixup(self, text: str, /) -> str:
        """The text as it is: Qt would take its commas out."""
        return text

    def valueFromText(self: Any, text: str, /) -> Any:  # noqa: N802 - Qt's name
        plain = plain_number(text.removesuffix(self.suffix()), is_whole=self.is_whole)
        if plain is None:
            return super().valueFromText(text)  # type: ignore[misc]
        return int(plain) if self.is_whole else float(plain)


def _prepare(field: QAbstractSpinBox, lowest_means: str) -> None:
    field.setSpecialValueText(lowest_means)
    keep_width(field)
    guard_wheel(field)
    field.setLocale(LOCALE)
    field.setGroupSeparatorShown(True)
    # A style sheet's padding moves the arrows of a spin box, but not its text.
    field.lineEdit().setTextMargins(SPACING, 0, 0, 0)


def keep_width(field: QWidget) -> None:
    """Make it as wide as the fields for numbers."""
    if isinstance(field, QComboBox):
        field.view().setMinimumWidth(field.sizeHint().width())  # its list may be wider
    theme.follow_zoom(field, lambda: field.setFixedWidth(theme.px(FIELD_WIDTH)))


class Whole(_Typed, QSpinBox):
    """A whole number."""

    is_whole = True

    def __init__(self, low: int, high: int, step: int = 1, lowest_means: str = "") -> None:
        """``lowest_means`` is shown instead of the lowest number."""
        super().__init__(minimum=low, maximum=high, singleStep=step)
        _prepare(self, lowest_means)

    def stepBy(self, steps: int) -> None:  # noqa: N802 - Qt's name
        if steps > 0 and self.value() == self.minimum() < 0:  # the word below 0 is one step away from it
            self.setValue(0)
            steps -= 1
        super().stepBy(steps)


class Decimal(_Typed, QDoubleSpinBox):
    """A number with up to four decimals, shown with as many as it needs."""

    def __init__(self, low: float, high: float, step: float, lowest_means: str = "") -> None:
        super().__init__(decimals=4, minimum=low, maximum=high, singleStep=step)
        _prepare(self, lowest_means)

    def textFromValue(self, value: float) -> str:  # noqa: N802 - Qt's name
        return f"{value:.12g}"


class OneOf(QComboBox):
    """A choice from a short list."""

    def __init__(self, values: Sequence[str], titles: Mapping[str, str]) -> None:
        """Values are shown as they are, or by their ``titles``, which need a wider field."""
        super().__init__()
        if not titles:
            keep_width(self)
        guard_wheel(self)
        for value in values:
            self.addItem(titles.get(value, value), value)

    def value(self) -> str:
        return str(self.currentData())

    def setValue(self, value: str) -> None:  # noqa: N802 - as the other fields have it
        self.setCurrentIndex(max(self.findData(value), 0))


class Digits(QLineEdit):
    """A number that is too large for a spin box; empty means none. It gets narrower where there is little space."""

    def __init__(self, lowest: int, highest: int) -> None:
        """A number below ``lowest`` means none, too."""
        super().__init__()
        self._lowest, self._highest = lowest, highest
        theme.follow_zoom(self, lambda: self.setMaximumWidth(theme.px(FIELD_WIDTH)))
        pattern = QRegularExpression(f"[0-9]{{0,{len(str(highest))}}}")
        self.setValidator(QRegularExpressionValidator(pattern, self))
        self.editingFinished.connect(self._show_what_counts)

    def value(self) -> int | None:
        number = min(int(self.text() or -1), self._highest)
        return None if number < self._lowest else number

    def show_value(self, value: int | None) -> None:
        if (text := "" if value is None else str(value)) != self.text():
            self.setText(text)

    @Slot()
    def _show_what_counts(self) -> None:
        self.show_value(self.value())


class Fields:
    """Makes a control for each field of a struct, shows what the struct has, and gives back what they show."""

    def __init__(self, changed: Callable[[], object]) -> None:
        """``changed`` is called when the user has changed something."""
        self._changed = changed
        self._shows = False
        self._controls: dict[str, tuple[Callable[[Any], object], Callable[[], Any]]] = {}
        """How the value of a field is shown and read."""
        self._boxes: dict[str, QComboBox] = {}

    def check(self, key: str, text: str) -> QCheckBox:
        box = QCheckBox(text)
        box.toggled.connect(self._on_changed)
        self._controls[key] = box.setChecked, box.isChecked
        return box

    def either(self, key: str, values: tuple[str, str]) -> tuple[QRadioButton, QRadioButton]:
        """Two buttons in one widget, for a field that has one of two values."""
        first, second = QRadioButton(), QRadioButton()
        second.toggled.connect(self._on_changed)
        buttons = dict(zip(values, (first, second), strict=True))
        self._controls[key] = lambda value: buttons[value].setChecked(True), lambda: values[second.isChecked()]
        return first, second

    def line(self, key: str, name: str, placeholder: str) -> QLineEdit:
        """A text, without spaces around it."""
        field = named(QLineEdit(placeholderText=placeholder), name)
        field.editingFinished.connect(self._on_changed)
        self._controls[key] = field.setText, lambda: field.text().strip()
        return field

    def words(self, key: str, name: str, placeholder: str) -> QLineEdit:
        """A list of words, separated by commas or spaces."""
        field = self.line(key, name, placeholder)
        self._controls[key] = (
            lambda words: field.setText(", ".join(words)),
            lambda: field.text().replace(",", " ").split(),
        )
        return field

    def choice(self, key: str, name: str, titles: Mapping[Any, str]) -> QComboBox:
        """One of these values, each with its title; `offer` gives others."""
        box = named(QComboBox(sizeAdjustPolicy=QComboBox.SizeAdjustPolicy.AdjustToContents), name)
        guard_wheel(box)
        self._boxes[key] = box
        self.offer(key, titles)

        box.currentIndexChanged.connect(self._on_changed)
        self._controls[key] = lambda shown: box.setCurrentIndex(box.findData(shown)), box.currentData
        return box

    def offer(self, key: str, titles: Mapping[Any, str]) -> None:
        """The values of a `choice`, from now on."""
        self._shows = True
        self._boxes[key].clear()
        for value, title in titles.items():
            self._boxes[key].addItem(title, value)
        self._shows = False

    def whole(self, key: str, name: str, low: int, high: int) -> Whole:
        field = named(Whole(low, high), name)
        field.valueChanged.connect(self._on_changed)
        self._controls[key] = field.setValue, field.value
        return field

    def show(self, values: object) -> None:
        self._shows = True
        for key, (show, _read) in self._controls.items():
            show(getattr(values, key))
        self._shows = False

    def values(self) -> dict[str, Any]:
        return {key: read() for key, (_show, read) in self._controls.items()}

    def _on_changed(self, *_value: object) -> None:
        if not self._shows:
            self._changed()


@dataclass(frozen=True)
class Setting:
    """What a row says about a setting, and what its type doesn't say."""

    key: str
    """Its name in the typed table."""
    name: str
    help: str
    step: float = 1
    lowest: str = ""
    """Shown instead of the lowest number."""
    term: str = ""
    """Its name in other programs."""
    low: float | None = None
    high: float | None = None
    """The limits of its range, if the table has none that can be set."""
    suffix: str = ""
    titles: Mapping[Any, str] = dataclasses.field(default_factory=dict)
    """What a list shows instead of its values. A setting that can be any text is a list of these values."""


class Form(QWidget):
    """Shows settings of a struct and gives them back. A number that may be ``None`` is ``None`` below its range: at 0,
    or where that can be set one step below; the word for the lowest number is shown there."""

    def __init__(self, table: type[msgspec.Struct], settings: Sequence[Setting], changed: Callable[[], object]) -> None:
        """``changed`` is called after each change."""
        super().__init__()
        self._settings: dict[str, tuple[Setting, Type]] = {}
        self.fields: dict[str, Whole | Decimal | OneOf] = {}
        self._rows: dict[QWidget, tuple[QLabel, QLabel, str]] = {}
        """For each field its name, its help, and its name in other programs."""
        self._changed = changed
        self._grid = QGridLayout(self)
        self._grid.setHorizontalSpacing(3 * SPACING)
        self._grid.setVerticalSpacing(2 * SPACING)
        self._grid.setContentsMargins(*FIELD_MARGINS)
        theme.follow_zoom(self, lambda: self._grid.setColumnMinimumWidth(0, theme.px(120)))
        self._grid.setColumnStretch(2, 1)
        self.add_settings(table, settings)

    def add(self, name: str, field: QWidget, help_text: str, term: str = "") -> QLabel:
        """Add a row and return the label of its help; ``term`` is the field's name in other programs."""
        title = label(f"{name}:")
        title.setBuddy(field)
        field.setAccessibleName(name)
        hint = label("", "quiet", wraps=True)
        self._rows[field] = title, hint, term
        self.set_help(field, help_text)
        row = self._grid.rowCount()
        for column, part in enumerate((title, field, hint)):
            self._grid.addWidget(part, row, column, Qt.AlignmentFlag.AlignVCenter)
        return hint

    def set_help(self, field: QWidget, help_text: str) -> None:
        """Say something else about this field."""
        title, hint, term = self._rows[field]
        hint.setText(help_text)
        for part in (title, field):
            explain(part, f"{help_text} ({term})" if term else help_text)

    def show_row(self, field: QWidget, is_visible: bool) -> None:
        """Show or hide this field with its name and its help; hidden, it keeps its value."""
        for part in (field, *self._rows[field][:2]):
            part.setVisible(is_visible)

    def add_settings(self, table: type[msgspec.Struct], settings: Sequence[Setting]) -> None:
        """Add rows below the existing ones."""
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
        """Show the attributes of this struct, or of an object with the same attributes."""
        for key in self.fields:
            self.set_value(key, getattr(values, key))

    def set_value(self, key: str, value: Any) -> None:
        field = self.fields[key]
        if value is None and not isinstance(field, OneOf):
            value = field.minimum()
        if isinstance(field, Whole):
            value = min(value, field.maximum())  # Qt raises an error for anything that isn't a 32-bit integer
        field.setValue(value)

    def value(self, key: str) -> Any:
        setting, kind = self._settings[key]
        value = self.fields[key].value()
        if isinstance(value, str):
            return value
        if isinstance(kind, UnionType) and value < _range(setting, kind)[0]:
            return None
        return value

    def text_of(self, key: str) -> str:
        """What the field shows."""
        field = self.fields[key]
        return field.currentText() if isinstance(field, OneOf) else field.text()

    def values(self) -> dict[str, Any]:
        """The current values, by key."""
        return {key: self.value(key) for key in self.fields}


def _field(setting: Setting, kind: Type, annotation: Any) -> Whole | Decimal | OneOf:
    if isinstance(kind, LiteralType):
        # In the order of the table, because `kind` has them sorted.
        literal = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
        return OneOf([str(value) for value in get_args(literal)], setting.titles)
    if isinstance(kind, StrType):
        return OneOf(list(setting.titles), setting.titles)
    number = _plain(kind.types[0]) if isinstance(kind, UnionType) else kind
    assert isinstance(number, IntType | FloatType)
    low, high = _range(setting, kind)
    if isinstance(kind, UnionType):
        low = 0 if low > 0 else low - setting.step
    field: Whole | Decimal
    if isinstance(number, FloatType):
        field = Decimal(low, high, setting.step, setting.lowest)
        field.setValue(low)
    else:
        field = Whole(int(low), int(high), int(setting.step), setting.lowest)
        field.setValue(int(low))
    field.setSuffix(setting.suffix)
    return field


def _range(setting: Setting, kind: Type) -> tuple[float, float]:
    """The lowest and the highest number that can be set, as they are shown."""
    number = _plain(kind.types[0]) if isinstance(kind, UnionType) else kind
    assert isinstance(number, IntType | FloatType)
    above = None if number.gt is None else number.gt + SMALLEST
    return _first(setting.low, number.ge, above, 0), min(_first(setting.high, number.le, _LARGEST), _LARGEST)


def _plain(kind: Type) -> Type:
    """The type without its description."""
    return kind.type if isinstance(kind, Metadata) else kind


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
