"""The messages of the transcript: what the user wrote and what the model answered."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal, Slot
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QMenu, QPushButton, QToolButton, QWidget

from app.chats.model import StoredMessage, unpack
from app.protocol.messages import Piece
from app.ui.chat.footer import HELP, details_of, footer_of, note_of
from app.ui.chat.markdown.view import MarkdownView
from app.ui.chat.parts import ChatCommands, MessageEditor, VersionSwitch, copy_text, height_of, icon_button
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Widths
from app.ui.widgets.controls import explain, label
from app.ui.widgets.layouts import row

_PADDING = 12


class MessageWidget(QWidget):
    """What all messages share: a heading, the text, a row of quiet buttons."""

    height_changed = Signal()
    """It needs another height, for another reason than its text."""

    def __init__(self, message: StoredMessage, commands: ChatCommands) -> None:
        super().__init__()
        self.heading = label(message.author, "quiet", wraps=True, scale=0.95, bold=True)
        self.heading.setParent(self)
        self.view = MarkdownView(plain=message.role == "user", parent=self)
        self.view.setAccessibleName(f"{message.author}: message")
        self.action_row = QWidget(self)
        self.copy_button = icon_button("copy", "Copy", "Copy this message")
        self.copy_button.clicked.connect(self._on_copy)
        self.versions = VersionSwitch(lambda step: commands.choose_version(message.id, step))

    def set_busy(self, busy: bool) -> None:
        """While an answer is being written, other messages cannot be changed."""
        raise NotImplementedError

    def fit(self, widths: Widths) -> int:
        raise NotImplementedError

    def is_in_use(self) -> bool:
        return self.view.textCursor().hasSelection()

    def _stack(self, top: int, left: int, width: int, *parts: tuple[QWidget, int]) -> int:
        """Put visible parts below each other, each with some space above it; gives back where they end."""
        for part, space in parts:
            if part.isHidden():
                continue
            height = height_of(part, width)
            part.setGeometry(left, top + space, width, height)
            top += space + height
        return top

    @Slot()
    def _on_copy(self) -> None:
        copy_text(self.view.content, self.copy_button)


class UserMessage(MessageWidget):
    """The user's words on a quiet ground; they can be edited in place."""

    def __init__(self, message: StoredMessage, commands: ChatCommands) -> None:
        super().__init__(message, commands)
        self._message_id = message.id
        self._commands = commands
        self.edit_button = icon_button("edit", "Edit", "Edit this message and ask again")
        self.edit_button.clicked.connect(self._on_edit)
        row(None, self.copy_button, self.edit_button, self.versions, gap=4, on=self.action_row)
        self.versions.set_versions(message.version, message.versions)
        self.editor = MessageEditor("Edit your message", self)
        self.editor.textChanged.connect(self._on_edited)
        self.editor.submitted.connect(self._on_save)
        self.editor.escaped.connect(self.stop_editing)
        self.editor.hide()
        self.save_button = QPushButton("Send again")
        themes.set_role(self.save_button, "primary")
        self.save_button.clicked.connect(self._on_save)
        self.cancel_button = QPushButton("Cancel")
        self.cancel_button.clicked.connect(self.stop_editing)
        self.edit_actions = QWidget(self)
        row(None, self.cancel_button, self.save_button, gap=-1, on=self.edit_actions)
        self.edit_actions.hide()
        self.view.set_text(message.text, folds=True)

    def set_busy(self, busy: bool) -> None:
        self.edit_button.setVisible(not busy)
        self.versions.set_busy(busy)
        if busy:
            self.stop_editing()
        self.height_changed.emit()

    def is_in_use(self) -> bool:
        return not self.editor.isHidden() or super().is_in_use()

    def fit(self, widths: Widths) -> int:
        inner = widths.prose - 2 * _PADDING
        self.view.set_widths(inner, inner)
        actions = self.action_row.sizeHint()
        self.action_row.setGeometry(widths.prose - actions.width() - 4, 4, actions.width(), actions.height())
        self.heading.setGeometry(_PADDING, 4, inner - actions.width(), actions.height())
        top = actions.height() + 4
        if self.editor.isHidden():
            self.view.move(_PADDING, top)
            top += self.view.content_height()
        else:
            lines = min(12, max(2, self.editor.document().size().height()))
            height = round(lines * self.editor.fontMetrics().lineSpacing()) + 20
            self.editor.setGeometry(_PADDING, top, inner, height)
            top += height
        bottom = self._stack(top, _PADDING, inner, (self.edit_actions, 8)) + _PADDING
        self._ground = QRectF(0, 0, widths.prose, bottom)
        return bottom

    @Slot()
    def _on_edit(self) -> None:
        self.editor.setPlainText(self.view.content)
        self._set_editing(True)
        self.editor.setFocus()
        self.editor.selectAll()

    @Slot()
    def stop_editing(self) -> None:
        """Leave the message as it was."""
        if not self.editor.isHidden():
            self._set_editing(False)

    def _set_editing(self, editing: bool) -> None:
        self.editor.setVisible(editing)
        self.edit_actions.setVisible(editing)
        self.view.setVisible(not editing)
        self.action_row.setVisible(not editing)
        self.height_changed.emit()

    @Slot()
    def _on_edited(self) -> None:
        self.save_button.setEnabled(bool(self.editor.toPlainText().strip()))
        if not self.editor.isHidden():
            self.height_changed.emit()

    @Slot()
    def _on_save(self) -> None:
        text = self.editor.toPlainText()
        if text.strip():
            self._set_editing(False)
            self._commands.edit(self._message_id, text)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(themes.current().raised)
        painter.drawRoundedRect(self._ground, themes.RADIUS, themes.RADIUS)


class AnswerMessage(MessageWidget):
    """A model's answer: Markdown, and below it the figures and what can be done with it."""

    def __init__(self, message: StoredMessage, commands: ChatCommands) -> None:
        super().__init__(message, commands)
        self.progress = label(role="quiet", wraps=True)
        self.note = label(role="warning", wraps=True, scale=0.95)
        self.footer = label(role="quiet", wraps=True, scale=0.9, figures=True)
        self.footer.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        explain(self.footer, HELP)
        for part in (self.progress, self.note, self.footer):
            part.setParent(self)
            part.hide()
        self.regenerate_button = icon_button("regenerate", "Regenerate", "Write this answer again")
        self.regenerate_button.clicked.connect(lambda: commands.regenerate(message.id))
        self.more_button = icon_button("more", "", "More about this answer")
        menu = QMenu(self.more_button)
        menu.addAction("Compare with plain", lambda: commands.compare(message.id))
        self.more_button.setMenu(menu)
        self.more_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        row(self.copy_button, self.regenerate_button, self.more_button, self.versions, None, gap=4, on=self.action_row)
        self.action_row.hide()

    def set_busy(self, busy: bool) -> None:
        self.regenerate_button.setVisible(not busy)
        self.more_button.setVisible(not busy)
        self.versions.set_busy(busy)

    def show_progress(self, text: str) -> None:
        """Say what happens while there is no text yet."""
        if text != self.progress.text():
            self.progress.setText(text)
            self.progress.setVisible(bool(text))
            self.height_changed.emit()

    def append_pieces(self, pieces: list[Piece]) -> None:
        if not self.progress.isHidden():
            self.show_progress("")
        self.view.append_pieces(pieces)

    def show_stored(self, message: StoredMessage) -> None:
        """The answer was complete before; what it consists of is worked out only now."""
        self.view.set_text(message.text, unpack(message.text, message.provenance), folds=True)
        self._show_end(message)

    def finish(self, message: StoredMessage) -> None:
        """The answer that was written is complete."""
        self.view.finish()
        self._show_end(message)

    def _show_end(self, message: StoredMessage) -> None:
        footer, note, details = footer_of(message), note_of(message), details_of(message)
        self.progress.hide()
        self.footer.setText(footer)
        self.footer.setVisible(bool(footer))
        explain(self.footer, f"{HELP}\n\n{details}" if details else HELP)
        self.footer.setAccessibleDescription(details)
        self.note.setText(note or "")
        self.note.setVisible(bool(note))
        self.versions.set_versions(message.version, message.versions)
        self.action_row.show()
        self.height_changed.emit()

    def fit(self, widths: Widths) -> int:
        self.view.set_widths(widths.prose, widths.code)
        top = self._stack(0, 0, widths.prose, (self.heading, 4), (self.progress, 6))
        self.view.move(0, top + 6)
        top += 6 + self.view.content_height()
        top = self._stack(top, 0, widths.prose, (self.note, 10), (self.footer, 10))
        # A little to the left, so that the icons and not their frames line up with the text.
        return self._stack(top, -5, widths.prose, (self.action_row, 2)) + 8
