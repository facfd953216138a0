"""The one widget that shows text from a model or a file as Markdown.

No HTML is interpreted, nothing is loaded, links only lead somewhere after a question. The widget is as high as its
text; the transcript scrolls it.
"""

from __future__ import annotations

import html
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, QRectF, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import (
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextCursor,
    QTextDocument,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QTextEdit, QToolTip, QWidget

from app.protocol.messages import Piece
from app.ui.chat.markdown import formats
from app.ui.chat.markdown.code_blocks import CodeColors, CodeHeader, CodeRun
from app.ui.chat.markdown.links import confirm_link, link_in_words
from app.ui.chat.markdown.rendering import Rendering
from app.ui.chat.markdown.underlay import SourceMark, TokenTints, Unit, blocks_between, explanation
from app.ui.chat.parts import copy_text
from app.ui.widgets import theme as themes
from app.ui.widgets.turns import turns

FRAME_MILLISECONDS = 33
"""Time between two updates of a text that is being written."""
SLOW_FRAME_MILLISECONDS = 100
_BUDGET = 0.004
"""Seconds one update may draw new blocks."""


class MarkdownView(QTextBrowser):
    """Markdown that can grow. ``plain``: the text is shown as it is."""

    height_changed = Signal()
    """The text needs another height; see `content_height`."""
    drawn = Signal()
    """Everything that was added is on screen."""
    selection_dragged = Signal(QPoint)
    """The user selects with the mouse and is at this point of the widget."""

    _is_set_up = False  # Qt calls `changeEvent` from within the constructor

    def __init__(self, *, plain: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(parent, openLinks=False)
        self._plain = plain
        self._text: list[str] = []
        self._source = ""
        self._is_finished = False
        self._shows_drafted = False
        self._prose_width = self._width = 0
        self._height = 0
        self._headers: list[CodeHeader] = []
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._on_frame_due)
        self._last_frame = 0.0
        self._frame_seconds = 0.0
        self._tints = TokenTints(self.document())
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._mark: SourceMark | None = None
        self._set_up()
        self._begin()
        self._is_set_up = True
        themes.notifier().theme_changed.connect(self._on_theme_changed)

    def _set_up(self) -> None:
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setUndoRedoEnabled(False)
        self.setCursorWidth(0)
        self.setLineWrapMode(QTextEdit.LineWrapMode.FixedPixelWidth)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextBrowserInteraction | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.anchorClicked.connect(self._on_anchor_clicked)

    def _begin(self) -> None:
        """Make what draws into the empty document, in the present theme and font."""
        self._has_old_theme = False
        self._placed_headers = 0
        self._formats = formats.formats_for(themes.current(), self.font())
        self.document().setIndentWidth(self._formats.indent)
        margin = float(self._width - self._prose_width)
        self._rendering = Rendering(self.document(), self._formats, plain=self._plain, margin=margin)
        runs = self._rendering.lasting_code_runs
        self._colors = CodeColors(self.document(), self._formats, runs, self._on_colored)

    # -- text

    @property
    def content(self) -> str:
        """The text as it was given."""
        if self._text:
            self._source += "".join(self._text)
            self._text.clear()
        return self._source

    def set_text(self, text: str, find_pieces: Callable[[], list[Piece]] | None = None) -> None:
        """Show a finished text. ``find_pieces``: gives its tokens, if they are known; asked only where they matter."""
        is_first = not self.content and not self._is_finished
        self._source, self._text = text, []
        self._is_finished = True
        self._mark = None
        self._tints = TokenTints(self.document())
        self._find_pieces = find_pieces
        if is_first:
            self._feed_all()
        else:
            self._redraw()

    def _known_tints(self) -> TokenTints:
        """With the tokens of the text, if these fit it."""
        if self._find_pieces is not None:
            pieces, self._find_pieces = self._find_pieces(), None
            if "".join([piece.text for piece in pieces]) == self.content:
                self._tints.add(pieces)
        return self._tints

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
        self._rendering.finish()
        self._timer.start(0)

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft."""
        if shown != self._shows_drafted:
            self._shows_drafted = shown
            self.viewport().update()

    def set_mark(self, marked: tuple[int, int] | None) -> None:
        """Make the characters from the first to before the second of a finished text stand out; ``None``: none."""
        self._mark = SourceMark(self.document(), *marked) if marked is not None else None
        self.viewport().update()

    def mark_box(self) -> QRectF | None:
        """Where the mark begins in this widget; ``None`` until it is drawn, or where there is no mark."""
        if self._mark is None or not self._is_finished or not self.is_drawn:
            return None
        return next(iter(self._mark.boxes(self._rendering.units, self.content)), None)

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
        self.setLineWrapColumnOrWidth(code)
        self._rendering.writer.margin = float(code - prose)
        if code - prose != old_margin:
            self._set_prose_margin(code - prose)
        for unit in self._rendering.units:
            unit.shapes = None
        self._placed_headers = 0
        self._measure()

    def _set_prose_margin(self, margin: int) -> None:
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for block in blocks_between(self.document(), 0, self.document().characterCount()):
            form = block.blockFormat()
            if form.hasProperty(formats.PROSE):
                form.setRightMargin(margin)
                cursor.setPosition(block.position())
                cursor.setBlockFormat(form)
        cursor.endEditBlock()

    def content_height(self) -> int:
        """Height of the text at its present width, in pixels."""
        return self._height

    def _measure(self) -> None:
        runs = self._rendering.code_runs
        # The frame of code at the very end reaches below its last line.
        below = formats.CODE_PADDING if runs and runs[-1].end >= self._rendering.writer.position else 0
        height = int(self.document().size().height() + below + 0.99)
        self._place_headers()
        if height != self._height:
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
        selected = self.textCursor()
        anchor, position = selected.anchor(), selected.position()
        more = self._rendering.draw(_BUDGET)
        if anchor != position:
            self._select(anchor, position)
        self._measure()
        self._colors.update()
        self._last_frame = time.perf_counter()
        self._frame_seconds = self._last_frame - started
        if more:
            turns().want(self)
        if self.is_drawn:
            self.drawn.emit()

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
        if self._mark is not None:
            self._mark.forget_place()
        self._feed_all()

    def _feed_all(self) -> None:
        self._rendering.feed(self.content)
        if self._is_finished:
            self._rendering.finish()
        if self._width:
            self._draw()
        else:  # it would be laid out in vain: the width comes next
            turns().want(self)

    @Slot()
    def _on_theme_changed(self) -> None:
        self._has_old_theme = True
        turns().want(self)

    def take_turn(self) -> None:
        """See `TakesTurns`."""
        if self._has_old_theme:
            self._redraw()
        elif self._is_header_missing():
            self._make_header()
            turns().want(self)
        else:
            self._draw()

    # -- code blocks

    def _on_colored(self, start: int, end: int) -> None:
        """Slanted letters may be wider: what was worked out from where the others stood no longer holds."""
        units = self._rendering.units
        first = max(0, bisect_right(units, start, key=lambda unit: unit.start) - 1)
        for unit in units[first : bisect_left(units, end, lo=first, key=lambda unit: unit.start)]:
            unit.shapes = None
        self._measure()

    def _is_header_missing(self) -> bool:
        return len(self._headers) < len(self._rendering.code_runs)

    def _make_header(self) -> None:
        header, place = CodeHeader(self.viewport()), len(self._headers)
        header.copy_button.clicked.connect(lambda _checked: self._copy_code(place))
        self._headers.append(header)

    def _place_headers(self) -> None:
        runs = self._rendering.code_runs
        # All before were finished when they were placed.
        first = max(0, min(self._placed_headers, len(runs)) - 1)
        self._placed_headers = min(len(self._headers), len(runs))
        for header, run in zip(self._headers[first:], runs[first:], strict=False):
            frame = self._code_frame(run)
            header.set_language(run.language)
            header.setGeometry(int(frame.left()), int(frame.top()), int(frame.width()), int(self._formats.code_header))
            header.show()
        for header in self._headers[len(runs) :]:
            header.hide()

    def _code_frame(self, run: CodeRun) -> QRectF:
        top = self._block_rect(self.document().findBlock(run.start)).top() - self._formats.code_header
        bottom = self._block_rect(self.document().findBlock(run.end)).bottom() + formats.CODE_PADDING
        # As wide as prose, and wider only where a line needs it.
        needed = run.left + run.columns * self._formats.code_column + 2 * formats.CODE_PADDING
        right = min(max(needed, self._prose_width), self._width)
        return QRectF(run.left, top, right - run.left, bottom - top)

    def _block_rect(self, block: QTextBlock) -> QRectF:
        return self.document().documentLayout().blockBoundingRect(block)

    def _copy_code(self, place: int) -> None:
        run = self._rendering.code_runs[place]
        copy_text(self._plain_text(run.start, run.end), self._headers[place].copy_button)

    def _plain_text(self, start: int, end: int) -> str:
        """The shown text between two document positions, overlong lines in one piece again."""
        parts: list[str] = []
        for block in blocks_between(self.document(), start, end):
            cursor = QTextCursor(block)
            cursor.setPosition(max(start, block.position()))
            cursor.setPosition(min(end, block.position() + block.length() - 1), QTextCursor.MoveMode.KeepAnchor)
            if parts and not block.blockFormat().hasProperty(formats.CONTINUED):
                parts.append("\n")
            parts.append(cursor.selectedText().replace("\u2028", "\n"))
        return "".join(parts)

    # -- links

    @Slot(QUrl)
    def _on_anchor_clicked(self, url: QUrl) -> None:
        if self._is_finished:
            confirm_link(self.window(), url)

    # -- painting

    def _paint_ground(self, painter: QPainter, area: QRectF) -> None:
        units = self._units_in(area.top(), area.bottom())
        if not units:
            return
        start, end = units[0].start, units[-1].end
        self._paint_code_frames(painter, start, end)
        self._paint_roles(painter, start, end)
        if self._shows_drafted and self._known_tints().pieces:
            is_whole = self._tints.paint(painter, units, self.content, self._formats.theme)
            if not is_whole:
                QTimer.singleShot(0, self.viewport(), self.viewport().update)
        if self._mark is not None and self._is_finished and self.is_drawn:
            self._mark.paint(painter, self._rendering.units, self.content, self._formats.theme)

    def _units_in(self, top: float, bottom: float) -> list[Unit]:
        """What is drawn between two heights. (Qt's own hit test takes longer the longer the text is.)"""

        def top_of(unit: Unit) -> float:
            return self._block_rect(self.document().findBlock(unit.start)).top()

        units = self._rendering.units
        first = max(0, bisect_right(units, top, key=top_of) - 1)
        return units[first : bisect_left(units, bottom, lo=first, key=top_of)]

    def _paint_code_frames(self, painter: QPainter, start: int, end: int) -> None:
        runs = self._rendering.code_runs
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._formats.theme.code_surface)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for run in runs[bisect_left(runs, start, key=lambda run: run.end) :]:
            if run.start > end + 1:
                break
            painter.drawRoundedRect(self._code_frame(run), themes.RADIUS, themes.RADIUS)

    def _paint_roles(self, painter: QPainter, start: int, end: int) -> None:
        line = self._formats.theme.line
        for block in blocks_between(self.document(), start, end):
            form = block.blockFormat()
            role = form.intProperty(formats.ROLE)
            if role == formats.RULE:
                y = round(self._block_rect(block).center().y())
                painter.fillRect(QRectF(0, y, self._prose_width, 1), line)
            elif role == formats.QUOTE:
                rect = self._block_rect(block)
                below = block.next()
                shared = min(form.intProperty(formats.DEPTH), below.blockFormat().intProperty(formats.DEPTH))
                for depth in range(form.intProperty(formats.DEPTH)):
                    bottom = self._block_rect(below).top() if depth < shared else rect.bottom()
                    painter.fillRect(QRectF(depth * formats.QUOTE_INDENT, rect.top(), 3, bottom - rect.top()), line)

    # -- tool tips

    def piece_at(self, position: int) -> Piece | None:
        """The token that shows the character at this position of the document, if it is known."""
        return self._known_tints().piece_at(self._rendering.units, self.content, position)

    def explanation_at(self, point: QPointF) -> str:
        """What to say about the token at this point, as plain text; empty where there is nothing to say."""
        if not self._shows_drafted:
            return ""
        position = self.document().documentLayout().hitTest(point, Qt.HitTestAccuracy.ExactHit)
        piece = self.piece_at(position) if position >= 0 else None
        return explanation(piece) if piece is not None else ""

    def _show_explanation(self, event: QHelpEvent) -> bool:
        anchor = self.anchorAt(event.pos())
        text = self.explanation_at(QPointF(event.pos())) or (link_in_words(QUrl(anchor)) if anchor else "")
        if text:
            # Escaped and marked as rich text, else Qt guesses from what the model wrote.
            QToolTip.showText(event.globalPos(), f"<p style='white-space: pre-wrap'>{html.escape(text)}</p>", self)
        else:
            QToolTip.hideText()
        return bool(text)

    # -- Qt

    def loadResource(self, _type: int, _name: QUrl | str) -> object:
        """Nothing is ever loaded."""
        return None

    def doSetSource(  # noqa: N802
        self,
        name: QUrl | str,
        type: QTextDocument.ResourceType = QTextDocument.ResourceType.UnknownResource,
    ) -> None:
        """No page is ever opened in here."""

    def createMimeDataFromSelection(self) -> QMimeData:
        cursor = self.textCursor()
        data = QMimeData()
        data.setText(self._plain_text(cursor.selectionStart(), cursor.selectionEnd()))
        return data

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        self._paint_ground(painter, QRectF(event.rect()))
        painter.end()
        super().paintEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            return self._show_explanation(event)
        return super().viewportEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() is QEvent.Type.FontChange and self._is_set_up and self.font() != self._formats.font:
            self._redraw()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.selection_dragged.emit(event.position().toPoint())

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown, Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Escape)
        plain = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier == Qt.KeyboardModifier.NoModifier
        if plain and event.key() in keys:
            event.ignore()
        else:
            super().keyPressEvent(event)
