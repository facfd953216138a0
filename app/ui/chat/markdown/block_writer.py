"""Write blocks of Markdown at the end of a document.

What the parser finds is written in the app's own formats. So nothing but text, known formats and checked links can get
there, whatever a model writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markdown_it.token import Token
from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFont,
    QFontMetricsF,
    QTextBlock,
    QTextBlockFormat,
    QTextCursor,
    QTextDocument,
    QTextLength,
    QTextList,
    QTextTable,
    QTextTableFormat,
)

from app.markdown import formulas
from app.markdown.blocks import MAX_TABLE_COLUMNS, Block, Kind, close_inline, language_of
from app.markdown.dialect import TAG, parse_inline, parser
from app.markdown.formulas import GROWING, PLACES, Formula
from app.ui.chat.markdown.code_blocks import CodeRun
from app.ui.chat.markdown.formats import (
    BEGINS,
    CELL_PADDING,
    CHECKED,
    CONTINUED,
    DEPTH,
    QUOTE_INDENT,
    UNCHECKED,
    Formats,
    Look,
)
from app.ui.chat.markdown.formulas import FormulaPlaces
from app.ui.chat.markdown.inline_writer import DocumentEnd, InlineWriter, text_of
from app.words import is_right_to_left

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
        """Its format at this width, in pixels; ``margin``: the part of it that is free beside prose."""
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


_MAX_QUOTES = 8
_NOT_COMPLETED = (Kind.TABLE, Kind.PLAIN, Kind.INDENTED, Kind.FORMULA)
_OF_WORDS = (Kind.PARAGRAPH, Kind.ITEM, Kind.HEADING)
_WORDS = re.compile(r"(?:[^\W_]|[ ,])*")
_ALIGNMENTS = {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to go back to."""

    position: int
    is_free: bool
    format: QTextBlockFormat
    code_runs: int
    table_runs: int


@dataclass(slots=True)
class _List:
    """A list that is being written. ``number``: that of its first item, if they are numbered."""

    mark: str
    number: int | None
    items: QTextList | None = None


class BlockWriter:
    """Writes at the end of a document.

    Attributes:
        end: Where it writes.
        environment: What the parser must know of the whole text, see `app.markdown.dialect.environment`.
        margin: How much narrower prose is than code, in pixels.
        width: What a table may take without having to be scrolled, in pixels; 0: whatever it needs.
        wraps_code: Whether long lines of code are wrapped; else they can be scrolled.
    """

    def __init__(
        self, cursor: QTextCursor, formats: Formats, margin: float, places: FormulaPlaces | None = None
    ) -> None:
        """``places``: without them formulas are shown as source."""
        self.code_runs: list[CodeRun] = []
        self.table_runs: list[TableRun] = []
        self.environment: dict[str, Any] = {}
        self.width = 0.0
        self.wraps_code = False
        self.formats = formats
        self.margin = margin
        self._cursor = cursor
        self.end = DocumentEnd(cursor, formats)
        self._inline = InlineWriter(self.end, formats, places)
        self._places = places
        self._block = Block(Kind.PLAIN, 0, "")
        """The one that is being written."""
        self._env: dict[str, Any] = {}
        self._lists: list[_List] = []
        self._quotes = 0
        self._begins_quote = False
        self._item: Token | None = None
        """An item whose bullet is written with its first line."""
        self._note = ""
        """The label of a footnote, likewise."""
        self._is_first = True

    def save(self) -> Mark:
        """The present state, for `restore`."""
        end, form = self.end, self._cursor.blockFormat()
        return Mark(end.position, end.is_free, form, len(self.code_runs), len(self.table_runs))

    def restore(self, mark: Mark) -> None:
        """Remove everything that was written since."""
        self._cursor.setPosition(mark.position)
        self._cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        self._cursor.removeSelectedText()
        if self._cursor.block().length() <= 1:
            # Qt gives an emptied block the format of what was removed behind it.
            self._cursor.setBlockFormat(mark.format)
        self.end.is_free = mark.is_free
        del self.code_runs[mark.code_runs :]
        del self.table_runs[mark.table_runs :]
        if self._places is not None:
            self._places.remove_from(mark.position)

    # -- blocks

    def write(self, block: Block) -> None:
        """Write a block; one that is still growing as it is so far. (Finished fenced code has its own functions.)"""
        if block.kind is Kind.CODE:
            self.end_code(self.begin_code(block.language))
            return
        is_completed = False
        if not (block.closed or block.ends_in_code or block.kind in _NOT_COMPLETED):
            text = block.text.rstrip("\n")
            block = replace(block, text=close_inline(text))
            is_completed = block.text != text
        if block.continued and self._cursor.position() > 0:
            form = self._cursor.blockFormat()
            form.setBottomMargin(0)
            self._cursor.setBlockFormat(form)
        self._block, self._is_first = block, True
        self._inline.open_look = None
        self._inline.is_final = block.closed
        self._inline.offset, self._inline.first = block.start - len(block.prefix), block.start
        if block.kind is Kind.RULE:
            self._write_rule()
        elif block.kind is Kind.PLAIN or (block.kind is Kind.TABLE and _columns(block) > MAX_TABLE_COLUMNS):
            self._write_plain(block)
        else:
            self._write_tokens(block)
        if is_completed:
            self._inline.open_look = None

    def extend(self, old: Block, new: Block) -> bool:
        """Append the words that were added to the last block; False if more than that has changed."""
        shown, look = old.text.rstrip(" "), self._inline.open_look
        is_grown = replace(new, text=old.text) == old and new.text.startswith(shown) and _WORDS.fullmatch(shown[-1:])
        more = new.text[len(shown) :].rstrip(" ")
        if look is None or old.kind not in _OF_WORDS or not is_grown or not _WORDS.fullmatch(more):
            return False
        self.end.insert(more, self.formats.characters(look), old.start + len(shown))
        return True

    def _write_plain(self, block: Block) -> None:
        characters, at = self.formats.characters(Look()), block.start
        for index, line in enumerate(block.text.removesuffix("\n").split("\n")):
            form = self.formats.prose(self.margin, gap=0.0)
            if not index and block.joined:
                form.setProperty(CONTINUED, True)
            self.end.begin(form, characters)
            self.end.insert(line, characters, at)
            at += len(line) + 1

    def _write_rule(self) -> None:
        self.end.begin(self.formats.rule(self.margin), self.formats.characters(Look()))

    def _write_formula(self, token: Token) -> None:
        """A formula on lines of its own, or one that lacks its end so far, and what stands behind it."""
        text = token.content
        formula = token.meta["formula"] or Formula(0, len(text), text, "", is_display=True)
        form = self._begin_text("")
        self._inline.start(token)
        self._inline.write_formula(formula, Look(), form, 0)
        self.end.insert(text[formula.end - formula.start :], self.formats.characters(Look()))

    def _write_tokens(self, block: Block) -> None:
        self._env = {**self.environment, GROWING: not block.closed}
        self._lists, self._quotes, self._item, self._note = [], 0, None, ""
        if block.continued and block.kind is Kind.PARAGRAPH:
            self._write_text(_rest_of_paragraph(block.text), 0)
            return
        tokens = iter(parser().parse(block.prefix + block.text, self._env))
        for token in tokens:
            self._write_token(token, tokens)

    def _write_token(self, token: Token, following: Iterator[Token]) -> None:
        name, _, side = token.type.rpartition("_")
        if name in ("paragraph", "heading", "alert_title") and side == "open":
            self._write_text(next(following), int(token.tag[1]) if name == "heading" else 0, bold=name == "alert_title")
        elif name in ("blockquote", "alert"):
            self._begins_quote |= side == "open" and not self._quotes and not self._block.continued
            self._quotes += 1 if side == "open" else -1
        elif name in ("ordered_list", "bullet_list", "list_item", "footnote_reference"):
            self._flush_item()
            self._take_list(token, name, is_open=side == "open")
        elif name not in ("paragraph", "heading", "alert_title"):
            self._write_other(token, following)
            self._inline.open_look = None

    def _write_other(self, token: Token, following: Iterator[Token]) -> None:
        """What is no line of text."""
        if token.type == formulas.BLOCK:
            self._write_formula(token)
        elif token.type in ("hr", "fence", "code_block", "table_open"):
            self._flush_item()
            if token.type == "hr":
                self._write_rule()
            elif token.type == "table_open":
                self._write_table(following)
            else:
                self._write_code(token)

    def _take_list(self, token: Token, name: str, *, is_open: bool) -> None:
        if name == "list_item":
            self._item = token if is_open else None
        elif name == "footnote_reference":
            self._note = str(token.meta["label"]) if is_open else ""
        elif not is_open:
            self._lists.pop()
        else:
            number = int(token.attrs.get("start", 1)) if name == "ordered_list" else None
            if number is not None and self._block.number is not None and not self._lists:
                number = self._block.number
            self._lists.append(_List(token.markup, number))

    def _flush_item(self) -> None:
        """An item or a footnote is empty or begins with something other than text: its bullet gets its own line."""
        if self._item is not None or self._note:
            self._begin_text("")
            self._begin_note()

    def _begin_note(self) -> None:
        if self._note:
            self._inline.start()
            self._inline.write_note(self._note)
            self.end.insert(" ", self.formats.characters(Look()))
            self._note = ""

    def _write_text(self, line: Token, level: int, *, bold: bool = False) -> None:
        tokens = parse_inline(line, self._env)
        is_shown = any(token.type not in (TAG, "softbreak", "hardbreak") for token in tokens)
        if not is_shown and self._item is None and not self._note:
            return
        form = self._begin_text(text_of(tokens), level)
        self._begin_note()
        self._inline.write(line, tokens, Look(heading=level, bold=bold), None if level else form)

    def _begin_text(self, text: str, level: int = 0) -> QTextBlockFormat:
        """Begin a block for this text, with the bullet of an item where it is its first; gives back its format."""
        item, self._item = self._item, None
        check = item.meta.get("checked") if item is not None else None
        form = self._text_format(level, is_item=item is not None, is_task=check is not None)
        if self._quotes:
            self._set_quotes(form, text)
        if self._block.continued and self._is_first:
            form.setTopMargin(0)
            form.setProperty(CONTINUED, True) if self._block.joined else None
        self._is_first = False
        self.end.begin(form, self.formats.characters(Look(heading=level)))
        if check is not None:
            self.end.insert(f"{CHECKED if check else UNCHECKED} ", self.formats.characters(Look()))
        elif item is not None:
            self._add_to_list(self._lists[-1])
        return form

    def _text_format(self, level: int, *, is_item: bool, is_task: bool) -> QTextBlockFormat:
        depth = len(self._lists)
        if is_task:
            return self.formats.task(self.margin, depth)
        if level:
            form = self.formats.heading(self.margin, level)
        else:
            form = self.formats.prose(self.margin, gap=3.0) if is_item else self.formats.prose(self.margin)
        if not is_item:
            form.setIndent(depth)
        return form

    def _set_quotes(self, form: QTextBlockFormat, text: str) -> None:
        quotes = min(self._quotes, _MAX_QUOTES)
        form.setProperty(DEPTH, quotes)
        form.setProperty(BEGINS, self._begins_quote)
        self._begins_quote = False
        if is_right_to_left(text):
            form.setRightMargin(self.margin + quotes * QUOTE_INDENT)
        else:
            form.setLeftMargin(quotes * QUOTE_INDENT)

    def _add_to_list(self, one: _List) -> None:
        if one.items is not None:
            one.items.add(self._cursor.block())
        else:
            one.items = self._cursor.createList(self.formats.list(len(self._lists), one.number, one.mark))

    @property
    def _left(self) -> float:
        """The indent of code and tables, in pixels."""
        return len(self._lists) * self.formats.indent + min(self._quotes, _MAX_QUOTES) * QUOTE_INDENT

    # -- tables

    def _write_table(self, following: Iterator[Token]) -> None:
        rows: list[list[tuple[Token, list[Token], Qt.AlignmentFlag]]] = []
        alignment = Qt.AlignmentFlag.AlignLeft
        for token in following:
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                side = str(token.attrs.get("style", "")).removeprefix("text-align:")
                alignment = _ALIGNMENTS.get(side, Qt.AlignmentFlag.AlignLeft)
            elif token.type == "inline":
                rows[-1].append((token, parse_inline(token, self._env), alignment))
        if self.end.is_free:
            self.end.begin(self.formats.nothing, self.formats.tiny)
        columns = len(rows[0])
        run = self._table_run([[tokens for _, tokens, _ in row] for row in rows])
        table = self._cursor.insertTable(len(rows), columns, run.format(self.formats, self.width, self.margin))
        run.start = table.firstPosition()
        for row, cells in enumerate(rows):
            for column, (line, tokens, alignment) in enumerate(reversed(cells) if run.is_mirrored else cells):
                cell = table.cellAt(row, column)
                form = self.formats.cell(header=row == 0, last=row == len(rows) - 1, mirrored=run.is_mirrored)
                cell.setFormat(form)
                self._cursor.setPosition(cell.firstPosition())
                self._cursor.setBlockFormat(self.formats.cell_block(alignment, columns * run.is_mirrored, self._quotes))
                self._inline.write(line, tokens, Look(bold=row == 0))
        if run.is_mirrored:
            self.end.runs.sort(key=lambda one: one.source)
        run.end = table.lastPosition()
        self.table_runs.append(run)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._cursor.setBlockFormat(self.formats.nothing)
        self._cursor.setBlockCharFormat(self.formats.tiny)
        self.end.is_free = True

    def _table_run(self, rows: list[list[list[Token]]]) -> TableRun:
        """A table that goes on with the one before it has the same columns."""
        columns, at = len(rows[0]), self.end.position
        before = self.table_runs[-1] if self._block.continued and self.table_runs else None
        if before is not None and len(before.widths) == columns:
            return TableRun(at, before.widths, before.is_mirrored, before.group, before.left)
        texts = [[self._inline.measured(tokens) for tokens in cells] for cells in rows]
        is_mirrored = is_right_to_left(" ".join(map(" ".join, texts)))
        return TableRun(at, column_widths(texts, self.formats), is_mirrored, at, self._left)

    def measure_table(self, run: TableRun) -> None:
        """Refit a table after formulas were put into its cells."""
        document = self._cursor.document()
        run.measure(document, self.formats, self._inline.as_wide_as)
        run.refit(document, self.formats, self.width, self.margin)

    # -- code

    def begin_code(self, language: str, left: float = 0.0) -> CodeRun:
        """Begin a code block; `code_line` adds its lines."""
        if self.end.position > 0:
            # Qt drops the space above a block that follows a table, and the header stands there.
            self.end.is_free = False
        at = self.end.next_position
        run = CodeRun(at, at, language, left)
        self.code_runs.append(run)
        return run

    def code_line(self, run: CodeRun, text: str, source: int, *, joined: bool = False, partial: bool = False) -> None:
        """Write a line of code, from this place of the source. ``joined``: it continues the line before; ``partial``:
        it is growing."""
        form = self.formats.code_line(first=not run.lines, last=False, left=run.left, wraps=self.wraps_code)
        form.setProperty(DEPTH, min(self._quotes, _MAX_QUOTES))
        if joined:
            form.setProperty(CONTINUED, True)
        plain = self.formats.code_characters()
        self.end.begin(form, plain)
        self.end.insert(text, plain, source)
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
            self.code_line(run, "", -1)
        form = self.formats.code_line(first=run.lines == 1, last=True, left=run.left, wraps=self.wraps_code)
        form.setProperty(DEPTH, min(self._quotes, _MAX_QUOTES))
        self._cursor.setBlockFormat(form)

    def _write_code(self, token: Token) -> None:
        """Write a code block that stands inside an item or a quote, or is indented."""
        run = self.begin_code(language_of(token.info), self._left)
        lines = token.content.removesuffix("\n").split("\n")
        for line, (_, place) in zip(lines, token.meta[PLACES], strict=False):
            self.code_line(run, line, place + self._inline.offset)
        self.end_code(run)


def _columns(block: Block) -> int:
    return (block.prefix or block.text).split("\n", 1)[0].count("|")


def _rest_of_paragraph(text: str) -> Token:
    """The rest of a paragraph that was cut: text, whatever it begins with."""
    places, lines, at, content = [], [], 0, 0
    for line in text.rstrip("\n").split("\n"):
        shown = line.lstrip(" \t")
        places.append((content, at + len(line) - len(shown)))
        lines.append(shown)
        at, content = at + len(line) + 1, content + len(shown) + 1
    return Token("inline", "", 0, content="\n".join(lines), meta={PLACES: places})
