"""Copy a table of a message: its Markdown, or its cells with tabs between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QMimeData
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu

from app.ui.chat.markdown.plain_text import plain_text
from app.ui.chat.markdown.tables import TableRun
from app.ui.chat.markdown.underlay import Unit


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
