"""Forms: a row for each setting, made of what its typed table says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.inspect import FloatType, IntType, LiteralType, Metadata, Type, UnionType, type_info

from app.ui.widgets.number_fields import Decimal, FieldTable, OneOf, Whole

_LARGEST = 2**30
"""Where a range has no end."""


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


class Form(FieldTable):
    """Shows settings of a struct and gives them back. A number that may be ``None`` is ``None`` at its lowest, 0."""

    def __init__(self, table: type[msgspec.Struct], settings: Sequence[Setting], changed: Callable[[], object]) -> None:
        """``changed`` is called after each change."""
        super().__init__()
        self._settings: dict[str, tuple[Setting, Type]] = {}
        self.fields: dict[str, Whole | Decimal | OneOf] = {}
        self._changed = changed
        self.add_settings(table, settings)

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
        return OneOf([(str(value), str(value)) for value in get_args(literal)])
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
