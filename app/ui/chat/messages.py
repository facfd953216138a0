"""The messages of the transcript: what they share, and what the user wrote. `app.ui.chat.answer` has the answers.

Many are made while one scrolls through a chat, so a message is made of as few widgets as it needs: its buttons come in
a turn of their own, an editor only when it is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, Signal, Slot
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QApplication, QBoxLayout, QMenu, QToolButton, QWidget

from app.chats.model import Attachment, StoredMessage
from app.ui.actions import Actions
from app.ui.chat.chips import Chips, chips_of
from app.ui.chat.composer import Editing
from app.ui.chat.footer import action_button, copy_text, height_of, icon_button, version_switch
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Widths
from app.ui.widgets.controls import label, row
from app.ui.widgets.turns import turns
from app.words import shortened, visible

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView

_PADDING = 12
_PICTURE = 96
"""The height of a thumbnail."""
_SPOKEN = 120
"""Characters of a message that a screen reader reads at once."""


class MessageButtons(QWidget):
    """What all messages have: Copy, the versions where there are several, and a menu of the rest. ``own``: what only
    messages of this kind have, by its icon."""

    def __init__(self, message: MessageWidget, actions: Actions, own: dict[str, QToolButton], *, right: bool) -> None:
        """``right``: they stand at the right end of their row."""
        super().__init__()
        stored = message.stored
        self.own = own
        self.copy_button = icon_button("copy", "Copy", "Copy this message")
        self.copy_button.clicked.connect(lambda: copy_text(message.content, self.copy_button))
        if not message.content:
            self.copy_button.hide()  # an answer that was stopped while the model was thinking
        self.versions: QWidget | None = None
        if stored.versions > 1:
            step = partial(actions.run, "choose_version", stored.id)
            self.versions = version_switch(stored.version, stored.versions, step)
        self.more_button = icon_button("more", "", "More about this message")
        menu = QMenu(self.more_button)
        menu.aboutToShow.connect(lambda: message.fill_menu(menu))
        self.more_button.setMenu(menu)
        self.more_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        buttons = (self.copy_button, *own.values(), self.more_button, *filter(None, [self.versions]))
        self._row: QBoxLayout = row(*((None, *buttons) if right else (*buttons, None)), gap=4, on=self)

    def add(self, name: str, button: QToolButton) -> None:
        """One more of its own, behind the others."""
        self._row.insertWidget(self._row.indexOf(self.more_button), button)
        QWidget.setTabOrder([self.copy_button, *self.own.values()][-1], button)
        QWidget.setTabOrder(button, self.more_button)
        self.own[name] = button

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
        for button in filter(None, (*self.own.values(), self.more_button, self.versions)):
            button.setVisible(not busy)


class MessageWidget(QWidget):
    """What all messages share: a heading, the text, a row of quiet buttons; an editor in the place of the text.

    A message can have the focus, when one goes from message to message: then a screen reader reads its beginning, and
    Enter opens the menu of what can be done with it.

    Attributes:
        stored: What it shows.
        view: Its text.
    """

    height_changed = Signal()
    """It needs another height, for another reason than its text."""

    _buttons_size: ClassVar = QSize()
    """Of the row of buttons that was made last: so much is left free for the next one."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: QWidget) -> None:
        super().__init__(parent)
        self.stored = message
        self._actions = actions
        self._is_busy = False
        self._shows_drafted = self._is_raw = False
        self._query = ""
        self._buttons: MessageButtons | None = None
        self.editing: Editing | None = None
        self.heading = label(message.author, "quiet", wraps=True, scale=0.95, bold=True, parent=self)
        self.view = self.another_view()
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)

    def set_busy(self, busy: bool) -> None:
        """While an answer is being written, other messages cannot be changed."""
        self._is_busy = busy
        if busy:
            self.stop_editing()
        if self._buttons is not None:
            self._buttons.set_busy(busy)

    def fit(self, widths: Widths) -> int:
        raise NotImplementedError

    @property
    def content(self) -> str:
        """Its text as it was written; of an answer without the thinking and the tool calls."""
        return self.view.content

    def another_view(self) -> MarkdownView:
        """One more text that looks like the first."""
        from app.ui.chat.markdown.view import MarkdownView  # the first picture shows no message

        message = self.stored
        view = MarkdownView(plain=message.role == "user", language=message.code_language, parent=self)
        view.setAccessibleName(f"Message from {message.author}")
        return view

    def views(self) -> list[MarkdownView]:
        """Its texts that have been shown, in reading order."""
        return [self.view]

    def is_in_use(self) -> bool:
        return self.editing is not None or any(view.textCursor().hasSelection() for view in self.views())

    def is_drawn(self) -> bool:
        return self.view.is_drawn

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft."""
        self._shows_drafted = shown
        for view in self.views():
            view.set_show_drafted(shown)

    def spoken(self) -> str:
        """What a screen reader says of it: who wrote it, which version, how it begins."""
        message = self.stored
        version = f", version {message.version} of {message.versions}" if message.versions > 1 else ""
        beginning = " ".join(self.content[: 4 * _SPOKEN].split())
        names = ", ".join(visible(one.name) for one in message.attachments)
        attached = f" Attached: {names}." if names else ""
        return f"{message.author}{version}: {shortened(beginning, _SPOKEN)}{attached}"

    # -- editing

    @Slot()
    def start_editing(self) -> None:
        """Let the user write it anew in its place."""
        if self.editing is not None or self._is_busy:
            return
        editing = self.editing = Editing(self.content, is_question=self.stored.role == "user", parent=self)
        editing.text.textChanged.connect(self._on_edited)
        editing.text.submitted.connect(self._on_save)
        editing.text.escaped.connect(self.stop_editing)
        editing.save_button.clicked.connect(self._on_save)
        editing.cancel_button.clicked.connect(self.stop_editing)
        self._show_editing(True)
        editing.begin()

    @Slot()
    def _on_edited(self) -> None:
        self.height_changed.emit()

    @Slot()
    def stop_editing(self) -> None:
        """Leave the message as it was."""
        if self.editing is not None:
            editing, self.editing = self.editing, None
            had_focus = editing.isAncestorOf(QApplication.focusWidget() or self)
            editing.hide()
            editing.deleteLater()
            self._show_editing(False)
            if had_focus:
                self.setFocus(Qt.FocusReason.OtherFocusReason)

    def _show_editing(self, shown: bool) -> None:
        self.view.setVisible(not shown)
        self.take_turn()
        if self._buttons is not None:
            self._buttons.setVisible(not shown)
        self.height_changed.emit()

    @Slot()
    def _on_save(self) -> None:
        text = self.editing.text.toPlainText() if self.editing is not None else ""
        attachments = self._attachments()
        if text.strip() or attachments:
            self.stop_editing()
            if self.stored.role == "user" or text != self.content:  # a question may be asked once more
                self._actions.run("edit_message", self.stored.id, text, attachments)

    def _attachments(self) -> Sequence[Attachment]:
        """What goes with it."""
        return self.stored.attachments

    # -- find

    def set_find(self, query: str) -> None:
        """Mark what is looked for; empty: nothing."""
        self._query = query
        for view in self.views():
            view.set_find(query)

    def show_find(self, index: int) -> MarkdownView:
        """Make a match stand out, wherever it is, and give back the text it is in; see `MarkdownView.find_box`."""
        self.view.show_find(index)
        return self.view

    def leave_match(self) -> None:
        """The match that stands out is in another message now."""
        for view in self.views():
            view.leave_match()

    # -- raw text

    def set_raw(self, raw: bool) -> None:
        """Show the text as the model wrote it."""
        self._is_raw = raw
        for view in self.views():
            view.set_raw(raw)

    def _dress(self, view: MarkdownView) -> None:
        """Have a new text look as the others do."""
        view.set_raw(self._is_raw)
        view.set_show_drafted(self._shows_drafted)
        view.set_find(self._query)

    # -- what can be done with it

    def fill_menu(self, menu: QMenu) -> None:
        """Put everything that can be done now into a menu."""
        menu.clear()
        self._add_views(menu)
        if self._is_busy:
            return
        menu.addSeparator()
        menu.addAction("Edit…", self.start_editing)
        self._add_answering(menu)
        menu.addSeparator()
        if self._actions.is_enabled("branch_message"):
            self._actions.add(menu, "branch_message", self.stored.id)
        self._actions.add(menu, "delete_message", self.stored.id)
        self._actions.add(menu, "delete_from_here", self.stored.id)

    def _add_views(self, menu: QMenu) -> None:
        menu.addAction("Copy", lambda: QGuiApplication.clipboard().setText(self.content))

    def _add_answering(self, menu: QMenu) -> None:
        """What only an answer has."""

    # -- the keyboard

    def open_menu(self, at: QPoint | None = None) -> None:
        """Show what can be done with it, at a point of the screen or at its top."""
        if not self._has_buttons() or self.editing is not None:
            return
        menu = QMenu(self)
        self.fill_menu(menu)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(at or self.mapToGlobal(self.heading.geometry().bottomLeft()))
        menu.setActiveAction(menu.actions()[0])

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.open_menu()
        elif event.key() == Qt.Key.Key_Escape:
            self._actions.run("focus_composer")
        elif event.matches(QKeySequence.StandardKey.Copy):
            QGuiApplication.clipboard().setText(self.content)
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        is_key = event.reason() is QContextMenuEvent.Reason.Keyboard
        self.open_menu(None if is_key else event.globalPos())

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: N802
        """From the message itself the Tab key goes to what stands in it."""
        if forward and self.hasFocus():
            self._first_stop().setFocus(Qt.FocusReason.TabFocusReason)
            return True
        return bool(super().focusNextPrevChild(forward))

    def _first_stop(self) -> QWidget:
        """Where the Tab key stops first in it."""
        return self.view

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.setAccessibleName(self.spoken())

    def _stack(self, top: int, left: int, width: int, *parts: tuple[QWidget | None, int]) -> int:
        """Put the parts that can be seen below each other, each with some space above it; gives back where they end."""
        for part, space in parts:
            if part is None or part.isHidden():
                continue
            height = height_of(part, width)
            part.setGeometry(left, top + space, width, height)
            top += space + height
        return top

    # -- buttons

    @property
    def buttons(self) -> MessageButtons:
        """Its buttons, made now if there are none yet; there must be some."""
        self.take_turn()
        assert self._buttons is not None
        return self._buttons

    def _make_buttons(self) -> MessageButtons:
        raise NotImplementedError

    def _has_buttons(self) -> bool:
        """Whether there is something that could be done with it."""
        return True

    def take_turn(self) -> None:
        """The buttons; see `app.ui.widgets.turns`."""
        if self._buttons is None and self._has_buttons():
            self._buttons = self._make_buttons()
            self._buttons.setParent(self)
            self._buttons.set_busy(self._is_busy)
            self._buttons.show()
            self.height_changed.emit()

    def _measure_buttons(self, width: int) -> QSize:
        """The size of the buttons' row within this width. There is room for it also while it is not made."""
        if self._buttons is None and not MessageWidget._buttons_size.isEmpty():
            turns().want(self, later=True)
        else:
            self.take_turn()
        if self._buttons is not None:
            self._buttons.fit(width)
            MessageWidget._buttons_size = self._buttons.sizeHint()
        return MessageWidget._buttons_size


class UserMessage(MessageWidget):
    """The user's words on a quiet ground, with what is attached to them; they can be edited in place."""

    def __init__(self, message: StoredMessage, actions: Actions, parent: QWidget) -> None:
        super().__init__(message, actions, parent)
        self._ground = QRectF()
        self.chips: Chips | None = None
        self._kept = list(message.attachments)
        """What stays attached if the message is sent again."""
        self.view.set_text(message.text, folds=True)
        self._show_chips()
        self._hide_empty_text()

    def _attachments(self) -> Sequence[Attachment]:
        return tuple(self._kept)

    def _show_chips(self) -> None:
        """Those that stay, while it is edited; else all."""
        if self.stored.attachments:
            self.chips = self.chips or Chips(self)
            remove = self._remove if self.editing is not None else None
            self.chips.show_chips(chips_of(self._kept, self.chips, self._actions, themes.px(_PICTURE), remove))

    def _remove(self, place: int) -> None:
        del self._kept[place]
        self._show_chips()
        if self.editing is not None:
            self.editing.set_needs_text(not self._kept)
            self.editing.text.setFocus()
        self.height_changed.emit()

    def _show_editing(self, shown: bool) -> None:
        self._kept = list(self.stored.attachments)
        if self.editing is not None:
            self.editing.set_needs_text(not self._kept)
        self._show_chips()
        super()._show_editing(shown)
        self._hide_empty_text()

    def _hide_empty_text(self) -> None:
        """A message may be nothing but what is attached to it."""
        if not self.stored.text:
            self.view.hide()

    def is_drawn(self) -> bool:
        return not self.stored.text or super().is_drawn()

    def _first_stop(self) -> QWidget:
        return self.chips.chips[0].button if self.chips is not None and self.chips.chips else self.view

    def _make_buttons(self) -> MessageButtons:
        edit = action_button("edit", self._actions, "edit_message")
        edit.clicked.connect(self.start_editing)
        return MessageButtons(self, self._actions, {"edit": edit}, right=True)

    def set_busy(self, busy: bool) -> None:
        super().set_busy(busy)
        self.height_changed.emit()

    def fit(self, widths: Widths) -> int:
        inner = widths.prose - 2 * _PADDING
        self.view.set_widths(inner, inner)
        named = self.heading.fontMetrics().horizontalAdvance(self.heading.text())
        actions = self._measure_buttons(inner - named)
        if self._buttons is not None:
            self._buttons.setGeometry(widths.prose - actions.width() - 4, 4, actions.width(), actions.height())
        self.heading.setGeometry(_PADDING, 4, inner - actions.width(), actions.height())
        top = actions.height() + 4
        if self.chips is not None and self.chips.chips:
            height = self.chips.fit(inner)
            self.chips.setGeometry(_PADDING, top, inner, height)
            top += height + (_PADDING if self.editing is not None or self.stored.text else 0)
        if self.editing is not None:
            bottom = self.editing.place(_PADDING, top, inner) + _PADDING
        elif self.stored.text:
            self.view.move(_PADDING, top)
            bottom = top + self.view.content_height() + _PADDING
        else:
            bottom = top + _PADDING
        self._ground = QRectF(0, 0, widths.prose, bottom)
        return bottom

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(themes.current().raised)
        painter.drawRoundedRect(self._ground, themes.RADIUS, themes.RADIUS)
