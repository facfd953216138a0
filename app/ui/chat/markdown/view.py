"""The one widget that shows text from a model or a file as Markdown.

No HTML is interpreted, nothing is loaded, links only lead somewhere after a question. The widget is as high as its
text; the transcript scrolls it.
"""

from __future__ import annotations

import html
from collections.abc import Callable

from PySide6.QtCore import QEvent, QMimeData, QPointF, QRectF, Qt, QTimer, QUrl, Slot
from PySide6.QtGui import QContextMenuEvent, QHelpEvent, QKeyEvent, QPainter
from PySide6.QtWidgets import QMenu, QToolTip, QWidget

from app.helper.rendering import without_pictures
from app.protocol.events import Piece
from app.ui.chat.markdown.drawn_text import DrawnText
from app.ui.chat.markdown.inline_writer import confirm_link, link_in_words
from app.ui.chat.markdown.plain_text import add_table_actions, plain_text, selected_source, text_between
from app.ui.chat.markdown.underlay import FindMarks, SourceMark, TokenTints, Unit, explanation, paint_roles, units_in

_MOST_AS_HTML = 20_000
"""Characters of a copy that word processors get with its formats; it takes time."""


class MarkdownView(DrawnText):
    """Markdown that can grow, with marks under it. ``plain``: the text is shown as it is. ``language``: as code in this
    language. ``soft``: in a softer color."""

    def __init__(
        self, *, plain: bool = False, language: str = "", soft: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(plain=plain, language=language, soft=soft, parent=parent)
        self._shows_drafted = False
        self._find = FindMarks(self.document())
        self._tints = TokenTints(self.document())
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._mark: SourceMark | None = None
        self.anchorClicked.connect(self._on_anchor_clicked)

    # -- text

    def set_text(self, text: str, find_pieces: Callable[[], list[Piece]] | None = None, *, folds: bool = False) -> None:
        """Show a finished text. ``find_pieces``: gives its tokens, if they are known; asked only where they matter.
        ``folds``: show only the beginning of a very long one, until the user wants all."""
        self._mark = None
        self._tints = TokenTints(self.document())
        self._find_pieces = find_pieces
        self._show(text, folds=folds)

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
        self._append("".join([piece.text for piece in pieces]))

    # -- marks

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
        box = next(iter(self._mark.boxes(self._rendering.units)), None)
        return self.wide.on_screen(box) if box is not None else None

    def set_find(self, query: str) -> int:
        """Mark every match of ``query``, whatever the case; gives back how many there are. Empty: none are marked.

        After the text has grown, the same query counts again.
        """
        found = self._find.search(query, self.content, plain=self._plain)
        self.viewport().update()
        return found

    def show_find(self, index: int) -> QRectF | None:
        """Make match ``index`` stand out and bring it to where it can be seen: unfold the text, scroll sideways.
        Gives back what `find_box` does."""
        if index >= len(self._find.starts):
            return None  # the text is another one by now
        self._find.current = index
        if self._fold.length is not None and self._find.starts[index] >= self._fold.length:
            self._fold.unfold()
        self.viewport().update()
        return self.find_box()

    def find_box(self) -> QRectF | None:
        """Where the match that stands out is in this widget; ``None`` until it is drawn (see `drawn`), or where there
        is none."""
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

    def forget_places(self) -> None:
        """Positions found in the document may be out of date."""
        if self._mark is not None:
            self._mark.forget_place()
        self._find.forget_places()

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
