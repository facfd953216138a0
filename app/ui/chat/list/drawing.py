"""How a row of the list of chats looks; the results of a search and the trash look the same."""

from __future__ import annotations

import unicodedata

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QFontMetrics, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QLineEdit, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.chats.model import Chat
from app.models.text import visible
from app.ui.chat.list.model import ChatListModel
from app.ui.chat.list.rows import FolderRow, Heading, title_of_chat
from app.ui.widgets import theme
from app.ui.widgets.theme import SPACING

AnyIndex = QModelIndex | QPersistentModelIndex

MARGIN = 2 * SPACING
"""Left and right of a row's text."""
_INDENT = 4 * SPACING
_LEAST_HEIGHT = 8 * SPACING
_CORNER = 6
_BAR = 3
"""Width of the mark of a selected row; its color differs at least 3 : 1 from the list's, as the tint alone does not."""
_State = QStyle.StateFlag


def is_right_to_left(text: str) -> bool:
    """Whether it begins in a script that is written from the right."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return False


def row_height(font: QFont) -> int:
    """Of a row with one line, in pixels."""
    return max(_LEAST_HEIGHT, QFontMetrics(font).height() + 3 * SPACING)


def bold(font: QFont) -> QFont:
    result = QFont(font)
    result.setWeight(QFont.Weight.DemiBold)
    return result


def draw_background(painter: QPainter, option: QStyleOptionViewItem, is_current: bool) -> None:
    """Below a row: whether it is selected, under the pointer, and where the keyboard is."""
    colors, box = theme.current(), QRectF(option.rect).adjusted(0.5, 1.5, -0.5, -1.5)
    is_selected = bool(option.state & _State.State_Selected)
    is_hovered = bool(option.state & _State.State_MouseOver)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    if is_selected or is_hovered:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colors.selection if is_selected else colors.hover)
        painter.drawRoundedRect(box, _CORNER, _CORNER)
    if is_selected:
        is_mirrored = option.direction == Qt.LayoutDirection.RightToLeft
        left = box.right() - _BAR - 1 if is_mirrored else box.left() + 1
        painter.setBrush(colors.focus_line)
        painter.drawRoundedRect(QRectF(left, box.top() + 6, _BAR, box.height() - 12), _BAR / 2, _BAR / 2)
    if is_current:
        painter.setPen(QPen(colors.focus_line, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(box, _CORNER, _CORNER)


def draw_line(painter: QPainter, box: QRect, text: str, font: QFont, color: QColor) -> None:
    """One line of text, cut at its end where there is no room; from the right where it is read from there."""
    painter.setFont(font)
    painter.setPen(color)
    from_right = is_right_to_left(text)
    painter.setLayoutDirection(Qt.LayoutDirection.RightToLeft if from_right else Qt.LayoutDirection.LeftToRight)
    flags = Qt.AlignmentFlag.AlignVCenter | (Qt.AlignmentFlag.AlignRight if from_right else Qt.AlignmentFlag.AlignLeft)
    elided = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width())
    painter.drawText(box, flags | Qt.AlignmentFlag.AlignAbsolute | Qt.TextFlag.TextSingleLine, elided)


def has_keyboard(option: QStyleOptionViewItem) -> bool:
    return bool(option.state & _State.State_HasFocus)


class RowDelegate(QStyledItemDelegate):
    """Draws headings, folders and chats, all of one height, and has titles typed in place.

    Attributes:
        shown: Id of the chat that is open, whose title is bold; its folder's name, where that is closed.
    """

    def __init__(self, model: ChatListModel, parent: QObject) -> None:
        super().__init__(parent)
        self.shown: str | None = None
        self._model = model

    def sizeHint(self, option: QStyleOptionViewItem, _index: AnyIndex) -> QSize:
        return QSize(1, row_height(option.font))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        row, font = self._model.rows[index.row()], option.font
        painter.save()
        box = option.rect.adjusted(MARGIN, 0, -MARGIN, 0)
        if isinstance(row, Heading):
            small = theme.scaled(font, 0.9)
            height = QFontMetrics(small).height()
            place = QRect(box.left(), box.bottom() - height - SPACING // 2, box.width(), height)
            draw_line(painter, place, row.text, small, theme.current().quiet)
        else:
            draw_background(painter, option, has_keyboard(option))
            if isinstance(row, FolderRow):
                self._draw_folder(painter, box, row, font)
            else:
                font, inside = bold(font) if row.id == self.shown else font, self._inside(box, row)
                if row.id == self._model.answering:
                    inside.setRight(inside.right() - 3 * SPACING)
                    mark = inside.adjusted(inside.width(), 0, 3 * SPACING, 0)
                    draw_line(painter, mark, "\N{BLACK CIRCLE}", theme.scaled(font, 0.6), theme.current().focus_line)
                draw_line(painter, inside, title_of_chat(row), font, theme.current().text)
        painter.restore()

    def _draw_folder(self, painter: QPainter, box: QRect, row: FolderRow, font: QFont) -> None:
        colors, count = theme.current(), f"{row.count:,}"
        small = theme.tabular(theme.scaled(font, 0.9))
        width = QFontMetrics(small).horizontalAdvance(count)
        draw_line(painter, QRect(box.right() - width, box.top(), width + 1, box.height()), count, small, colors.quiet)
        middle = QPointF(box.left() + 5, box.center().y() + 0.5)
        shape = ((-3.5, -2.0), (0.0, 1.5), (3.5, -2.0)) if row.is_open else ((-2.0, -3.5), (1.5, 0.0), (-2.0, 3.5))
        painter.setPen(QPen(colors.text, 1.5, c=Qt.PenCapStyle.RoundCap, j=Qt.PenJoinStyle.RoundJoin))
        painter.drawPolyline(QPolygonF([middle + QPointF(x, y) for x, y in shape]))
        name, font = visible(row.folder.name), bold(font) if self._hides_shown(row) else font
        draw_line(painter, box.adjusted(_INDENT, 0, -width - SPACING, 0), name, font, colors.text)

    def _hides_shown(self, row: FolderRow) -> bool:
        """Whether the chat that is open is in this folder, which is closed."""
        if row.is_open or self.shown is None or self._model.place(self.shown) is not None:
            return False
        shown = self._model.chat(self.shown)
        return shown is not None and shown.folder_id == row.folder.id

    def _inside(self, box: QRect, chat: Chat) -> QRect:
        """Where the title of a chat stands: further in below its folder."""
        is_inside = chat.pinned_at is None and any(one.id == chat.folder_id for one in self._model.folders())
        return box.adjusted(_INDENT if is_inside else 0, 0, 0, 0)

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, index: AnyIndex) -> QWidget:
        editor = QLineEdit(parent)
        is_folder = isinstance(self._model.rows[index.row()], FolderRow)
        editor.setAccessibleName("Name of the folder" if is_folder else "Title of the chat")
        return editor

    def updateEditorGeometry(  # noqa: N802
        self, editor: QWidget, option: QStyleOptionViewItem, _index: AnyIndex
    ) -> None:
        editor.setGeometry(option.rect)
