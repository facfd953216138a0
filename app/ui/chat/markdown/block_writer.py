"""Write blocks of Markdown at the end of a document.

Qt parses each block on its own in a scratch document; what comes out is written into the real one in the app's own
formats. So nothing but text, known formats and checked links can get there, whatever a model writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextList,
    QTextTable,
)

from app.chats.formats.formulas import Formula, formula_at
from app.models.text import is_right_to_left
from app.ui.chat.markdown.block_splitter import close_inline
from app.ui.chat.markdown.blocks import MAX_TABLE_COLUMNS, Block, Kind
from app.ui.chat.markdown.code_blocks import CodeRun
from app.ui.chat.markdown.document_end import DocumentEnd
from app.ui.chat.markdown.formats import (
    CHECKED,
    CONTINUED,
    DEPTH,
    QUOTE,
    QUOTE_INDENT,
    ROLE,
    UNCHECKED,
    Formats,
    Look,
)
from app.ui.chat.markdown.formula_places import FormulaPlaces
from app.ui.chat.markdown.inline_writer import InlineWriter
from app.ui.chat.markdown.tables import TableRun, column_widths

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
_Property = QTextFormat.Property
_DEEP_INDENT = re.compile(r"^ {25,}", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_LEADING_SPACE = re.compile(r"^[ \t]+", re.MULTILINE)
_DEFINITION = re.compile(r"^( {0,3})\[(?=[^\]\n]+\]:)", re.MULTILINE)
_MAX_QUOTES = 8
_NOT_COMPLETED = (Kind.TABLE, Kind.PLAIN, Kind.INDENTED, Kind.FORMULA)
_Marker = QTextBlockFormat.MarkerType
_TASK_MARKS = {_Marker.Checked: CHECKED, _Marker.Unchecked: UNCHECKED}


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to go back to."""

    position: int
    is_free: bool
    format: QTextBlockFormat
    code_runs: int
    table_runs: int


class _ScratchDocument(QTextDocument):
    def loadResource(self, _type: int, _name: QUrl | str) -> object:
        return None


@cache
def _scratch() -> _ScratchDocument:
    """One for all: it holds a block only while that is written."""
    return _ScratchDocument()


class BlockWriter:
    """Writes at the end of a document.

    Attributes:
        margin: How much narrower prose is than code, in pixels.
        width: What a table may take without having to be scrolled, in pixels; 0: whatever it needs.
        wraps_code: Whether long lines of code are wrapped.
        wrap_choices: The same of single code blocks, by their numbers, where the user has chosen.
    """

    def __init__(
        self, cursor: QTextCursor, formats: Formats, margin: float, places: FormulaPlaces | None = None
    ) -> None:
        """``places``: without them formulas are shown as source."""
        self.code_runs: list[CodeRun] = []
        self.table_runs: list[TableRun] = []
        self.width = 0.0
        self.wraps_code = False
        self.wrap_choices: dict[int, bool] = {}
        self.formats = formats
        self.margin = margin
        self._cursor = cursor
        self._end = DocumentEnd(cursor, formats)
        self._scratch = _scratch()
        self._lists: dict[int, QTextList] = {}
        self._inline = InlineWriter(self._end, formats, places)

    # -- where

    @property
    def position(self) -> int:
        """The end of what is written."""
        return self._end.position

    @property
    def next_position(self) -> int:
        """Where the text of the next block will begin."""
        return self._end.next_position

    def save(self) -> Mark:
        """The present state, for `restore`."""
        form, is_free = self._cursor.blockFormat(), self._end.is_free
        return Mark(self.position, is_free, form, len(self.code_runs), len(self.table_runs))

    def restore(self, mark: Mark) -> None:
        """Remove everything that was written since."""
        self._cursor.setPosition(mark.position)
        self._cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        self._cursor.removeSelectedText()
        if self._cursor.block().length() <= 1:
            # Qt gives an emptied block the format of what was removed behind it.
            self._cursor.setBlockFormat(mark.format)
        self._end.is_free = mark.is_free
        del self.code_runs[mark.code_runs :]
        del self.table_runs[mark.table_runs :]

    # -- blocks

    def write(self, block: Block) -> None:
        """Write a block; one that is still growing as it is so far. (Finished fenced code has its own functions.)"""
        if block.kind is Kind.CODE:
            self.end_code(self.begin_code(block.language))
            return
        if not (block.closed or block.ends_in_code or block.kind in _NOT_COMPLETED):
            block = replace(block, text=close_inline(block.text.rstrip("\n")))
        if block.continued and self._cursor.position() > 0:
            form = self._cursor.blockFormat()
            form.setBottomMargin(0)
            self._cursor.setBlockFormat(form)
        if block.kind is Kind.RULE:
            self._end.begin(self.formats.rule(self.margin), self.formats.characters(Look()))
        elif block.kind is Kind.PLAIN or (block.kind is Kind.TABLE and _columns(block) > MAX_TABLE_COLUMNS):
            self._write_plain(block)
        elif block.kind is Kind.FORMULA:
            self._write_formula(block)
        else:
            self._write_markdown(block)

    def _write_plain(self, block: Block) -> None:
        characters = self.formats.characters(Look())
        for index, line in enumerate(block.text.removesuffix("\n").split("\n")):
            form = self.formats.prose(self.margin, gap=0.0)
            if not index and block.joined:
                form.setProperty(CONTINUED, True)
            self._end.begin(form, characters)
            self._cursor.insertText(line, characters)

    def _write_formula(self, block: Block) -> None:
        """A formula on lines of its own, or one that lacks its end so far."""
        text = block.text.strip()
        formula = formula_at(text, 0) if block.closed else None
        formula = formula or Formula(0, len(text), text, "", is_display=True)
        form, look = self.formats.prose(self.margin), Look()
        if block.continued:
            form.setTopMargin(0)
        self._end.begin(form, self.formats.characters(look))
        self._inline.is_final = block.closed
        self._inline.write_formula(formula, look, form)
        self._cursor.insertText(text[formula.end :], self.formats.characters(look))

    def _write_markdown(self, block: Block) -> None:
        source = _source(block)
        self._inline.is_final = block.closed
        if block.kind is not Kind.INDENTED:
            source = self._inline.without_formulas(source)
        self._scratch.setMarkdown(source, FEATURES)
        self._lists.clear()
        has_table = "|" in source
        table_end = -1
        part = self._scratch.begin()
        first = True
        while part.isValid():
            if part.position() <= table_end:
                part = part.next()
                continue
            table = QTextCursor(part).currentTable() if has_table else None
            if table is not None:
                table_end = table.lastPosition()
                self._write_table(table, block)
            elif _is_code(part):
                part = self._write_code_lines(part)
            else:
                self._write_part(part, block, first=first)
            first = False
            part = part.next()

    def _write_part(self, part: QTextBlock, block: Block, *, first: bool) -> None:
        origin = part.blockFormat()
        items: QTextList | None = part.textList()  # PySide's stubs deny the None
        characters = self.formats.characters(Look())
        if origin.hasProperty(_Property.BlockTrailingHorizontalRulerWidth.value):
            self._end.begin(self.formats.rule(self.margin), characters)
            return
        if part.length() <= 1 and items is None:
            return
        level = origin.headingLevel()
        task = _TASK_MARKS.get(origin.marker()) if items is not None else None
        form = self._block_format(part, level, items, is_task=task is not None)
        if block.continued and first:
            form.setTopMargin(0)
            if block.joined:
                form.setProperty(CONTINUED, True)
        self._end.begin(form, self.formats.characters(Look(heading=level)))
        if task is not None:
            self._cursor.insertText(f"{task} ", self.formats.characters(Look()))
        elif items is not None:
            key = origin.objectIndex()
            if key in self._lists:
                self._lists[key].add(self._cursor.block())
            else:
                number = block.number if items.format().indent() <= 1 else None
                self._lists[key] = self._cursor.createList(self.formats.list(items.format(), number))
        self._inline.write(part, level, form=None if level else form)

    def _block_format(
        self, part: QTextBlock, level: int, items: QTextList | None, *, is_task: bool
    ) -> QTextBlockFormat:
        origin = part.blockFormat()
        quotes = min(origin.intProperty(_Property.BlockQuoteLevel.value), _MAX_QUOTES)
        if level:
            form = self.formats.heading(self.margin, level)
        elif items is not None and is_task:
            form = self.formats.task(self.margin, max(1, items.format().indent()))
        elif items is not None:
            form = self.formats.prose(self.margin, gap=3.0)
        else:
            form = self.formats.prose(self.margin)
            form.setIndent(origin.indent())
        if quotes:
            form.setProperty(ROLE, QUOTE)
            if is_right_to_left(part.text()):
                form.setRightMargin(self.margin + quotes * QUOTE_INDENT)
            else:
                form.setLeftMargin(quotes * QUOTE_INDENT)
            form.setProperty(DEPTH, quotes)
        return form

    # -- tables

    def _write_table(self, origin: QTextTable, block: Block) -> None:
        if self._end.is_free:
            self._end.begin(self.formats.nothing, self.formats.tiny)
        rows, columns = origin.rows(), origin.columns()
        run = self._table_run(origin, block)
        table = self._cursor.insertTable(rows, columns, run.format(self.formats, self.width, self.margin))
        run.start = table.firstPosition()
        for row in range(rows):
            for column in range(columns):
                source = origin.cellAt(row, column).firstCursorPosition()
                cell = table.cellAt(row, columns - 1 - column if run.is_mirrored else column)
                form = self.formats.cell(header=row == 0, last=row == rows - 1, mirrored=run.is_mirrored)
                cell.setFormat(form)
                self._cursor.setPosition(cell.firstPosition())
                alignment = source.blockFormat().alignment()
                self._cursor.setBlockFormat(self.formats.cell_block(alignment, columns * run.is_mirrored))
                self._inline.write(source.block(), bold=row == 0)
        run.end = table.lastPosition()
        self.table_runs.append(run)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._cursor.setBlockFormat(self.formats.nothing)
        self._cursor.setBlockCharFormat(self.formats.tiny)
        self._end.is_free = True

    def _table_run(self, origin: QTextTable, block: Block) -> TableRun:
        """A table that goes on with the one before it has the same columns."""
        columns, at = origin.columns(), self.position
        before = self.table_runs[-1] if block.continued and self.table_runs else None
        if before is not None and len(before.widths) == columns:
            return TableRun(at, before.widths, before.is_mirrored, before.group)
        texts = [
            [
                self._inline.measured(origin.cellAt(row, column).firstCursorPosition().block().text())
                for column in range(columns)
            ]
            for row in range(origin.rows())
        ]
        is_mirrored = is_right_to_left(" ".join(map(" ".join, texts)))
        return TableRun(at, column_widths(texts, self.formats), is_mirrored, at)

    def measure_table(self, run: TableRun) -> None:
        """Formulas were put into cells of a table."""
        document = self._cursor.document()
        run.measure(document, self.formats, self._inline.as_wide_as)
        run.refit(document, self.formats, self.width, self.margin)

    # -- code

    def begin_code(self, language: str, left: float = 0.0) -> CodeRun:
        """A new code block; its lines follow through `code_line`."""
        if self.position > 0:
            # Qt drops the space above a block that follows a table, and the header stands there.
            self._end.is_free = False
        wraps = self.wrap_choices.get(len(self.code_runs), self.wraps_code)
        run = CodeRun(self.next_position, self.next_position, language, left, is_wrapped=wraps)
        self.code_runs.append(run)
        return run

    def code_line(self, run: CodeRun, text: str, *, joined: bool = False, partial: bool = False) -> None:
        """Write one line of code. ``joined``: it goes on with the line before it; ``partial``: it is still growing."""
        form = self.formats.code_line(first=not run.lines, last=False, left=run.left, wraps=run.is_wrapped)
        if joined:
            form.setProperty(CONTINUED, True)
        plain = self.formats.code_characters()
        self._end.begin(form, plain)
        self._cursor.insertText(text, plain)
        run.end = self._cursor.position()
        run.width = max(run.width, self.formats.code_width(text))
        if not partial:
            if joined:
                run.joined.add(run.lines)
            run.lines += 1
            run.size = run.end - run.start

    def end_code(self, run: CodeRun) -> None:
        """The code block is complete."""
        run.is_closed = True
        if not run.lines:
            self.code_line(run, "")
        self._cursor.setBlockFormat(
            self.formats.code_line(first=run.lines == 1, last=True, left=run.left, wraps=run.is_wrapped)
        )

    def _write_code_lines(self, part: QTextBlock) -> QTextBlock:
        """Write a code block that stands inside an item or a quote; gives back its last line."""
        origin = part.blockFormat()
        language = str(origin.property(_Property.BlockCodeLanguage.value) or "")
        quotes = min(origin.intProperty(_Property.BlockQuoteLevel.value), _MAX_QUOTES)
        run = self.begin_code(language, origin.indent() * self.formats.indent + quotes * QUOTE_INDENT)
        self.code_line(run, self._inline.with_formulas(part.text()))
        while _is_code(part.next()):
            part = part.next()
            self.code_line(run, self._inline.with_formulas(part.text()))
        self.end_code(run)
        return part


def _is_code(block: QTextBlock) -> bool:
    form = block.blockFormat()
    return form.hasProperty(_Property.BlockCodeLanguage.value) or form.hasProperty(_Property.BlockCodeFence.value)


def _columns(block: Block) -> int:
    return (block.prefix or block.text).split("\n", 1)[0].count("|")


def _source(block: Block) -> str:
    """What Qt shall parse for a block."""
    text = block.prefix + _DEEP_INDENT.sub(" " * 24, block.text)
    if block.kind is Kind.PARAGRAPH:
        # Blocks are parsed one by one, so a link's definition would vanish and serve nobody.
        text = _DEFINITION.sub(r"\g<1>\\[", text)
        if block.continued:
            text = _LEADING_SPACE.sub("", text)
    if block.number is not None:
        text = _NUMBER.sub(str(block.number), text, count=1)
    return text
