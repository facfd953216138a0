"""Shown Markdown as it is copied. As plain text: no marks, tabs between cells, list items with their bullets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QMimeData
from PySide6.QtGui import (
    QFont,
    QGuiApplication,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextList,
    QTextTable,
)
from PySide6.QtWidgets import QMenu

from app.markdown.dialect import environment
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.block_writer import TableRun
from app.ui.chat.markdown.formats import CHECKED, UNCHECKED, Formats
from app.ui.chat.markdown.formulas import OBJECT, with_sources
from app.ui.chat.markdown.rendering import Rendering
from app.ui.chat.markdown.underlay import Unit, blocks_between, in_reading_order
from app.ui.widgets import theme as themes

_TASKS = {CHECKED: "- [x] ", UNCHECKED: "- [ ] "}
_FIXED = QTextBlockFormat.LineHeightTypes.FixedHeight.value


def plain_text(markdown: str) -> str:
    """What a reader sees of a Markdown text, as plain text. To be called in the window's thread."""
    document = QTextDocument()
    _draw(document, markdown)
    return text_between(document, 0, document.characterCount() - 1).strip("\n")


def code_of(markdown: str, number: int) -> str:
    """The code of one of the code blocks of a text, counted from 0, whether it is on screen or not."""
    document = QTextDocument()
    run = _draw(document, markdown).code_runs[number]
    return text_between(document, run.start, run.end)


def _draw(document: QTextDocument, markdown: str) -> Rendering:
    rendering = Rendering(document, Formats(themes.current(), QFont()))
    rendering.writer.environment = environment(markdown)
    rendering.feed(markdown)
    rendering.finish()
    while rendering.draw(1.0):
        pass
    return rendering


def text_between(document: QTextDocument, start: int, end: int) -> str:
    """The shown text between two document positions, overlong lines in one piece again."""
    parts: list[str] = []
    before: QTextBlock | None = None
    row = -1
    for block in in_reading_order(blocks_between(document, start, end)):
        form = block.blockFormat()
        if form.lineHeightType() == _FIXED and block.length() <= 1:
            continue  # around a table, or a rule
        cursor = QTextCursor(block)
        cursor.setPosition(max(start, block.position()))
        cursor.setPosition(min(end, block.position() + block.length() - 1), QTextCursor.MoveMode.KeepAnchor)
        is_whole_start = start <= block.position() and end > block.position() + block.length() - 1
        text = cursor.selectedText().replace("\u2028", " " if form.hasProperty(formats.CELL) else "\n")
        if OBJECT in text:
            at = block.position()
            text = with_sources(block, cursor.selectionStart() - at, cursor.selectionEnd() - at)
        last_row, row = row, _row_of(cursor) if form.hasProperty(formats.CELL) else -1
        if before is not None:
            parts.append(_separator(before, form, is_same_row=row >= 0 and row == last_row))
        is_item = before is not None or is_whole_start
        parts.append(_with_bullet(block, text) if is_item and start <= block.position() else text)
        before = block
    return "".join(parts)


def _row_of(cursor: QTextCursor) -> int:
    """Which row of its table this is; rows of different tables have different numbers."""
    table: QTextTable | None = cursor.currentTable()  # PySide's stubs deny the None
    return table.firstPosition() + table.cellAt(cursor).row() if table is not None else -1


def _separator(before: QTextBlock, form: QTextBlockFormat, *, is_same_row: bool) -> str:
    if is_same_row:
        return "\t"
    if form.hasProperty(formats.CONTINUED):
        return ""
    above = before.blockFormat()
    if above.hasProperty(formats.CELL) and form.hasProperty(formats.CELL):
        return "\n"
    is_table = above.hasProperty(formats.CELL) or form.hasProperty(formats.CELL)
    return "\n\n" if is_table or above.bottomMargin() + form.topMargin() >= formats.GAP else "\n"


def _with_bullet(block: QTextBlock, text: str) -> str:
    """The text of a list's item with what stands before it."""
    if text[:1] in _TASKS and block.blockFormat().hasProperty(formats.TASK):
        return "  " * (block.blockFormat().indent() - 1) + _TASKS[text[0]] + text[2:]
    items: QTextList | None = block.textList()  # PySide's stubs deny the None
    if items is None:
        return text
    is_ordered = items.format().style() is items.format().Style.ListDecimal
    bullet = f"{items.format().start() + items.itemNumber(block)}." if is_ordered else "-"
    return "  " * (items.format().indent() - 1) + f"{bullet} {text}"


def selected_source(units: Sequence[Unit], source: str, start: int, end: int) -> str:
    """The Markdown of what is selected where that is whole blocks, such as a table; empty where it is not."""
    first = max(0, bisect_right(units, start, key=lambda unit: unit.start) - 1)
    last = bisect_right(units, end, key=lambda unit: unit.start) - 1
    if last < first or start > units[first].start or end < units[last].end:
        return ""
    return source[units[first].source_start : units[last].source_end]


def table_source(tables: Sequence[TableRun], units: Sequence[Unit], source: str, position: int) -> str:
    """The Markdown of the table at this document position, all its parts; empty where there is none."""
    index = bisect_right(tables, position, key=lambda table: table.start) - 1
    if index < 0 or position > tables[index].end:
        return ""
    parts = [table for table in tables if table.group == tables[index].group]
    found = [unit for unit in units if unit.end >= parts[0].start and unit.start <= parts[-1].end]
    return source[found[0].source_start : found[-1].source_end].strip("\n") if found else ""


def add_table_actions(
    menu: QMenu, tables: Sequence[TableRun], units: Sequence[Unit], source: str, position: int
) -> None:
    """Add what can be done with the table at this document position, if there is one."""
    text = table_source(tables, units, source, position)
    if text:
        menu.addSeparator()
        menu.addAction("Copy table as Markdown", partial(_copy, text, markdown=text))
        menu.addAction("Copy table as text", lambda: _copy(plain_text(text), markdown=text))


def _copy(text: str, *, markdown: str) -> None:
    data = QMimeData()
    data.setText(text)
    data.setData("text/markdown", markdown.encode("utf-8", "replace"))
    QGuiApplication.clipboard().setMimeData(data)
