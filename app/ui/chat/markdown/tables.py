"""How wide the columns of a table are, and on which side the first one stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetricsF, QTextBlock, QTextDocument, QTextLength, QTextTable, QTextTableFormat

from app.ui.chat.markdown.formats import CELL_PADDING, Formats

_COMFORTABLE = 30
"""A column is made so many characters wide, where its text has as many, before the table is scrolled."""
_LONGEST_WORD = 60
"""A longer word is broken."""


@dataclass(slots=True)
class TableRun:
    """A table in the document: the positions it takes, and the widths in pixels its columns want."""

    start: int
    widths: tuple[float, ...]
    is_mirrored: bool
    """Whether the first column stands on the right, as one reads Arabic or Hebrew."""
    group: int
    """Tables with the same number are parts of one and are scrolled together."""
    left: float = 0.0
    """How far it stands in where there is room for that, in pixels."""
    end: int = 0

    @property
    def width(self) -> float:
        """What its columns take together, in pixels."""
        return sum(self.widths)

    def is_wide(self, available: float) -> bool:
        """Whether its columns would become too narrow in so many pixels."""
        return 0 < available < self.width

    def format(self, formats: Formats, available: float, margin: float) -> QTextTableFormat:
        """What it looks like in so many pixels: as they are, or as wide as it wants to be. ``margin``: how many of
        them are free beside prose."""
        result = formats.table()
        is_wide = self.is_wide(available)
        left = self.left if not 0 < available < self.left + self.width else 0.0
        if self.is_mirrored and not is_wide:
            result.setAlignment(Qt.AlignmentFlag.AlignRight)
            result.setRightMargin(margin + left)
        else:
            result.setLeftMargin(left)
        if is_wide:
            fixed = QTextLength.Type.FixedLength
            widths = reversed(self.widths) if self.is_mirrored else self.widths
            result.setColumnWidthConstraints([QTextLength(fixed, width) for width in widths])
        return result

    def measure(self, document: QTextDocument, formats: Formats, shown: Callable[[QTextBlock], str]) -> None:
        """What the cells show has changed. ``shown``: text as wide as a cell's."""
        frame = document.frameAt(self.start)
        if isinstance(frame, QTextTable):
            columns = range(frame.columns())
            order = list(reversed(columns)) if self.is_mirrored else list(columns)
            rows = [
                [shown(frame.cellAt(row, column).firstCursorPosition().block()) for column in order]
                for row in range(frame.rows())
            ]
            self.widths = column_widths(rows, formats)

    def refit(self, document: QTextDocument, formats: Formats, available: float, margin: float) -> None:
        """The width that is available has changed."""
        frame = document.frameAt(self.start)
        if isinstance(frame, QTextTable):
            wanted = self.format(formats, available, margin)
            if frame.format() != wanted:
                frame.setFormat(wanted)


def column_widths(rows: Sequence[Sequence[str]], formats: Formats) -> tuple[float, ...]:
    """The widths in pixels that the columns of a table want. ``rows``: the text of the cells, the header's first."""
    bold = QFont(formats.font)
    bold.setWeight(QFont.Weight.DemiBold)
    # Bold and code are a little wider than what surrounds them: everything is measured as if it were bold.
    metrics = QFontMetricsF(bold)
    comfortable = _COMFORTABLE * metrics.averageCharWidth()
    most = _LONGEST_WORD * metrics.averageCharWidth()
    widths = []
    for cells in zip(*rows, strict=True):
        width = 0.0
        for text in cells:
            whole = metrics.horizontalAdvance(text)
            if whole > comfortable:
                word = metrics.horizontalAdvance(max(text.split(), key=len, default="")) if " " in text else whole
                whole = max(comfortable, min(word, most)) if text.isascii() else comfortable
            width = max(width, whole)
        widths.append(width + CELL_PADDING + 2)
    return tuple(widths)
