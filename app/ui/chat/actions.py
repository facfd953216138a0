"""The rows of quiet buttons of a message: what one can do with it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from app.chats.model import StoredMessage
from app.ui.chat.parts import ChatCommands, VersionSwitch, copy_text, icon_button
from app.ui.widgets.layouts import row


class Actions(QWidget):
    """What all messages have: Copy, and the versions where there are several."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, content: Callable[[], str]) -> None:
        """``content``: what is copied."""
        super().__init__()
        self.copy_button = icon_button("copy", "Copy", "Copy this message")
        self.copy_button.clicked.connect(lambda: copy_text(content(), self.copy_button))
        self.versions: VersionSwitch | None = None
        if message.versions > 1:
            self.versions = VersionSwitch(lambda step: commands.choose_version(message.id, step))
            self.versions.set_versions(message.version, message.versions)

    def set_busy(self, busy: bool) -> None:
        """While an answer is being written, messages cannot be changed."""
        if self.versions is not None:
            self.versions.set_busy(busy)


class UserActions(Actions):
    """Of the user's own words."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, content: Callable[[], str]) -> None:
        super().__init__(message, commands, content)
        self.edit_button = icon_button("edit", "Edit", "Edit this message and send it again")
        row(None, self.copy_button, self.edit_button, *filter(None, [self.versions]), gap=4, on=self)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.edit_button.setVisible(not busy)


class AnswerActions(Actions):
    """Of an answer."""

    def __init__(self, message: StoredMessage, commands: ChatCommands, content: Callable[[], str]) -> None:
        super().__init__(message, commands, content)
        self.regenerate_button = icon_button("regenerate", "Regenerate", "Regenerate this answer")
        self.regenerate_button.clicked.connect(lambda: commands.regenerate(message.id))
        self.more_button = icon_button("more", "", "More about this answer")
        menu = QMenu(self.more_button)
        menu.addAction("Compare without a draft", lambda: commands.compare(message.id))
        self.more_button.setMenu(menu)
        self.more_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        buttons = (self.copy_button, self.regenerate_button, self.more_button)
        row(*buttons, *filter(None, [self.versions]), None, gap=4, on=self)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.regenerate_button.setVisible(not busy)
        self.more_button.setVisible(not busy)
