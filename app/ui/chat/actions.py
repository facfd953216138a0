"""What one can do with a message: the row of quiet buttons below it, and the menu of all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QBoxLayout, QMenu, QToolButton, QWidget

from app.chats.model import StoredMessage
from app.ui.chat.parts import ChatCommands, VersionSwitch, copy_text, icon_button
from app.ui.widgets.layouts import row


@dataclass
class Asked:
    """What the menu of a message has the message itself do."""

    content: Callable[[], str]
    """What is copied."""
    edit: Callable[[], object]
    set_raw: Callable[[bool], object]
    is_raw: Callable[[], bool]
    thinking: Callable[[], str] = str
    """What the model thought; empty where it did not."""


def fill_menu(
    menu: QMenu, message: StoredMessage, commands: ChatCommands, asked: Asked, *, busy: bool, continues: bool = False
) -> None:
    """Everything that can be done with a message now. ``busy``: it cannot be changed; ``continues``: it was cut."""
    menu.clear()
    is_answer = message.role == "assistant"
    if is_answer:
        if asked.content():
            menu.addAction("Copy as Markdown", lambda: QGuiApplication.clipboard().setText(asked.content()))
            menu.addAction("Copy as plain text", lambda: _copy_plain(asked.content()))
        if asked.thinking():
            menu.addAction("Copy thinking", lambda: QGuiApplication.clipboard().setText(asked.thinking()))
        raw = menu.addAction("Show raw text")
        raw.setCheckable(True)
        raw.setChecked(asked.is_raw())
        raw.toggled.connect(asked.set_raw)
    else:
        menu.addAction("Copy", lambda: QGuiApplication.clipboard().setText(asked.content()))
    if busy:
        return
    menu.addSeparator()
    menu.addAction("Edit…", asked.edit)
    if is_answer:
        _add_answer_actions(menu, message.id, commands, continues=continues)
    menu.addSeparator()
    if commands.can_branch():
        menu.addAction("Branch into a new chat", lambda: commands.branch(message.id))
    menu.addAction("Delete this message", lambda: commands.delete(message.id, False))
    menu.addAction("Delete from here on", lambda: commands.delete(message.id, True))


def _copy_plain(markdown: str) -> None:
    from app.ui.chat.markdown.plain_text import plain_text

    QGuiApplication.clipboard().setText(plain_text(markdown))


def _add_answer_actions(menu: QMenu, message_id: str, commands: ChatCommands, *, continues: bool) -> None:
    if continues:
        menu.addAction("Continue", lambda: commands.continue_answer(message_id))
    menu.addAction("Regenerate", lambda: commands.regenerate(message_id))
    if ways := commands.ways_to_regenerate(message_id):
        others = menu.addMenu("Regenerate with")
        for name, act in ways:
            if name:
                others.addAction(name.replace("&", "&&"), act)
            else:
                others.addSeparator()
    menu.addAction("Compare without a draft", lambda: commands.compare(message_id))


class Actions(QWidget):
    """What all messages have: Copy, Edit, the versions where there are several, and a menu of the rest."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, asked: Asked) -> None:
        super().__init__()
        self._message = message
        self._commands = commands
        self._asked = asked
        self._is_busy = False
        self._continues = False
        self.copy_button = icon_button("copy", "Copy", "Copy this message")
        self.copy_button.clicked.connect(lambda: copy_text(asked.content(), self.copy_button))
        if not asked.content():
            self.copy_button.hide()  # an answer that was stopped while the model was thinking
        self.versions: VersionSwitch | None = None
        if message.versions > 1:
            self.versions = VersionSwitch(self, lambda step: commands.choose_version(message.id, step))
            self.versions.set_versions(message.version, message.versions)
        self.more_button = icon_button("more", "", "More about this message")
        menu = QMenu(self.more_button)
        menu.aboutToShow.connect(lambda: self.fill(menu))
        self.more_button.setMenu(menu)
        self.more_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)

    def fill(self, menu: QMenu) -> None:
        """Put everything that can be done now into a menu."""
        busy, continues = self._is_busy, self._continues
        fill_menu(menu, self._message, self._commands, self._asked, busy=busy, continues=continues)

    def fit(self, width: int) -> None:
        """Where there is no room for the words of the buttons, they only have icons."""
        named = [button for button in self.findChildren(QToolButton) if button.text()]
        for style in (Qt.ToolButtonStyle.ToolButtonTextBesideIcon, Qt.ToolButtonStyle.ToolButtonIconOnly):
            for button in named:
                button.setToolButtonStyle(style)
            if self.sizeHint().width() <= width:
                return

    def set_busy(self, busy: bool) -> None:
        """While an answer is being written, messages cannot be changed."""
        self._is_busy = busy
        self.more_button.setVisible(not busy)
        if self.versions is not None:
            self.versions.set_busy(busy)


class UserActions(Actions):
    """Of the user's own words."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, asked: Asked) -> None:
        super().__init__(message, commands, asked)
        self.edit_button = icon_button("edit", "Edit", "Edit this message and send it again")
        self.edit_button.clicked.connect(asked.edit)
        row(None, self.copy_button, self.edit_button, self.more_button, *filter(None, [self.versions]), gap=4, on=self)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.edit_button.setVisible(not busy)


class AnswerActions(Actions):
    """Of an answer."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, asked: Asked) -> None:
        super().__init__(message, commands, asked)
        self.continue_button: QToolButton | None = None
        self.regenerate_button = icon_button("regenerate", "Regenerate", "Regenerate this answer")
        self.regenerate_button.clicked.connect(lambda: commands.regenerate(message.id))
        buttons = (self.copy_button, self.regenerate_button, self.more_button)
        self._row: QBoxLayout = row(*buttons, *filter(None, [self.versions]), None, gap=4, on=self)

    def set_continues(self, continues: bool) -> None:
        """Whether the answer was cut, and can go on now."""
        self._continues = continues
        if continues and self.continue_button is None:
            button = self.continue_button = icon_button("end", "Continue", "Continue this answer where it was cut off")
            button.clicked.connect(lambda: self._commands.continue_answer(self._message.id))
            self._row.insertWidget(2, button)
            QWidget.setTabOrder(self.regenerate_button, button)
            QWidget.setTabOrder(button, self.more_button)
        self._show_continue()
        self.fit(self.width())

    def _show_continue(self) -> None:
        if self.continue_button is not None:
            self.continue_button.setVisible(self._continues and not self._is_busy)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.regenerate_button.setVisible(not busy)
        self._show_continue()
