"""Layouts in one call: what is in a row or in a column, in reading order."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLayout, QVBoxLayout, QWidget

from app.ui.widgets.theme import SPACING

GAP = 2 * SPACING
"""Between the parts of most rows and columns, in pixels."""
PAGE_MARGINS = (5 * SPACING, 4 * SPACING, 5 * SPACING, 5 * SPACING)
DIALOG_MARGINS = (5 * SPACING, 5 * SPACING, 5 * SPACING, 4 * SPACING)
LIST_MARGINS = (5 * SPACING, 4 * SPACING, 3 * SPACING, 3 * SPACING)
CARD_MARGINS = (4 * SPACING, 3 * SPACING, 4 * SPACING, 3 * SPACING)

TOP, LEFT, MIDDLE = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignVCenter

_Box = TypeVar("_Box", bound=QBoxLayout)
Item: TypeAlias = QWidget | QLayout
Part: TypeAlias = Item | tuple[Item, int] | tuple[QWidget, Qt.AlignmentFlag] | int | None
"""A widget or a layout, alone, with its stretch, or with its alignment; a number of pixels left free; or ``None`` for a
stretch that takes the remaining space.
"""
Margins: TypeAlias = int | tuple[int, int, int, int]
"""In pixels: the same on all sides, or left, top, right, bottom."""


def row(*parts: Part, gap: int = GAP, margins: Margins = 0, on: QWidget | None = None) -> QHBoxLayout:
    """The parts next to each other, as the layout of ``on`` if that is given."""
    return _filled(QHBoxLayout(), parts, gap, margins, on)


def column(*parts: Part, gap: int = GAP, margins: Margins = 0, on: QWidget | None = None) -> QVBoxLayout:
    """The parts below each other, as the layout of ``on`` if that is given."""
    return _filled(QVBoxLayout(), parts, gap, margins, on)


def _filled(layout: _Box, parts: tuple[Part, ...], gap: int, margins: Margins, on: QWidget | None) -> _Box:
    if on is not None:
        on.setLayout(layout)
    layout.setContentsMargins(*((margins,) * 4 if isinstance(margins, int) else margins))
    layout.setSpacing(gap)
    for part in parts:
        _add(layout, part)
    return layout


def _add(layout: QBoxLayout, part: Part) -> None:
    one, how = part if isinstance(part, tuple) else (part, 0)
    stretch, place = (0, how) if isinstance(how, Qt.AlignmentFlag) else (how, Qt.AlignmentFlag(0))
    if one is None:
        layout.addStretch(1)
    elif isinstance(one, int):
        layout.addSpacing(one)
    elif isinstance(one, QLayout):
        layout.addLayout(one, stretch)
    else:
        layout.addWidget(one, stretch, place)
