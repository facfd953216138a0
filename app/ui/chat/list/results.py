"""What a search over all chats found: each chat with up to three passages, the words marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QModelIndex, QObject, QPointF, QRect, QSize, Qt, Slot
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QPainter, QTextCharFormat, QTextLayout, QTextOption
from PySide6.QtWidgets import QApplication, QListView, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chats.model import Chat, Found
from app.chats.search import matches, words_of
from app.ui.actions import Actions
from app.ui.chat.list.model import AnyIndex, RowsModel, moment_text, title_of_chat
from app.ui.chat.list.view import MARGIN, add_key, bold, draw_background, draw_line, has_keyboard, row_height, set_up
from app.ui.widgets import theme
from app.ui.widgets.controls import plain_tooltip
from app.ui.widgets.theme import SPACING
from app.words import is_right_to_left, visible

Matches = tuple[tuple[int, int], ...]

MOST_SNIPPETS = 3
_LINES = 2
_BEFORE = 14
"""Characters of a passage that stand before its first match: in a narrow list more would hide it."""
_THINKING, _TOOL = "Thinking: ", "Tool: "
"""Before a passage that is not from the answer."""
_Roles = Qt.ItemDataRole


@dataclass(frozen=True, slots=True)
class Result:
    """A row: a chat, or a passage of it."""

    chat: Chat
    message_id: str
    """Empty for the chat itself."""
    text: str
    matches: Matches
    """Start and length in the text."""


def results_of(found: Sequence[Found], searched: str) -> list[Result]:
    """The rows for what was found with these words."""
    rows, words = list[Result](), words_of(searched)
    for one in found:
        title = title_of_chat(one.chat)
        rows.append(Result(one.chat, "", title, matches(title, words)))
        for snippet in one.snippets[:MOST_SNIPPETS]:
            label = _THINKING if snippet.is_thinking else _TOOL if snippet.is_call else ""
            shown = _shown(snippet.text, snippet.matches, label)
            rows.append(Result(one.chat, snippet.message_id, *shown))
    return rows


def _shown(text: str, found: Matches, label: str) -> tuple[str, Matches]:
    """A passage of harmless characters that begins a little before its first match; ``label`` stands before it."""
    before = text[: found[0][0]] if found else ""
    cut = len(before) - _BEFORE if len(before) > _BEFORE else 0
    shown, marks, end = f"{label}…" if cut else label, list[tuple[int, int]](), cut
    for start, length in found:
        shown += visible(text[end:start])
        match = visible(text[start : start + length])
        marks.append((len(shown), len(match)))
        shown, end = shown + match, start + length
    return shown + visible(text[end:]), tuple(marks)


def _answer(result: Result, role: int) -> object:
    if role == _Roles.DisplayRole:
        return result.text
    if role == _Roles.ToolTipRole:
        return plain_tooltip(f"{result.text}\n{moment_text(result.chat.updated_at)}")
    if role == _Roles.AccessibleTextRole:
        return f"{title_of_chat(result.chat)}: {result.text}" if result.message_id else f"{result.text}, chat"
    return None


class ResultDelegate(QStyledItemDelegate):
    """A title on one line, a passage on two; what was searched for is bold on a field of the accent color."""

    def __init__(self, model: RowsModel[Result], parent: QObject) -> None:
        super().__init__(parent)
        self._model = model
        self._heights: tuple[QFont, QSize, QSize] | None = None
        """Of a title and of a passage, in this font."""

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        if self._heights is None or self._heights[0] != option.font:  # asked for every row
            passage = _LINES * QFontMetrics(theme.scaled(option.font, 0.9)).lineSpacing() + 2 * SPACING
            self._heights = QFont(option.font), QSize(1, row_height(option.font)), QSize(1, passage)
        _, of_title, of_passage = self._heights
        return of_passage if self._model.rows[index.row()].message_id else of_title

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        result, font = self._model.rows[index.row()], option.font
        painter.save()
        draw_background(painter, option, has_keyboard(option) or self._is_walked(option, index))
        box = option.rect.adjusted(MARGIN, SPACING, -MARGIN, -SPACING)
        if result.message_id:
            box.adjust(MARGIN, 0, 0, 0)
            self._draw_passage(painter, box, result, _LINES)
        elif result.matches:
            self._draw_passage(painter, box, result, 1)
        else:
            draw_line(painter, box, result.text, bold(font), theme.current().text)
        painter.restore()

    def _is_walked(self, option: QStyleOptionViewItem, index: AnyIndex) -> bool:
        """Whether the arrow keys of the search field are at this row."""
        view = option.widget
        return isinstance(view, ResultsView) and view.is_walked and view.currentIndex() == index

    def _draw_passage(self, painter: QPainter, box: QRect, result: Result, lines: int) -> None:
        font = theme.scaled(painter.font(), 0.9) if result.message_id else bold(painter.font())
        layout, end = _laid_out(result, result.text, box.width(), lines, font)
        while 0 < end < len(layout.text()):  # the dots need room, too
            layout, end = _laid_out(result, f"{result.text[: end - 1].rstrip()}…", box.width(), lines, font)
        height = sum(layout.lineAt(line).height() for line in range(min(lines, layout.lineCount())))
        painter.setPen(theme.current().quiet if result.message_id else theme.current().text)
        painter.setClipRect(box)
        layout.draw(painter, QPointF(box.left(), box.top() + (box.height() - height) / 2))


def _laid_out(result: Result, text: str, width: int, lines: int, font: QFont) -> tuple[QTextLayout, int]:
    """The text in at most so many lines, and how many characters they hold."""
    colors, option = theme.current(), QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    from_right = is_right_to_left(text)
    option.setTextDirection(Qt.LayoutDirection.RightToLeft if from_right else Qt.LayoutDirection.LeftToRight)
    layout = QTextLayout(text, font)
    layout.setTextOption(option)
    ranges = []
    for start, length in result.matches:
        marked = QTextLayout.FormatRange()
        marked.start, marked.length, marked.format = start, min(length, len(text) - start), QTextCharFormat()
        marked.format.setBackground(colors.accent)
        marked.format.setForeground(colors.on_accent)
        marked.format.setFontWeight(QFont.Weight.Bold)
        if marked.length > 0:
            ranges.append(marked)
    layout.setFormats(ranges)
    layout.beginLayout()
    top, end = 0.0, 0
    for _ in range(lines):
        line = layout.createLine()
        if not line.isValid():
            break
        line.setLineWidth(width)
        line.setPosition(QPointF(0, top))
        top += line.height()
        end = line.textStart() + line.textLength()
    layout.endLayout()
    return layout, end


class ResultsView(QListView):
    """A click or Enter opens the chat and goes to the message, Delete moves the chat to the trash. ``is_walked``: the
    arrow keys of the search field go through it."""

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.is_walked = False
        self._actions = actions
        self._results = RowsModel(_answer)
        set_up(self, "Chats found", self._results, ResultDelegate(self._results, self))
        self.clicked.connect(self._open)
        add_key(self, "Del", self._delete)

    def results(self) -> list[Result]:
        return self._results.rows

    def set_found(self, found: Sequence[Found], searched: str) -> None:
        """Show these; the row the keyboard is at stays, if it is still there."""
        results, now = results_of(found, searched), self._current()
        if results == self._results.rows:
            return
        key = (now.chat.id, now.message_id) if now is not None else None
        position = self.verticalScrollBar().value()
        self._results.set_rows(results)
        place = next((at for at, one in enumerate(results) if (one.chat.id, one.message_id) == key), None)
        if place is not None:
            self.setCurrentIndex(self._results.index(place))
            self.verticalScrollBar().setValue(position)

    def walk(self, event: QKeyEvent) -> None:
        """A key of the search field: an arrow key goes to another row, Enter opens the one it is at, or the first."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(self.currentIndex() if self.currentIndex().isValid() else self._results.index(0))
        elif not self.currentIndex().isValid():
            self.setCurrentIndex(self._results.index(0))
        else:
            QApplication.sendEvent(self, event)
        self.is_walked = True
        self.viewport().update()

    def _current(self) -> Result | None:
        index = self.currentIndex()
        return self._results.rows[index.row()] if index.isValid() else None

    @Slot()
    def _delete(self) -> None:
        if (result := self._current()) is not None:
            self._actions.run("delete_chats", [result.chat.id])

    @Slot(QModelIndex)
    def _open(self, index: QModelIndex) -> None:
        if not index.isValid():
            return
        result = self._results.rows[index.row()]
        if result.message_id:
            self._actions.run("open_message", result.chat.id, result.message_id)
        else:
            self._actions.run("open_chat", result.chat.id)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._open(self.currentIndex())
        else:
            super().keyPressEvent(event)
