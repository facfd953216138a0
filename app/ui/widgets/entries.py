"""The content of a `Column`: entries with their widgets, and how wide these may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from PySide6.QtGui import QFont, QFontMetricsF
from PySide6.QtWidgets import QWidget

MARGIN = 24
"""Free space left and right of the column, in pixels."""
GAP = 12
"""Between two entries."""
PROSE_CHARACTERS = 72


@dataclass(frozen=True)
class Widths:
    """How wide prose and code may be, in pixels."""

    prose: int
    code: int


def prose_width(font: QFont, space: int) -> int:
    """How wide a line of text should be if there are ``space`` pixels."""
    return min(max(120, space - 2 * MARGIN), round(QFontMetricsF(font).averageCharWidth() * PROSE_CHARACTERS))


def prose_margin(font: QFont, space: int) -> int:
    """The margin on either side of a line of text, for what should be aligned with the messages."""
    return (space - prose_width(font, space)) // 2


class EntryWidget(Protocol):
    """What a widget in the column must provide."""

    def fit(self, widths: Widths) -> int:
        """Use these widths; returns the height this needs, in pixels."""

    def is_in_use(self) -> bool:
        """Whether it has something that would be lost with it, such as a selection."""

    def is_drawn(self) -> bool:
        """Whether all of it is drawn, so that its height is the real one."""


@dataclass(eq=False, slots=True)
class Entry:
    """One place in the column. ``build`` creates its widget, as a child of the column's viewport, when it comes near
    the screen.
    """

    key: str
    build: Callable[[Entry], QWidget]
    height: int
    text: str = ""
    """Shown until there is a widget."""
    content: object = None
    """The data from which ``build`` creates the widget."""
    widget: QWidget | None = None
    stops: Sequence[QWidget] = ()
    """Where the Tab key stops in it."""
    fitted: Widths | None = None
    drawn: int = 0
    """How much of its height its widget fills so far."""
    top: int = -1
    """Its position in the column; -1 until it was placed."""
    is_pinned: bool = False
    """Whether its widget is kept, however far it is from the screen."""

    def is_drawn(self) -> bool:
        """Whether its height is the real one."""
        return self.fitted is not None and cast(EntryWidget, self.widget).is_drawn()
