"""The list of chats as one sees and uses it: by mouse, keyboard, menus and dragging."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from itertools import groupby

from PySide6.QtCore import (
    QAbstractItemModel,
    QItemSelection,
    QItemSelectionModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QPoint,
    QPointF,
    QRect,
    QRectF,
    QSignalBlocker,
    QSize,
    Qt,
    QTimer,
    Signal,
    Slot,
)
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QDrag,
    QDropEvent,
    QFont,
    QFontMetrics,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPen,
    QPixmap,
    QPolygonF,
    QShortcut,
)
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QApplication,
    QFrame,
    QInputDialog,
    QLineEdit,
    QListView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app import words
from app.chats.model import Chat, Folder
from app.ui.actions import Actions
from app.ui.chat.list.model import (
    SORTS,
    AnyIndex,
    ChatListModel,
    ChatSort,
    FolderRow,
    Heading,
    Row,
    key_of,
    title_of_chat,
)
from app.ui.widgets import theme
from app.ui.widgets.controls import label
from app.ui.widgets.theme import SPACING
from app.words import is_right_to_left, shortened, visible

PIN_KEYS = "Ctrl+Shift+P"
MOVE_KEYS = "Ctrl+Shift+M"
_LONGEST_NAME = 60
_Key = Qt.Key
_Select = QItemSelectionModel.SelectionFlag
_SELECTING = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
MARGIN = 2 * SPACING
"""Left and right of a row's text."""
_INDENT = 4 * SPACING
_LEAST_HEIGHT = 8 * SPACING
_CORNER = 6
_BAR = 3
"""Width of the mark of a selected row; its color differs at least 3 : 1 from the list's, as the tint alone does not."""
_State = QStyle.StateFlag


def set_up(view: QListView, name: str, model: QAbstractItemModel, delegate: QStyledItemDelegate) -> None:
    """What this list, the results of a search and the trash have in common."""
    view.setModel(model)
    view.setItemDelegate(delegate)
    view.setAccessibleName(name)
    view.setFrameShape(QFrame.Shape.NoFrame)
    view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    theme.follow(view, view.viewport().update)


def add_key(view: QWidget, keys: str, act: Callable[[], object]) -> None:
    """On X11 the standard key for deleting is Ctrl+D as well, which is the menu's: so keys are named."""
    QShortcut(QKeySequence(keys), view, context=Qt.ShortcutContext.WidgetShortcut).activated.connect(act)


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
    """Draws headings, folders and chats, all of one height, and has titles typed in place. ``shown``: id of the chat
    that is open, whose title is bold; its folder's name, where that is closed."""

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
                if row.id in self._model.answering:
                    inside.setRight(inside.right() - 4 * SPACING)
                    mark = inside.adjusted(inside.width() + SPACING, 0, 4 * SPACING, 0)
                    if row.id in self._model.asking:
                        draw_line(painter, mark, "?", bold(font), theme.current().warning)
                    else:
                        small = theme.scaled(font, 0.6)
                        draw_line(painter, mark, "\N{BLACK CIRCLE}", small, theme.current().focus_line)
                draw_line(painter, inside, title_of_chat(row), font, theme.current().text)
        painter.restore()

    def _draw_folder(self, painter: QPainter, box: QRect, row: FolderRow, font: QFont) -> None:
        colors, count = theme.current(), f"{words.number(row.count)}"
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


class ChatListView(QListView):
    """A click, Enter and the arrow keys open a chat; with Ctrl or Shift they select. ``chats``: the model. Signal
    ``arranged``: it is sorted otherwise, or a folder was opened or closed."""

    arranged = Signal()

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent, uniformItemSizes=True)
        self.chats = ChatListModel(actions)
        self._actions = actions
        self._waiting: tuple[Sequence[Chat], Sequence[Folder], date | None] | None = None
        """What came while a title was being typed."""
        self._selects_shown = False
        """Whether the open chat is to be selected when that is done: at once it would end it."""
        self._delegate = RowDelegate(self.chats, self)
        self._delegate.closeEditor.connect(self._on_editor_closed)
        set_up(self, "Chats", self.chats, self._delegate)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setDragDropMode(QAbstractItemView.DragDropMode.DragDrop)
        self.setDragDropOverwriteMode(True)  # onto rows, not between them
        self.clicked.connect(self._on_clicked)
        self.doubleClicked.connect(self._on_double_clicked)
        add_key(self, "Del", self._delete)
        add_key(self, PIN_KEYS, self._pin)
        add_key(self, MOVE_KEYS, self._ask_where_to_move)

    # ------------------------------------------------------------ what is shown

    def set_content(self, chats: Sequence[Chat], folders: Sequence[Folder], today: date | None = None) -> None:
        """Show these: after a title that is being typed, unless what is being renamed has gone."""
        if self.is_renaming():
            there = {chat.id for chat in chats} | {f"folder {folder.id}" for folder in folders}
            row = self.current_row()
            if row is not None and key_of(row) in there:
                self._waiting = chats, folders, today
                return
            self._revert_renaming()
        self._waiting = None  # out of date by now, if it is still to be shown
        shown = self._delegate.shown
        was_there = shown is not None and self.chats.place(shown) is not None
        with self._in_place():
            self.chats.set_content(chats, folders, today)
        if not was_there and shown is not None and self.chats.place(shown) is not None:
            self.set_shown(shown)

    def arrange(self, order: ChatSort | None = None, collapsed: Collection[str] | None = None) -> None:
        """Sort otherwise, or open and close folders."""
        with self._in_place():
            self.chats.arrange(order, collapsed)
        self.arranged.emit()

    def set_shown(self, chat_id: str | None) -> None:
        """Mark the chat that is open and select it alone; ``None`` for one that is not in the list yet."""
        self._delegate.shown = chat_id
        self.viewport().update()
        self._selects_shown = self.is_renaming()
        if not self._selects_shown:
            self.clearSelection()
            self.select(chat_id or "")

    def select(self, key: str) -> None:
        """Select this row alone (see `key_of`), without opening it."""
        if (place := self.chats.place(key)) is not None:
            self.selectionModel().setCurrentIndex(self.chats.index(place), _Select.ClearAndSelect)

    def selected_chats(self) -> list[Chat]:
        rows = (self.chats.rows[place] for place in sorted(self._selected_places()))
        return [row for row in rows if isinstance(row, Chat)]

    def chosen_chats(self) -> list[Chat]:
        """What a key is for: the selected chats, else the one the keyboard is at."""
        row = self.current_row()
        return self.selected_chats() or ([row] if isinstance(row, Chat) else [])

    def current_row(self) -> Row | None:
        """Where the keyboard is."""
        return self.chats.row(self.currentIndex())

    @contextmanager
    def _in_place(self) -> Iterator[None]:
        """Keep what is at the top there, unless that is the top of the list, and the keyboard near where it was."""
        bar, top, current = self.verticalScrollBar(), self.indexAt(QPoint(1, 1)), self.currentIndex().row()
        anchor, offset = QPersistentModelIndex(top), self.visualRect(top).top()
        was_at_top = bar.value() == 0
        selected = [key_of(self.chats.rows[place]) for place in self._selected_places()]
        with QSignalBlocker(self.selectionModel()):
            self.clearSelection()  # Qt would follow each row by itself, which takes long when all are selected
        yield
        self._select_places(place for key in selected if (place := self.chats.place(key)) is not None)
        if current >= 0 and not self.currentIndex().isValid():
            near = range(min(current, len(self.chats.rows) - 1), -1, -1)
            place = next((one for one in near if not self._is_heading(one)), None)
            if place is not None:
                self.selectionModel().setCurrentIndex(self.chats.index(place), _Select.NoUpdate)
        if not was_at_top and anchor.isValid():
            moved = self.visualRect(self.chats.index(anchor.row())).top() - offset
            bar.setValue(bar.value() + moved)

    def _is_heading(self, place: int) -> bool:
        return isinstance(self.chats.rows[place], Heading)

    # ------------------------------------------------------------ renaming

    def is_renaming(self) -> bool:
        return self.state() is QAbstractItemView.State.EditingState

    def rename(self, key: str) -> None:
        """Let the user type a title for this row; a closed folder is opened for a chat of it."""
        chat = self.chats.chat(key)
        if chat is not None and chat.folder_id is not None and self.chats.place(key) is None:
            self.open_folder(chat.folder_id, True)
        if (place := self.chats.place(key)) is not None:
            self.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.select(key)
            self.edit(self.chats.index(place))

    def rename_current(self) -> None:
        """The row the keyboard is at, otherwise the chat that is open."""
        row = self.current_row() if self.hasFocus() else None
        self.rename(key_of(row) if row is not None else self._delegate.shown or "")

    def _revert_renaming(self) -> None:
        if (editor := self.viewport().findChild(QLineEdit)) is not None:
            self.closeEditor(editor, QAbstractItemDelegate.EndEditHint.RevertModelCache)

    @Slot()
    def _on_editor_closed(self) -> None:
        QTimer.singleShot(0, self, self._catch_up)  # later: the list still counts as being edited

    def _catch_up(self) -> None:
        if self._waiting is not None and not self.is_renaming():
            content, self._waiting = self._waiting, None
            self.set_content(*content)
        if self._selects_shown:
            self.set_shown(self._delegate.shown)

    # ------------------------------------------------------------ what the user does

    def open_folder(self, folder_id: str, is_open: bool) -> None:
        """Show the chats of a folder, or hide them."""
        self.arrange(collapsed=self.chats.collapsed - {folder_id} if is_open else self.chats.collapsed | {folder_id})

    def selectAll(self) -> None:  # noqa: N802
        """Select all chats, but no folders: these aren't moved or deleted with chats."""
        self._select_places(place for place, row in enumerate(self.chats.rows) if isinstance(row, Chat))

    def _select_places(self, places: Iterable[int]) -> None:
        selection = QItemSelection()
        for _, run in groupby(enumerate(sorted(places)), lambda pair: pair[1] - pair[0]):
            in_a_row = [place for _, place in run]
            selection.select(self.chats.index(in_a_row[0]), self.chats.index(in_a_row[-1]))
        self.selectionModel().select(selection, _Select.ClearAndSelect)

    def _selected_places(self) -> list[int]:
        ranges = self.selectionModel().selection().toList()
        places = (place for one in ranges for place in range(one.top(), one.bottom() + 1))
        return [place for place in places if not self._is_heading(place)]

    def _delete(self) -> None:
        row = self.current_row()
        if chats := self.chosen_chats():
            self._actions.run("delete_chats", [chat.id for chat in chats])
        elif isinstance(row, FolderRow):
            self._actions.run("delete_folder", row.folder.id)

    def _pin(self) -> None:
        if chats := self.chosen_chats():
            pins = any(chat.pinned_at is None for chat in chats)
            self._actions.run("pin_chats", [chat.id for chat in chats], pins)

    def _ask_where_to_move(self) -> None:
        if chats := self.chosen_chats():
            menu = self._menu()
            self._fill_move_menu(menu, chats)
            menu.popup(self._place_of_menu())

    # ------------------------------------------------------------ menus

    def _fill_chats_menu(self, menu: QMenu, chats: Sequence[Chat]) -> None:
        """What can be done with these chats."""
        ids, several = [chat.id for chat in chats], f" {words.count(len(chats), 'chat')}" if len(chats) > 1 else ""
        add = self._actions.add
        if not several:
            menu.addAction("&Rename…\tF2", partial(self.rename, ids[0]))
        pins = any(chat.pinned_at is None for chat in chats)
        add(menu, "pin_chats", ids, pins, text=f"{'&Pin' if pins else 'Un&pin'}{several}")
        self._fill_move_menu(menu.addMenu(f"&Move{several} to\t{MOVE_KEYS}"), chats)
        add(menu, "export_chats", ids, text=f"&Export{several}…")
        menu.addSeparator()
        add(menu, "delete_chats", ids, text=f"&Delete{several}")

    def _fill_move_menu(self, menu: QMenu, chats: Sequence[Chat]) -> None:
        """Where these chats can go."""
        ids, places = [chat.id for chat in chats], {chat.folder_id for chat in chats}

        def add(text: str, folder_id: str | None) -> None:
            act = partial(self._actions.run, "move_chats", ids, folder_id)
            menu.addAction(text, act).setEnabled(places != {folder_id})

        for folder in self.chats.folders():
            add(shortened(visible(folder.name), _LONGEST_NAME).replace("&", "&&"), folder.id)
        if self.chats.folders():
            menu.addSeparator()
        add("&No folder", None)
        menu.addAction("New &folder…", partial(self.ask_for_folder, ids))

    def _fill_folder_menu(self, menu: QMenu, row: FolderRow) -> None:
        """What can be done with a folder."""
        folder_id = row.folder.id
        menu.addAction("&Collapse" if row.is_open else "&Expand", lambda: self.open_folder(folder_id, not row.is_open))
        menu.addAction("&Rename…\tF2", partial(self.rename, f"folder {folder_id}"))
        menu.addSeparator()
        # Its chats stay, and it can be undone.
        menu.addAction("&Delete folder\tDel", partial(self._actions.run, "delete_folder", folder_id))

    def fill_list_menu(self, menu: QMenu) -> None:
        """What can be done with the list."""
        menu.addAction("New &folder…", self.ask_for_folder)
        menu.addSeparator()
        for name, text in SORTS.items():
            action = menu.addAction(text, partial(self.arrange, name))
            action.setCheckable(True)
            action.setChecked(name == self.chats.order)

    def ask_for_folder(self, chat_ids: Sequence[str] = ()) -> None:
        """Ask for the name of a new folder for these chats."""
        dialog = QInputDialog(self)
        dialog.setWindowTitle("New folder")
        dialog.setLabelText("Name of the folder:")
        dialog.setOkButtonText("Create")
        create = partial(self._actions.run, "create_folder")
        dialog.textValueSelected.connect(lambda name: create(name, chat_ids) if name.strip() else None)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        return menu

    def _place_of_menu(self) -> QPoint:
        """On screen, at the row the keyboard is at."""
        return self.viewport().mapToGlobal(self.visualRect(self.currentIndex()).center())

    @Slot(QModelIndex)
    def _on_clicked(self, index: QModelIndex) -> None:
        if not QApplication.keyboardModifiers() & _SELECTING:
            self._open(self.chats.row(index))

    @Slot(QModelIndex)
    def _on_double_clicked(self, index: QModelIndex) -> None:
        if isinstance(self.chats.row(index), Chat):
            self.edit(index)

    def _open(self, row: Row | None) -> None:
        if isinstance(row, Chat):
            self._actions.run("open_chat", row.id)
        elif isinstance(row, FolderRow):
            self.open_folder(row.folder.id, not row.is_open)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        row, key = self.current_row(), event.key()
        # Enter in the editor of a title comes here, too.
        if self.is_renaming() or event.modifiers() & (_SELECTING | Qt.KeyboardModifier.AltModifier):
            super().keyPressEvent(event)
        elif key in (_Key.Key_Return, _Key.Key_Enter, _Key.Key_Space) and row is not None:
            self.select(key_of(row))
            self._open(row)
        elif key in (_Key.Key_Left, _Key.Key_Right) and isinstance(row, FolderRow):
            self.open_folder(row.folder.id, key == _Key.Key_Right)
        elif key == _Key.Key_Left and isinstance(row, Chat) and row.folder_id is not None:
            self.select(f"folder {row.folder_id}")
        else:
            before = self.currentIndex()
            super().keyPressEvent(event)
            now = self.current_row()
            if self.currentIndex() != before and isinstance(now, Chat):
                self._open(now)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        is_keyboard = event.reason() is QContextMenuEvent.Reason.Keyboard
        row = self.current_row() if is_keyboard else self.chats.row(self.indexAt(event.pos()))
        place = self._place_of_menu() if is_keyboard and row is not None else event.globalPos()
        menu = self._menu()
        if isinstance(row, Chat):
            chats = self.selected_chats()
            if row.id not in {chat.id for chat in chats}:
                chats = [row]
            self._fill_chats_menu(menu, chats)
        elif isinstance(row, FolderRow):
            self._fill_folder_menu(menu, row)
        else:
            self.fill_list_menu(menu)
        menu.popup(place)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        # The other button asks for the menu; a selection of several stays for it.
        if event.button() is not Qt.MouseButton.RightButton:
            super().mousePressEvent(event)

    def startDrag(self, _actions: Qt.DropAction) -> None:  # noqa: N802
        """Not Qt's own, which removes rows that were moved: the store says where chats are."""
        if chats := self.selected_chats():
            drag = QDrag(self)
            drag.setMimeData(self.chats.mimeData(self.selectedIndexes()))
            drag.setPixmap(
                _drag_picture(title_of_chat(chats[0]) if len(chats) == 1 else words.count(len(chats), "chat"))
            )
            drag.exec(Qt.DropAction.MoveAction)

    def dropEvent(self, event: QDropEvent) -> None:
        target = self.indexAt(event.position().toPoint())
        if self.chats.dropMimeData(event.mimeData(), Qt.DropAction.MoveAction, -1, -1, target):
            event.setDropAction(Qt.DropAction.MoveAction)
            event.accept()
        self.stopAutoScroll()
        self.setState(QAbstractItemView.State.NoState)
        self.viewport().update()


def _drag_picture(text: str) -> QPixmap:
    """What the pointer drags along."""
    picture = label(shortened(text, 30), role="card")
    picture.setMargin(theme.SPACING)
    return picture.grab()
