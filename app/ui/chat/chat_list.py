"""The chats on the left: new, search, the list with its folders, the trash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, Slot
from PySide6.QtGui import QIcon, QKeyEvent
from PySide6.QtWidgets import QApplication, QLabel, QLineEdit, QMenu, QPushButton, QStackedWidget, QToolButton, QWidget
from shiboken6 import isValid

from app import words
from app.chats.model import Chat, Folder, Found
from app.ui.actions import Actions
from app.ui.chat.drop_area import DropArea
from app.ui.chat.list.model import SEARCH_LIMIT, UNTITLED
from app.ui.chat.list.view import ChatListView
from app.ui.widgets import icons, theme
from app.ui.widgets.controls import GAP, column, keeps_escape, label, row
from app.ui.widgets.focus import announce
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.chat.list.results import ResultsView
    from app.ui.chat.list.trash import TrashPanel
    from app.ui.chat.operations import ChatOperations

SEARCH_DELAY_MS = 150
_Key = Qt.Key


class SearchField(QLineEdit):
    """Its arrow keys and Enter go through what is found, Escape ends the search."""

    def __init__(self, panel: ChatList) -> None:
        super().__init__(placeholderText="Search", clearButtonEnabled=True)
        self._panel = panel
        self.setAccessibleName("Search chats")
        magnifier = self.addAction(QIcon(), QLineEdit.ActionPosition.LeadingPosition)
        icons.set_icon(magnifier, "search")

    def event(self, event: QEvent) -> bool:
        return keeps_escape(event) or super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, results = event.key(), self._panel.results
        if key == _Key.Key_Escape:
            self._panel.end_search()
        elif key in (_Key.Key_Up, _Key.Key_Down, _Key.Key_PageUp, _Key.Key_PageDown, _Key.Key_Return, _Key.Key_Enter):
            if results.isVisible():
                results.walk(event)
        else:
            super().keyPressEvent(event)


class ChatList(DropArea):
    """Shows chats and has done with them what the user wants. The chats of files that are dropped on it are imported.
    ``new_button``: for a new chat. ``search_field``, ``view``, ``results``, ``trash``: the parts."""

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__("Drop files to import their chats", parent)
        theme.set_role(self, "side")
        self.setAccessibleName("Chats")
        self._actions = actions
        self.new_button = QPushButton(UNTITLED)
        self.new_button.setToolTip("Start a new chat (Ctrl+N)")
        icons.set_icon(self.new_button, "new-chat")
        self.new_button.clicked.connect(lambda _checked: actions.run("new_chat"))
        self.files_dropped.connect(self._on_files_dropped)
        self.search_field = SearchField(self)
        self.view = ChatListView(actions)
        self._searched = ""
        """The words of the results that are shown."""
        self._before: QWidget | None = None
        """Where the focus was before the search."""
        self._search_timer = QTimer(self, singleShot=True, interval=SEARCH_DELAY_MS)
        self._search_timer.timeout.connect(lambda: self._actions.run("search", self.search()))
        self.search_field.textChanged.connect(self._on_search_changed)
        self._nothing = self._quiet("Chats appear here.")
        self._count = self._quiet("")
        self._content = QStackedWidget()
        self._content.addWidget(self._page(self._nothing, self.view))
        self._pages = QStackedWidget()
        self._pages.addWidget(self._main_page())
        column(self._pages, margins=(3 * SPACING, 3 * SPACING, 3 * SPACING, 2 * SPACING), on=self)
        self.set_chats([])

    def begin(self, operations: ChatOperations) -> None:
        """The chats are there: show what is listed and found."""
        operations.chats_listed.connect(self.set_chats)
        operations.chats_found.connect(self.set_found)
        operations.trash_listed.connect(self.set_trash)

    @Slot(list)
    def _on_files_dropped(self, paths: Sequence[str]) -> None:
        self._actions.run("import_chats", [Path(path) for path in paths])

    @cached_property
    def results(self) -> ResultsView:
        """Made for the first search."""
        from app.ui.chat.list.results import ResultsView

        view = ResultsView(self._actions)
        self._content.addWidget(self._page(self._count, view))
        return view

    @cached_property
    def trash(self) -> TrashPanel:
        """Made when it is first wanted: the first picture does without it."""
        from app.ui.chat.list.trash import TrashPanel

        panel = TrashPanel(self._actions, self.show_chats)
        self._pages.addWidget(panel)
        return panel

    # ------------------------------------------------------------ what is shown

    def set_chats(self, chats: Sequence[Chat], folders: Sequence[Folder] = (), today: date | None = None) -> None:
        """Show these chats, which come newest first, in these folders, which come by name."""
        self.view.set_content(chats, folders, today)
        self._nothing.setVisible(not self.view.chats.rows)
        self.view.setVisible(bool(self.view.chats.rows))

    def set_found(self, searched: str, found: Sequence[Found]) -> None:
        """Show what was found with these words, unless others stand in the field by now."""
        if not searched or searched != self.search():
            return
        is_news, self._searched = searched != self._searched, searched
        self.results.set_found(found, searched)
        self.results.setVisible(bool(found))
        more = "The newest " if len(found) == SEARCH_LIMIT else ""
        self._count.setText(f"{more}{words.count(len(found), 'chat')} found" if found else "No chats found.")
        self._content.setCurrentIndex(1)
        if is_news:
            announce(self._count, self._count.text())

    def set_trash(self, chats: Sequence[Chat]) -> None:
        """Show these in the trash, deleted last first."""
        self.trash.set_chats(chats)

    def set_current(self, chat_id: str | None) -> None:
        """Mark the chat that is shown; ``None`` for one that is not in the list yet."""
        self.view.set_shown(chat_id)

    def search(self) -> str:
        return self.search_field.text().strip()

    def focus_search(self) -> None:
        """Let the user type what to search for. Ending it gives the focus back."""
        if (focused := QApplication.focusWidget()) is not self.search_field:
            self._before = focused
        self._leave_trash()
        self.search_field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search_field.selectAll()

    def end_search(self) -> None:
        """Show the list again, with the focus where it was before the search."""
        self.search_field.clear()
        before, self._before = self._before, None
        if before is None or not isValid(before) or not before.isVisible():
            before = self.view if self.view.chats.rows else self.new_button
        before.setFocus(Qt.FocusReason.OtherFocusReason)

    def rename_current(self) -> None:
        """Let the user type another title: of the row the keyboard is at, or of the chat that is shown."""
        self._leave_trash()
        self.search_field.clear()
        self.view.rename_current()

    def show_trash(self) -> None:
        """Show what was deleted."""
        self._actions.run("watch_trash", True)
        self._pages.setCurrentWidget(self.trash)
        self.trash.begin()

    def show_chats(self) -> None:
        """Show the chats in the place of the trash."""
        if self._pages.currentIndex():
            self._leave_trash()
            self._trash_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _leave_trash(self) -> None:
        if self._pages.currentIndex():
            self._actions.run("watch_trash", False)
            self._pages.setCurrentIndex(0)

    def _main_page(self) -> QWidget:
        self._trash_button = QPushButton("Trash")
        theme.set_role(self._trash_button, "flat")
        icons.set_icon(self._trash_button, "trash")
        self._trash_button.clicked.connect(self.show_trash)
        page = QWidget()
        top = row((self.new_button, 1), self._options_button(), gap=SPACING)
        foot = row(self._trash_button, None)
        column(top, self.search_field, (self._content, 1), foot, gap=GAP, on=page)
        return page

    def _options_button(self) -> QToolButton:
        button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setAccessibleName("Folders and sort order")
        button.setToolTip("New folder, sort order")
        icons.set_icon(button, "more")
        menu = QMenu(button)
        button.setMenu(menu)

        def fill() -> None:
            menu.clear()
            self.view.fill_list_menu(menu)

        menu.aboutToShow.connect(fill)
        return button

    @staticmethod
    def _page(text: QWidget, view: QWidget) -> QWidget:
        page = QWidget()
        column(text, (view, 1), gap=SPACING, on=page)
        return page

    @staticmethod
    def _quiet(text: str) -> QLabel:
        made = label(text, role="quiet", wraps=True)
        made.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignHCenter)
        return made

    def _on_search_changed(self) -> None:
        if self.search():
            self._search_timer.start()
            return
        self._search_timer.stop()
        if self._searched or self._content.currentIndex():
            self._searched = ""
            self._content.setCurrentIndex(0)
        self._actions.run("search", "")
