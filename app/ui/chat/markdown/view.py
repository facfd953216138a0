"""The one widget that shows text from a model or a file as Markdown.

No HTML is interpreted, nothing is loaded, links only lead somewhere after a question. The widget is as high as its
text; the transcript scrolls it.
"""

from __future__ import annotations

import html
import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent, QMimeData, QPointF, QRect, QRectF, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QContextMenuEvent, QHelpEvent, QKeyEvent, QPainter, QTextCursor, QTextDocument
from PySide6.QtWidgets import QMenu, QTextEdit, QToolTip, QWidget
from shiboken6 import isValid

from app.helper.rendering import without_pictures
from app.markdown.dialect import environment
from app.protocol.events import Piece
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.code_blocks import CodeColors, CodeHeader, CodeRun, code_wrap
from app.ui.chat.markdown.fold_button import Fold
from app.ui.chat.markdown.formats import CODE_PADDING, ROW_PADDING
from app.ui.chat.markdown.formulas import FormulaObjects, FormulaPlaces, sources_in
from app.ui.chat.markdown.inline_writer import confirm_link, link_in_words
from app.ui.chat.markdown.plain_text import add_table_actions, code_of, plain_text, selected_source, text_between
from app.ui.chat.markdown.rendering import Rendering
from app.ui.chat.markdown.underlay import (
    FindMarks,
    SourceMark,
    TokenTints,
    Unit,
    block_rect,
    blocks_between,
    explanation,
    paint_roles,
    units_in,
)
from app.ui.chat.markdown.wide import BAR_HEIGHT, SafeBrowser, WidePart, WidePlaces, code_extent, code_place
from app.ui.widgets import theme as themes
from app.ui.widgets.turns import turns


class Frames:
    """Places the frames of code and the headers above them in one rendering. ``prose_width``, ``width``: how wide lines
    of prose are, and how wide code and tables may be, in pixels."""

    def __init__(
        self,
        document: QTextDocument,
        headers: Sequence[CodeHeader],
        wide: WidePlaces,
        rendering: Rendering,
        places: FormulaPlaces,
    ) -> None:
        """``headers``: those that were made so far; there may be fewer than code blocks, or more."""
        self.prose_width = self.width = 0
        self._document = document
        self._headers = headers
        self._wide = wide
        self._rendering = rendering
        self._places = places
        self._formats = rendering.writer.formats
        self._placed = 0

    def set_widths(self, prose: int, width: int) -> None:
        """Everything has to be placed again."""
        self.prose_width, self.width = prose, width
        self._placed = 0

    def forget(self) -> None:
        """What was placed may have moved."""
        self._placed = 0

    def place(self) -> None:
        """Put the headers that are made over the frames, and scroll bars below what is too wide."""
        runs = self._rendering.code_runs
        # All before were finished when they were placed.
        first = max(0, min(self._placed, len(runs)) - 1)
        self._placed = min(len(self._headers), len(runs))
        for header, run in zip(self._headers[first:], runs[first:], strict=False):
            header.place(self.frame(run), self._formats.code_header, run.language)
        for header in self._headers[len(runs) :]:
            header.hide()
        self._place_wide()

    def _place_wide(self) -> None:
        parts = [
            WidePart(run.start, run.end, self._code_place(run), code_extent(run.width), "code", run.start)
            for run in self._rendering.code_runs
            if not self._rendering.writer.wraps_code and self._needed(run) > self.width
        ]
        for table in self._rendering.writer.table_runs:
            frame = self._document.frameAt(table.start) if table.is_wide(self.width) else None
            if frame is not None:
                box = self._document.documentLayout().frameBoundingRect(frame)
                # For a table Qt gives back the place of the first cell's text, and the size of all with its margins.
                top = box.top() - frame.frameFormat().topMargin() - ROW_PADDING
                place = QRect(0, math.floor(top), self.width, math.ceil(box.height()))
                width, is_mirrored = math.ceil(box.width()), table.is_mirrored
                parts.append(WidePart(table.start, table.end, place, width, "table", table.group, is_mirrored))
        for formula in self._places.display_runs:
            if formula.is_wide(self.width):
                box = self._block_rect(formula.start)
                bottom = math.ceil(box.bottom()) + BAR_HEIGHT
                place = QRect(0, math.floor(box.top()), self.width, bottom - math.floor(box.top()))
                width = math.ceil(formula.left) + formula.width
                parts.append(WidePart(formula.start, formula.start + 1, place, width, "formula", formula.start))
        if parts or self._wide.parts:
            self._wide.set_parts(sorted(parts, key=lambda part: part.start))

    def _code_place(self, run: CodeRun) -> QRect:
        return code_place(self.frame(run), self._formats.code_header)

    def _needed(self, run: CodeRun) -> float:
        """Where the frame of code would end if it were as wide as its longest line."""
        return run.left + run.width + 2 * CODE_PADDING

    def frame(self, run: CodeRun) -> QRectF:
        """Where the frame of a code block is, with its header."""
        top = self._block_rect(run.start).top() - self._formats.code_header
        bottom = self._block_rect(run.end).bottom() + CODE_PADDING
        # As wide as prose, and wider only where a line needs it.
        right = min(max(self._needed(run), self.prose_width), self.width)
        return QRectF(run.left, top, right - run.left, bottom - top)

    def _block_rect(self, position: int) -> QRectF:
        return block_rect(self._document, self._document.findBlock(position))

    def paint(self, painter: QPainter, start: int, end: int) -> None:
        """Paint the frames between two document positions."""
        runs = self._rendering.code_runs
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._formats.theme.code_surface)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for run in runs[bisect_left(runs, start, key=lambda run: run.end) :]:
            if run.start > end + 1:
                break
            painter.drawRoundedRect(self.frame(run), themes.RADIUS, themes.RADIUS)


FRAME_MILLISECONDS = 33
"""Time between two updates of a text that is being written."""
SLOW_FRAME_MILLISECONDS = 100
_BUDGET = 0.003
"""Seconds one update may draw new blocks."""
_MOST_AS_HTML = 20_000
"""Characters of a copy that word processors get with its formats; it takes time."""


class MarkdownView(SafeBrowser):
    """Markdown that can grow. ``plain``: the text is shown as it is. ``language``: as code in this language. ``soft``:
    in a softer color."""

    height_changed = Signal()
    """The text needs another height; see `content_height`."""
    drawn = Signal()
    """Everything that was added is on screen."""

    _wraps = False
    _is_set_up = False  # Qt calls `changeEvent` from within the constructor

    def __init__(
        self, *, plain: bool = False, language: str = "", soft: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._plain = plain or bool(language)
        self._language = language
        self._is_soft = soft
        self._text: list[str] = []
        self._source = ""
        self._is_finished = False
        self._prose_width = self._width = 0
        self._height = 0
        self._is_partial = False
        """Whether only the beginning of the text is drawn."""
        self._is_raw = False
        self._described = 0
        """How many formulas had been made when they were last told to screen readers."""
        self._fold = Fold(self.viewport(), self._redraw)
        self._headers: list[CodeHeader] = []
        """Of the code blocks, from top to bottom; made in turns of their own, and kept when all is drawn anew."""
        self._objects = FormulaObjects(self.document(), themes.current())
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame_due)
        self._last_frame = 0.0
        self._frame_seconds = 0.0
        self._shows_drafted = False
        self._find = FindMarks(self.document())
        self._tints = TokenTints(self.document())
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._mark: SourceMark | None = None
        self._set_up()
        self._begin()
        self._is_set_up = True
        self.anchorClicked.connect(self._on_anchor_clicked)
        themes.notifier().theme_changed.connect(self._on_look_changed)
        code_wrap().changed.connect(self._on_look_changed)

    def _set_up(self) -> None:
        self.setCursorWidth(0)
        self.setLineWrapMode(QTextEdit.LineWrapMode.FixedPixelWidth)
        self.document().setDocumentMargin(0)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )

    def _begin(self) -> None:
        """Set up what draws into the empty document, in the current theme and font."""
        self._has_old_look = False
        self._drawn_font = self.font()
        font = themes.monospace_for(self._drawn_font) if self._is_raw else self._drawn_font
        theme = themes.current()
        self._formats = formats.formats_for(theme.softened if self._is_soft else theme, font)
        self.document().setIndentWidth(self._formats.indent)
        self.setTabStopDistance(formats.TAB_COLUMNS * self._formats.code_column)
        margin = float(self._width - self._prose_width)
        language = "" if self._is_raw else self._language
        plain = (self._plain or self._is_raw) and not language
        self._objects.theme = theme
        self._objects.ratio = self.devicePixelRatioF()
        self._places = FormulaPlaces(self.document(), self._objects)
        self._places.set_widths(self._width, margin)
        self._rendering = Rendering(
            self.document(), self._formats, plain=plain, language=language, margin=margin, places=self._places
        )
        writer = self._rendering.writer
        writer.width, writer.wraps_code = self._width, self._wraps or code_wrap().is_on
        runs = self._rendering.lasting_code_runs
        self._frames = Frames(self.document(), self._headers, self.wide, self._rendering, self._places)
        self._frames.set_widths(self._prose_width, self._width)
        self._colors = CodeColors(self.document(), self._formats, runs, self._on_colored)

    # -- text

    @property
    def content(self) -> str:
        """The text as it was given."""
        if self._text:
            self._source += "".join(self._text)
            self._text.clear()
        return self._source

    def set_text(self, text: str, find_pieces: Callable[[], list[Piece]] | None = None, *, folds: bool = False) -> None:
        """Show a finished text. ``find_pieces`` gives its tokens where they matter, if they are known. ``folds``: show
        only the beginning of a very long one until the user wants all."""
        self._mark = None
        self._tints = TokenTints(self.document())
        self._find_pieces = find_pieces
        is_first = not self.content and not self._is_finished
        self._source, self._text = text, []
        self._is_finished = True
        self.wide.clear()
        self._fold.set_text(text, folds=folds)
        self._described = self._objects.made
        self.setAccessibleDescription("")
        if is_first:
            self._feed_all()
        else:
            self._redraw()

    def wrap_code(self) -> None:
        """Wrap long lines of code, whatever the user wants in general. To be called first."""
        self._wraps = self._rendering.writer.wraps_code = True

    def set_raw(self, raw: bool) -> None:
        """Show the source as it was written, in the fixed-width font."""
        if raw != self._is_raw:
            self._is_raw = raw
            self._redraw()

    def append_pieces(self, pieces: list[Piece]) -> None:
        """Add tokens to a text that is being written; they appear with the next frame."""
        self._tints.add(pieces)
        text = "".join([piece.text for piece in pieces])
        self._text.append(text)
        self._rendering.feed(text)
        if self.is_drawn:
            passed = (time.perf_counter() - self._last_frame) * 1000
            interval = SLOW_FRAME_MILLISECONDS if self._frame_seconds > 0.012 else FRAME_MILLISECONDS
            self._timer.start(max(0, round(interval - passed)))

    def finish(self) -> None:
        """The text is complete; what is left of it is drawn at once."""
        self._is_finished = True
        known = self._environment()
        if known["wanted"] or known["notes"]:
            self._redraw()  # what is defined at the end is known at last
        else:
            self._rendering.finish()
        self._timer.start(0)

    @property
    def is_drawn(self) -> bool:
        """Whether all the text given so far is on screen."""
        return not self._timer.isActive() and not turns().is_waiting(self)

    # -- size

    def set_widths(self, prose: int, code: int) -> None:
        """Lines of prose are ``prose`` pixels wide, code and tables up to ``code`` pixels (at least as much)."""
        if (prose, code) == (self._prose_width, self._width):
            return
        old_margin = self._width - self._prose_width
        self._prose_width, self._width = prose, code
        self.setFixedWidth(code)
        self._places.set_widths(code, float(code - prose))  # before everything is laid out again
        self.setLineWrapColumnOrWidth(code)
        self._rendering.writer.margin = float(code - prose)
        if code - prose != old_margin:
            self._set_prose_margin(code - prose)
        self._rendering.writer.width = code
        for table in self._rendering.writer.table_runs:
            table.refit(self.document(), self._formats, code, float(code - prose))
        for unit in self._rendering.units:
            unit.shapes = None
        self._frames.set_widths(prose, code)
        self._measure()

    def _set_prose_margin(self, margin: int) -> None:
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for block in blocks_between(self.document(), 0, self.document().characterCount()):
            form = block.blockFormat()
            if form.hasProperty(formats.PROSE):
                inset = 0.0 if form.leftMargin() else form.intProperty(formats.DEPTH) * formats.QUOTE_INDENT
                form.setRightMargin(margin + inset)
                cursor.setPosition(block.position())
                cursor.setBlockFormat(form)
        cursor.endEditBlock()

    def content_height(self) -> int:
        """Height of the text at its present width, in pixels."""
        return self._height

    def _measure(self, *, is_news: bool = False) -> None:
        """``is_news``: the height is final now, even if it hasn't changed."""
        runs = self._rendering.code_runs
        # The frame of code at the very end reaches below its last line.
        below = formats.CODE_PADDING if runs and runs[-1].end >= self._rendering.writer.end.position else 0
        height = int(self.document().size().height() + below + 0.99)
        self._frames.place()
        height = self._fold.place(height, self._prose_width)
        if height != self._height or is_news:
            self._height = height
            self.setFixedHeight(height)
            self.height_changed.emit()
        if self._is_header_missing():
            turns().want(self)

    # -- drawing

    @Slot()
    def _on_frame_due(self) -> None:
        turns().want(self)  # not at once: another view may be drawing in this turn of the event loop

    def _draw(self) -> None:
        started = time.perf_counter()
        self._place_formulas()
        selected = self.textCursor()
        anchor, position = selected.anchor(), selected.position()
        more = self._rendering.draw(_BUDGET) or self._places.has_answers()
        if anchor != position:
            self._select(anchor, position)
        if more:
            turns().want(self)  # before anybody hears of the height, which is not the real one yet
        was_partial, self._is_partial = self._is_partial, more
        self._measure(is_news=was_partial and not more)
        self._colors.update()
        places = self._places
        places.ask(lambda: isValid(self) and self._places is places, partial(turns().want, self))
        self._last_frame = time.perf_counter()
        self._frame_seconds = self._last_frame - started
        if self.is_drawn:
            self._describe_formulas()
            self.drawn.emit()

    def _place_formulas(self) -> None:
        """Put formulas that were drawn meanwhile into the place of their sources."""
        moves = self._places.place()
        if moves is None:
            return
        self._rendering.move(moves)
        self.wide.renumber(moves.new)
        self._frames.forget()
        self._forget_places()

    def _describe_formulas(self) -> None:
        """Tell screen readers the sources of the formulas; in the text they only find a placeholder for each."""
        if self._is_finished and self._described != self._objects.made:
            self._described = self._objects.made
            sources = sources_in(self.document())
            self.setAccessibleDescription(f"Formulas: {'; '.join(sources)}" if sources else "")

    def _forget_places(self) -> None:
        """Positions found in the document may be out of date."""
        if self._mark is not None:
            self._mark.forget_places()
        self._find.forget_places()

    def _select(self, anchor: int, position: int) -> None:
        """Keep what the user has selected while text is added behind it."""
        cursor = self.textCursor()
        if (cursor.anchor(), cursor.position()) != (anchor, position):
            last = self.document().characterCount() - 1
            cursor.setPosition(min(anchor, last))
            cursor.setPosition(min(position, last), QTextCursor.MoveMode.KeepAnchor)
            self.setTextCursor(cursor)

    def _redraw(self) -> None:
        """Draw everything anew, as much as fits into one update at once and the rest when the window has time."""
        self._colors.close()
        self.document().clear()
        self._begin()
        self._forget_places()
        self._feed_all()

    def _environment(self) -> dict[str, Any]:
        return environment("" if self._plain or self._is_raw else self.content)

    def _feed_all(self) -> None:
        self._rendering.writer.environment = self._environment()
        self._rendering.feed(self.content[: self._fold.length])
        if self._is_finished:
            self._rendering.finish()
        if self._width:
            self._draw()
        else:  # it would be laid out in vain: the width comes next
            turns().want(self)

    @Slot()
    def _on_look_changed(self) -> None:
        self._has_old_look = True
        turns().want(self)

    def take_turn(self) -> None:
        """See `TakesTurns`."""
        if self._has_old_look:
            self._redraw()
        elif self._is_header_missing():
            self._headers.append(CodeHeader(self.viewport(), partial(self._code, len(self._headers))))
            turns().want(self)
        else:
            self._draw()

    # -- code blocks

    def _on_colored(self, start: int, end: int) -> None:
        """Italics may be wider, so shapes computed from the old positions no longer hold."""
        units = self._rendering.units
        first = max(0, bisect_right(units, start, key=lambda unit: unit.start) - 1)
        for unit in units[first : bisect_left(units, end, lo=first, key=lambda unit: unit.start)]:
            unit.shapes = None
        self._measure()

    def _is_header_missing(self) -> bool:
        return len(self._headers) < len(self._rendering.code_runs)

    def _code(self, number: int) -> str:
        """The whole text of a code block."""
        run = self._rendering.code_runs[number]
        if self._fold.length is not None and number == len(self._rendering.code_runs) - 1:
            return code_of(self.content, number)  # it may go on in what is folded
        return text_between(self.document(), run.start, run.end)

    def _known_tints(self) -> TokenTints:
        """With the tokens of the text, if these fit it."""
        if self._find_pieces is not None:
            pieces, self._find_pieces = self._find_pieces(), None
            if "".join([piece.text for piece in pieces]) == self.content:
                self._tints.add(pieces)
        return self._tints

    # -- marks

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft."""
        if shown != self._shows_drafted:
            self._shows_drafted = shown
            self.viewport().update()

    def set_mark(self, marked: tuple[int, int] | None) -> None:
        """Make the characters from the first to before the second of a finished text stand out; ``None``: none."""
        self._mark = SourceMark(self.document(), [marked]) if marked is not None else None
        self.viewport().update()

    def mark_box(self) -> QRectF | None:
        """Where the mark begins in this widget; ``None`` until it is drawn, or where there is no mark."""
        if self._mark is None or not self._is_finished or not self.is_drawn:
            return None
        box = next(iter(self._mark.difference(self._rendering.units)), None)
        return self.wide.on_screen(box) if box is not None else None

    def set_find(self, query: str) -> int:
        """Mark every match of ``query``, whatever the case; returns how many there are now. Empty: mark none."""
        found = self._find.search(query, self.content, plain=self._plain)
        self.viewport().update()
        return found

    def show_find(self, index: int) -> QRectF | None:
        """Make match ``index`` stand out: unfold the text and scroll sideways to it. Returns what `find_box` does."""
        if index >= len(self._find.starts):
            return None  # the text is another one by now
        self._find.current = index
        if self._fold.length is not None and self._find.starts[index] >= self._fold.length:
            self._fold.unfold()
        self.viewport().update()
        return self.find_box()

    def find_box(self) -> QRectF | None:
        """Where the match that stands out is in this widget; ``None`` if it isn't drawn yet (see `drawn`) or there is
        none."""
        if self._find.current is None or not self.is_drawn:
            return None
        boxes = self._find.boxes(self._find.current, self._rendering.units)
        if not boxes:
            return None
        self.wide.show_box(boxes[0])
        return self.wide.on_screen(boxes[0])

    def leave_match(self) -> None:
        """The match that stands out is in another message now."""
        self._find.current = None
        self.viewport().update()

    def add_table_actions(self, menu: QMenu, position: int) -> None:
        """Add what can be done with the table at this document position, if there is one."""
        tables = self._rendering.writer.table_runs
        add_table_actions(menu, tables, self._rendering.units, self.content, position)

    # -- links

    @Slot(QUrl)
    def _on_anchor_clicked(self, url: QUrl) -> None:
        if self._is_finished:
            confirm_link(self.window(), url)

    # -- painting

    def paint_ground(self, painter: QPainter, area: QRectF) -> None:
        units = self._units_in(area.top(), area.bottom() + self._formats.code_header)  # it stands above its code
        if units:
            start, end = units[0].start, units[-1].end
            self._frames.paint(painter, start, end)
            paint_roles(painter, self.document(), start, end, self._formats.theme, self._prose_width)

    def paint_marks(self, painter: QPainter, area: QRectF) -> None:
        units = self._units_in(area.top(), area.bottom())
        if self._shows_drafted and self._known_tints().pieces:
            is_whole = self._tints.paint(painter, units, self._formats.theme)
            if not is_whole:
                QTimer.singleShot(0, self.viewport(), self.viewport().update)
        if self._mark is not None and self._is_finished and self.is_drawn:
            self._mark.paint(painter, self._rendering.units, self._formats.theme)
        if self._find.query:
            self._find.search(self._find.query, self.content, plain=self._plain)  # it may have grown
            self._find.paint(painter, units, self._formats.theme)

    def _units_in(self, top: float, bottom: float) -> list[Unit]:
        return units_in(self.document(), self._rendering.units, top, bottom)

    # -- tool tips

    def piece_at(self, position: int) -> Piece | None:
        """The token that shows the character at this position of the document, if it is known."""
        return self._known_tints().piece_at(self._rendering.units, position)

    def explanation_at(self, point: QPointF) -> str:
        """What to say about the token at this point, as plain text; empty where there is nothing to say."""
        if not self._shows_drafted:
            return ""
        position = self.document().documentLayout().hitTest(point, Qt.HitTestAccuracy.ExactHit)
        piece = self.piece_at(position) if position >= 0 else None
        return explanation(piece) if piece is not None else ""

    def _show_explanation(self, event: QHelpEvent) -> bool:
        point = self.wide.in_document(QPointF(event.pos()))
        anchor = self.anchorAt(point.toPoint())
        text = self.explanation_at(point) or (link_in_words(QUrl(anchor)) if anchor else "")
        if text:
            # Escaped and marked as rich text, else Qt guesses from what the model wrote.
            QToolTip.showText(event.globalPos(), f"<p style='white-space: pre-wrap'>{html.escape(text)}</p>", self)
        else:
            QToolTip.hideText()
        return bool(text)

    def createMimeDataFromSelection(self) -> QMimeData:
        cursor = self.textCursor()
        start, end = cursor.selectionStart(), cursor.selectionEnd()
        is_all = start == 0 and end >= self.document().characterCount() - 1
        data = QMimeData()
        if is_all and self._fold.length is not None:
            data.setText(self.content if self._plain or self._is_raw else plain_text(self.content))
        else:
            data.setText(text_between(self.document(), start, end))
        source = self.content if is_all else selected_source(self._rendering.units, self.content, start, end)
        if source and not self._plain:
            data.setData("text/markdown", source.encode("utf-8", "replace"))
            if len(source) <= _MOST_AS_HTML:
                data.setHtml(without_pictures(source))
        return data

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            return self._show_explanation(event)
        return super().viewportEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        point = self.wide.in_document(QPointF(event.pos())).toPoint()
        menu = self.createStandardContextMenu(point)
        position = self.cursorForPosition(point).position()
        self.add_table_actions(menu, position)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Escape)
        plain = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier == Qt.KeyboardModifier.NoModifier
        if plain and event.key() in keys:
            event.ignore()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() is QEvent.Type.FontChange and self._is_set_up and self.font() != self._drawn_font:
            self._redraw()
