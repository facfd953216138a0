"""The block and character formats of the transcript, made from a theme and a font."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontMetricsF,
    QTextBlockFormat,
    QTextCharFormat,
    QTextFormat,
    QTextListFormat,
    QTextTableCellFormat,
    QTextTableFormat,
)

from app.ui.widgets import theme as themes
from app.ui.widgets.theme import Theme

ROLE = QTextFormat.Property.UserProperty.value + 1
"""Block property: what is painted around the block, one of the values below."""
CODE, RULE = 1, 2
DEPTH = QTextFormat.Property.UserProperty.value + 2
"""Block property: how many quotes the block stands in."""
PROSE = QTextFormat.Property.UserProperty.value + 4
"""Block property: the block keeps to the width of prose."""
CONTINUED = QTextFormat.Property.UserProperty.value + 3
"""Block property: the block goes on with the line of the one before it."""

CELL = QTextFormat.Property.UserProperty.value + 5
"""Block property: the block is a cell of a table."""
TASK = QTextFormat.Property.UserProperty.value + 6
"""Block property: the block begins with one of the next two characters, which stands for its check mark."""
MIRRORED = QTextFormat.Property.UserProperty.value + 7
"""Block property of a cell: how many columns its table has, whose first one stands on the right."""
BEGINS = QTextFormat.Property.UserProperty.value + 10
"""Block property: a quote begins here, which is none with the one above."""
CHECKED, UNCHECKED = "\u2611", "\u2610"

GAP = 10.0
"""Between two paragraphs, in pixels."""
CODE_PADDING = 12.0
_INDENT = 26.0
QUOTE_INDENT = 16.0
CELL_PADDING = 16.0
ROW_PADDING = 5
"""Between two columns of a table, in pixels."""
TAB_COLUMNS = 4
"""Of code."""

_LIGHT = {"comment": "#5a666b", "keyword": "#8a1f6a", "string": "#1c6134", "number": "#84430a", "name": "#1c4f9c"}
_DARK = {"comment": "#a5b0b5", "keyword": "#f0a6d8", "string": "#a3d9a5", "number": "#f0b98d", "name": "#a3c7ff"}
_BULLETS = (QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle, QTextListFormat.Style.ListSquare)
_HEADING_SIZES = (1.45, 1.25, 1.1, 1.0, 1.0, 1.0)
_MAX_SHARED = 8
_LINE_HEIGHT = 132.0
_CODE_LINE_HEIGHT = 120.0
_PROPORTIONAL = QTextBlockFormat.LineHeightTypes.ProportionalHeight.value
_SUBSCRIPT = QTextCharFormat.VerticalAlignment.AlignSubScript
_FIXED = QTextBlockFormat.LineHeightTypes.FixedHeight.value


def code_color(theme: Theme, role: str) -> QColor:
    """The color of a part of code; the plain text color where the other could not be read."""
    wanted = QColor((_DARK if theme.is_dark else _LIGHT)[role])
    return themes.readable(wanted, theme.text, theme.code_surface, *theme.tints.values())


@dataclass(frozen=True)
class Look:
    """How a run of characters is marked up."""

    bold: bool = False
    italic: bool = False
    struck: bool = False
    code: bool = False
    quiet: bool = False
    key: bool = False
    raised: int = 0
    """1: above the line, -1: below it."""
    heading: int = 0
    link: str = ""


class Formats:
    """Formats for one theme and one font; made once and shared by all blocks."""

    def __init__(self, theme: Theme, font: QFont) -> None:
        self.theme = theme
        self.font = font
        self.mono = themes.monospace_for(font)
        self.indent = float(themes.px(_INDENT))
        """How far a list stands in: the numbers of its items have room there."""
        self.characters = cache(self._characters)
        self.code_characters = cache(self._code_characters)
        self.cell = cache(self._cell)

    # -- characters

    def _characters(self, look: Look) -> QTextCharFormat:
        """The format of text that is marked up like this."""
        result = QTextCharFormat()
        font = QFont(self.mono if look.code or look.key else self.font)
        if look.heading:
            font = themes.scaled(font, _HEADING_SIZES[min(look.heading, 6) - 1])
        if look.bold or look.heading:
            font.setWeight(QFont.Weight.DemiBold)
        font.setItalic(look.italic)
        font.setStrikeOut(look.struck)
        result.setFont(font)
        result.setForeground(self.theme.quiet if look.quiet else self.theme.text)
        if look.raised:
            above, below = QTextCharFormat.VerticalAlignment.AlignSuperScript, _SUBSCRIPT
            result.setVerticalAlignment(above if look.raised > 0 else below)
        if look.code or look.key:
            ground = QColor(self.theme.text)
            ground.setAlphaF(0.13 if look.key else 0.07)  # a tint below it shines through
            result.setBackground(ground)
        if look.link:
            result.setAnchor(True)
            result.setAnchorHref(look.link)
            result.setForeground(self.theme.accent)
            result.setFontUnderline(True)
        return result

    def _code_characters(self, role: str = "") -> QTextCharFormat:
        """The format of a part of a code block."""
        result = QTextCharFormat()
        font = QFont(self.mono)
        font.setItalic(role == "comment")
        result.setFont(font)
        result.setForeground(code_color(self.theme, role) if role else self.theme.text)
        return result

    @cached_property
    def tiny(self) -> QTextCharFormat:
        """For the empty blocks Qt wants around a table."""
        result = QTextCharFormat()
        result.setFontPointSize(1)
        return result

    # -- blocks

    def prose(self, margin: float, *, gap: float = GAP, top: float | None = None) -> QTextBlockFormat:
        """A paragraph that leaves ``margin`` pixels free on the right."""
        result = QTextBlockFormat()
        result.setTopMargin(gap if top is None else top)
        result.setBottomMargin(gap)
        result.setRightMargin(margin)
        result.setProperty(PROSE, True)
        result.setLineHeight(_LINE_HEIGHT, _PROPORTIONAL)
        return result

    def heading(self, margin: float, level: int) -> QTextBlockFormat:
        result = self.prose(margin, gap=6.0, top=18.0 if level < 3 else 14.0)
        result.setHeadingLevel(level)
        return result

    def rule(self, margin: float) -> QTextBlockFormat:
        result = self.prose(margin, gap=4.0)
        result.setLineHeight(12, _FIXED)
        result.setProperty(ROLE, RULE)
        return result

    @cached_property
    def nothing(self) -> QTextBlockFormat:
        """The empty block after a table."""
        result = QTextBlockFormat()
        result.setLineHeight(1, _FIXED)
        return result

    @cached_property
    def code_header(self) -> float:
        """Height of the line with the language and the Copy button, in pixels."""
        return max(30.0, QFontMetricsF(self.font).height() + 14.0)

    @cached_property
    def code_column(self) -> float:
        """Width of a character of code, in pixels."""
        return self._code_metrics.horizontalAdvance("0")

    @cached_property
    def digit_width(self) -> float:
        """Width of a digit of prose, in pixels."""
        return QFontMetricsF(self.font).horizontalAdvance("0")

    @cached_property
    def _code_metrics(self) -> QFontMetricsF:
        return QFontMetricsF(self.mono)

    def code_width(self, text: str) -> float:
        """Width of a line of code that is not wrapped, in pixels."""
        if text.isascii():
            return len(text.expandtabs(TAB_COLUMNS)) * self.code_column
        return self._code_metrics.horizontalAdvance(text.expandtabs(TAB_COLUMNS))

    def code_line(self, *, first: bool, last: bool, left: float = 0.0, wraps: bool = True) -> QTextBlockFormat:
        """A line of a code block; the first leaves room for the header."""
        result = QTextBlockFormat()
        result.setProperty(ROLE, CODE)
        result.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        result.setNonBreakableLines(not wraps)
        result.setLeftMargin(left + CODE_PADDING)
        result.setRightMargin(CODE_PADDING)
        result.setLineHeight(_CODE_LINE_HEIGHT, _PROPORTIONAL)
        result.setTopMargin(GAP + self.code_header if first else 0.0)
        result.setBottomMargin(GAP + CODE_PADDING if last else 0.0)
        return result

    # -- lists and tables

    def task(self, margin: float, indent: int) -> QTextBlockFormat:
        """An item of a task list, which begins with its check mark."""
        result = self.prose(margin, gap=3.0)
        result.setProperty(TASK, True)
        result.setIndent(indent)
        result.setTextIndent(-self._check_width)
        return result

    @cached_property
    def _check_width(self) -> float:
        return QFontMetricsF(self.font).horizontalAdvance(CHECKED + " ")

    def list(self, depth: int, number: int | None, mark: str) -> QTextListFormat:
        """A list inside ``depth`` - 1 others. ``number``: of its first item, if numbered, with ``mark`` behind it."""
        result = QTextListFormat()
        result.setIndent(depth)
        if number is None:
            result.setStyle(_BULLETS[min(depth, len(_BULLETS)) - 1])
        else:
            result.setStyle(QTextListFormat.Style.ListDecimal)
            result.setStart(number)
            result.setNumberSuffix(mark)
        return result

    def table(self) -> QTextTableFormat:
        result = QTextTableFormat()
        result.setBorder(0)
        result.setCellPadding(6)
        result.setCellSpacing(0)
        result.setTopMargin(GAP)
        result.setBottomMargin(GAP)
        return result

    def _cell(self, *, header: bool, last: bool, mirrored: bool = False) -> QTextTableCellFormat:
        """A cell with a hairline below, a stronger one under the header."""
        result = QTextTableCellFormat()
        result.setLeftPadding(CELL_PADDING if mirrored else 0)
        result.setRightPadding(0 if mirrored else CELL_PADDING)
        result.setTopPadding(ROW_PADDING)
        result.setBottomPadding(ROW_PADDING)
        if not last:
            result.setBottomBorderStyle(QTextTableFormat.BorderStyle.BorderStyle_Solid)
            result.setBottomBorder(1)
            result.setBottomBorderBrush(self.theme.control_line if header else self.theme.line)
        return result

    def cell_block(self, alignment: Qt.AlignmentFlag, mirrored: int = 0, quotes: int = 0) -> QTextBlockFormat:
        """``mirrored``: the number of columns, if the first one stands on the right; ``quotes``: how many it stands
        in."""
        result = QTextBlockFormat()
        result.setProperty(DEPTH, quotes)
        if mirrored:
            result.setProperty(MIRRORED, mirrored)
        result.setAlignment(alignment)
        result.setProperty(CELL, True)
        return result


_shared: dict[tuple[int, str, str], Formats] = {}
"""The newest few, by theme and fonts: making them for each message would take longer than drawing a short one."""


def formats_for(theme: Theme, font: QFont) -> Formats:
    """The formats of a theme and a font, shared by all who ask for the same."""
    key = id(theme), font.key(), themes.monospace().key()
    if key not in _shared or _shared[key].theme is not theme:
        while len(_shared) >= _MAX_SHARED:
            del _shared[next(iter(_shared))]
        _shared[key] = Formats(theme, font)
    return _shared[key]
