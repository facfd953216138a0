"""Where one writes, edits and drops files, and the key that sends: Enter, or Enter with Ctrl (Command on a Mac)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QMimeData, QObject, QRect, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QGuiApplication, QImage, QKeyEvent, QKeySequence, QResizeEvent, QTextOption
from PySide6.QtWidgets import QAbstractItemView, QCompleter, QFrame, QPlainTextEdit, QPushButton, QSizePolicy, QWidget

from app import words
from app.ui import notices
from app.ui.chat.chips import ComposerAttachments
from app.ui.chat.drop_area import is_picture, local_files, picture_in
from app.ui.chat.footer import height_of, icon_button
from app.ui.engine.queue import wait_for
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.column import prose_margin
from app.ui.widgets.controls import column, label, plain_tooltip, row
from app.ui.widgets.theme import SPACING
from app.words import is_right_to_left

if TYPE_CHECKING:
    from app.ui.chat.model import ChatModel
    from app.ui.context import AppContext


_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_MOST_LINES = 20
"""Of a message that is edited."""


class SendKey(QObject):
    """Says what Enter does where a message is written: one choice for the whole app, which comes from `send_key`.
    Signal ``changed``: another key sends now."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.needs_ctrl = False

    def choose(self, *, needs_ctrl: bool) -> None:
        """Send with Ctrl+Enter, so that Enter begins a line; or with Enter, so that Shift+Enter does."""
        if needs_ctrl != self.needs_ctrl:
            self.needs_ctrl = needs_ctrl
            self.changed.emit()

    def sends(self, event: QKeyEvent) -> bool:
        """Whether this key press sends. Ctrl+Enter always does, for whoever is used to it."""
        modifiers = event.modifiers()
        if event.key() not in _ENTER or modifiers & Qt.KeyboardModifier.ShiftModifier:
            return False
        return not self.needs_ctrl or bool(modifiers & Qt.KeyboardModifier.ControlModifier)

    def text(self) -> str:
        """What is on the keys that send, such as ``Ctrl+Enter``, or ``⌘↩`` on a Mac."""
        return enter("Ctrl+" if self.needs_ctrl else "")

    def new_line_text(self) -> str:
        """What is on the keys that begin a line."""
        return enter("" if self.needs_ctrl else "Shift+")


def enter(modifiers: str = "") -> str:
    """The Enter key with ``modifiers`` (``Ctrl+``) as this system writes it."""
    text = QKeySequence(f"{modifiers}Return").toString(QKeySequence.SequenceFormat.NativeText)
    return text.replace("Return", "Enter")


@cache
def send_key() -> SendKey:
    """The one of this process."""
    return SendKey()


class MessageEditor(QPlainTextEdit):
    """Where a message is written: Enter submits it and Shift+Enter begins a line, or as the user chose it."""

    submitted = Signal()
    escaped = Signal()

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """``name``: what a screen reader says."""
        super().__init__(parent, tabChangesFocus=True)
        self.setAccessibleName(name)
        self.textChanged.connect(self._on_text_changed)

    @Slot()
    def _on_text_changed(self) -> None:
        """Write from the side on which the text begins. (Qt orders the words, but leaves them on the left.)"""
        is_mirrored = is_right_to_left(self.toPlainText())
        option = self.document().defaultTextOption()
        alignment = Qt.AlignmentFlag.AlignRight if is_mirrored else Qt.AlignmentFlag.AlignLeft
        if option.alignment() != alignment:
            directions = Qt.LayoutDirection
            option.setAlignment(alignment)
            option.setTextDirection(directions.RightToLeft if is_mirrored else directions.LayoutDirectionAuto)
            self.document().setDefaultTextOption(option)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ShortcutOverride and isinstance(event, QKeyEvent):
            document = self.document()
            # Where nothing was written the key takes back a deletion; but not after the last of what was written.
            if event.matches(QKeySequence.StandardKey.Undo) and not (
                document.isUndoAvailable() or document.isRedoAvailable()
            ):
                event.ignore()
                return False
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.textCursor().block().layout().preeditAreaText():
            return  # a key that an input method passes on does nothing to a word that is not finished
        if event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        elif send_key().sends(event):
            self.submitted.emit()
        elif event.key() in _ENTER:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)


class Editing(QWidget):
    """A message while it is edited, and what can be done with it."""

    def __init__(self, text: str, *, is_question: bool, parent: QWidget) -> None:
        """``is_question``: the user wrote it, and it is sent again; else it is an answer, and saved as a version."""
        super().__init__(parent)
        self._is_question = is_question
        self._needs_text = True
        self.text = MessageEditor("Edit your message" if is_question else "Edit this answer", self)
        self.text.setPlainText(text)
        self.text.textChanged.connect(self._on_edited)
        self.save_button = QPushButton("Send again" if is_question else "Save")
        themes.set_role(self.save_button, "primary")
        self.cancel_button = QPushButton("Cancel")
        send_key().changed.connect(self._name_save_button)
        self._name_save_button()
        self._buttons = QWidget(self)
        row(None, self.cancel_button, self.save_button, gap=-1, on=self._buttons)
        self.show()

    def begin(self) -> None:
        """Give the keyboard to it."""
        self.text.setFocus()
        if self._is_question:
            self.text.selectAll()

    def place(self, left: int, top: int, width: int) -> int:
        """Stand in the message from ``top`` on; gives back where it ends."""
        lines = min(_MOST_LINES, max(2, self.text.document().size().height()))
        height = round(lines * self.text.fontMetrics().lineSpacing()) + 20
        below = height_of(self._buttons, width)
        self.setGeometry(left, top, width, height + 8 + below)
        self.text.setGeometry(0, 0, width, height)
        self._buttons.setGeometry(0, height + 8, width, below)
        return self.geometry().bottom() + 1

    @Slot()
    def _name_save_button(self) -> None:
        name = f"{self.save_button.text()} ({send_key().text()})"
        self.save_button.setToolTip(name)
        self.save_button.setAccessibleName(name)

    def set_needs_text(self, needs_text: bool) -> None:
        """Whether it can't be sent without words: nothing is attached."""
        self._needs_text = needs_text
        self._on_edited()

    @Slot()
    def _on_edited(self) -> None:
        self.save_button.setEnabled(not self._needs_text or bool(self.text.toPlainText().strip()))


MAX_LINES = 8
NARROW = 48
"""Characters: where fewer have room beside each other, the button has no text."""
_ABOVE, _BELOW = 8, 16
"""Free space."""
_OFFERS_WIDTH = 440
_LEAST_WIDTH = 300
"""Of the text, beside which the count of its tokens has room."""
_ASKING = "A tool wants to run. The answer is waiting for you to decide."
ATTACH_KEYS = "Ctrl+Shift+A"
LONG_CHARACTERS, LONG_LINES = 4000, 60
"""A text that is longer is attached when it is pasted."""


class _Editor(MessageEditor):
    """Grows with its text up to `MAX_LINES` lines.

    Signals:
        files_pasted: Files, by their paths, that aren't written into it.
        text_pasted: So is a long text.
        image_pasted: So is an image.
    """

    files_pasted = Signal(list)
    text_pasted = Signal(str)
    image_pasted = Signal(QImage)

    def __init__(self) -> None:
        super().__init__("Your message")
        self.setPlaceholderText("Ask anything…")
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        themes.set_role(self, "bare")
        self.document().documentLayout().documentSizeChanged.connect(self._on_size_changed)
        self._offers: QAbstractItemView | None = None

    def complete_with(self, completer: QCompleter) -> None:
        """Offer the completer's lines, which begin with a slash, while the text is the beginning of one."""
        self._offers = offers = completer.popup()
        assert offers is not None
        completer.setWidget(self)

        def offer() -> None:
            completer.setCompletionPrefix(text := self.toPlainText())
            if text.startswith("/") and self.hasFocus() and completer.completionCount():
                completer.complete(QRect(0, 0, max(themes.px(_OFFERS_WIDTH), self.width()), self.height()))
            else:
                offers.hide()

        self.textChanged.connect(offer)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = {Qt.Key.Key_Escape, Qt.Key.Key_Tab}
        if self._offers is not None and self._offers.currentIndex().isValid():
            keys |= {*_ENTER}  # which send where nothing is chosen
        if self._offers is not None and self._offers.isVisible() and event.key() in keys:
            event.ignore()  # the list takes it
        else:
            super().keyPressEvent(event)

    def _lines(self) -> float:
        return max(1.0, self.document().size().height())

    @Slot()
    def _on_size_changed(self) -> None:
        many = self._lines() > MAX_LINES
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if many else policy.ScrollBarAlwaysOff)
        self.updateGeometry()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._lines() <= MAX_LINES:
            # It scrolled to the cursor before it had grown.
            self.verticalScrollBar().setValue(0)

    def sizeHint(self) -> QSize:
        lines = min(self._lines(), MAX_LINES)
        margin = 2 * round(self.document().documentMargin())
        return QSize(200, round(lines * self.fontMetrics().lineSpacing()) + margin)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, self.sizeHint().height())

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or source.hasImage() or bool(local_files(source))

    def insertFromMimeData(self, source: QMimeData) -> None:
        if files := local_files(source):
            self.files_pasted.emit(files)
        elif is_picture(source) and (picture := picture_in(source)) is not None:
            self.image_pasted.emit(picture)
        elif source.hasText():
            text = source.text()
            if len(text) > LONG_CHARACTERS or text.count("\n") >= LONG_LINES:
                self.text_pasted.emit(text)
            else:
                self.insertPlainText(text)
                self.ensureCursorVisible()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if local_files(event.mimeData()) or is_picture(event.mimeData()):
            event.ignore()  # the whole chat takes files and pictures
        else:
            super().dragEnterEvent(event)


class Composer(QWidget):
    """A text field that grows, what is attached to it, and the button that sends or stops. Signals ``message_sent``:
    the user sent what is written. ``stop_requested``: the user stopped the answer."""

    message_sent = Signal(str)
    stop_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_busy = self._is_narrow = self._has_attachments = self._is_reading = False
        self._count = self._tools = 0
        self._model: ChatModel | None = None
        self.attachments = ComposerAttachments()
        keys = QKeySequence(ATTACH_KEYS).toString(QKeySequence.SequenceFormat.NativeText)
        self.attach_button = icon_button("attach", "", f"Attach files ({keys})")
        self.tools_button = icon_button("tool", "0 tools", "Tools in this chat")
        self.tools_button.hide()
        self.editor = _Editor()
        self.editor.submitted.connect(self._on_submitted)
        self.editor.escaped.connect(self._on_escaped)
        self.editor.textChanged.connect(self._on_text_changed)
        self.button = QPushButton(autoDefault=False)
        self.button.clicked.connect(self._on_button)
        self.hint = label(role="quiet", wraps=True, scale=0.9)
        self.hint.hide()
        self.tokens = label(role="quiet", scale=0.9, figures=True)
        box = QFrame()
        themes.set_role(box, "card")
        side = row(self.tokens, self.button, gap=2 * SPACING)
        buttons = row(self.attach_button, self.tools_button, gap=0)
        line = row(column(None, buttons), (self.editor, 1), column(None, side), gap=2 * SPACING)
        column(self.attachments, line, gap=0, margins=8, on=box)
        self._column = column(box, self.hint, gap=SPACING, margins=(0, _ABOVE, 0, _BELOW), on=self)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setFocusProxy(self.editor)
        themes.follow(self.button, self._show_state)
        themes.follow_zoom(self, self._align)
        send_key().changed.connect(self._show_state)

    def begin(self, ctx: AppContext) -> None:
        """The chats are there: write in the one that is shown."""
        self._engine = ctx.engine
        self._queue = ctx.queue
        self._notice_list = ctx.notices
        self._queue.changed.connect(self._refresh)
        self.message_sent.connect(self.send)
        self.stop_requested.connect(self._stop)
        ctx.engine.state_changed.connect(self._refresh)
        ctx.chats.follow(
            self._show, unsent__replaced=self._fill, state_changed=self._refresh, branch_changed=self._on_branch_changed
        )

    def _show(self, model: ChatModel) -> None:
        self._model = model
        self._fill(model.unsent.text)
        self._refresh()

    @Slot(str)
    def send(self, text: str) -> None:
        """Send this in the chat that is shown; what is written stays if that cannot be done now."""
        if self._model is not None:
            self._notice_list.remove(*notices.PASSING)
            self._model.send(text)
            self._fill(self._model.unsent.text)

    @Slot()
    def _stop(self) -> None:
        if self._model is not None:
            self._model.stop()

    @Slot(str)
    def _fill(self, text: str) -> None:
        if self.text() != text:
            self.set_text(text)

    @Slot()
    def _on_branch_changed(self) -> None:
        QTimer.singleShot(0, self, self._refresh)  # the answer to a message that is sent is asked for behind it

    @Slot()
    def _refresh(self) -> None:
        """Bring button, hint and the notice of a message without an answer to what is true now."""
        if (model := self._model) is None:
            return
        self.set_busy(model.state.is_busy)
        asks = _ASKING if model.live is not None and model.live.is_asking else ""
        self.set_hint(self._why_it_waits(model) if model.state.is_waiting else asks)
        if model.is_unanswered():
            self._notice_list.show("unanswered", notices.unanswered())
        else:
            self._notice_list.remove("unanswered")

    def _why_it_waits(self, model: ChatModel) -> str:
        job = model.live.job if model.live is not None else None
        when = wait_for(self._queue.before(job) if job is not None else [], self._engine.state()).message
        return f"Your message will be sent {when}." if when else ""

    def is_in_use(self) -> bool:
        """Whether the user is writing something."""
        return bool(self.text() or self.editor.textCursor().block().layout().preeditAreaText())

    def text(self) -> str:
        """What is written at present."""
        return self.editor.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace what is written; the cursor goes to its end."""
        self.editor.setPlainText(text)
        self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)

    def set_busy(self, busy: bool) -> None:
        """While an answer is written the button stops it, and nothing can be sent."""
        self._is_busy = busy
        self._show_state()

    def set_attached(self, has_attachments: bool, *, is_reading: bool) -> None:
        """Whether something is attached, so that no text is needed, and whether files are still being read."""
        self._has_attachments, self._is_reading = has_attachments, is_reading
        self._show_state()

    def set_hint(self, text: str) -> None:
        """A quiet line below the field; empty takes it away."""
        self.hint.setText(text)
        self.hint.setVisible(bool(text))

    def show_tokens(self, count: int) -> None:
        """How many tokens the text takes; 0 shows nothing."""
        self._count = count
        self._show_tokens()

    def show_tools(self, count: int | None, more: str = "") -> None:
        """``count``: how many tools are on; ``None`` hides the button. ``more``: notes about them."""
        self._tools = count or 0
        self.tools_button.setVisible(count is not None)
        self.tools_button.setAccessibleName(f"{words.count(self._tools, 'tool')} in this chat")
        self.tools_button.setAccessibleDescription(more)
        self.tools_button.setToolTip(plain_tooltip(f"{self.tools_button.accessibleName()}\n{more}".strip()))
        self._align()

    def _show_tokens(self) -> None:
        """Only where that leaves room to write."""
        self.tokens.setText(words.tokens(self._count) if self._count else "")
        room = self.width() - 2 * self._column.contentsMargins().left()
        buttons = (self.button, self.attach_button, *([] if self.tools_button.isHidden() else [self.tools_button]))
        others = sum(one.sizeHint().width() for one in (self.tokens, *buttons))
        self.tokens.setVisible(self._count > 0 and room - others >= themes.px(_LEAST_WIDTH))

    @Slot()
    def _show_state(self) -> None:
        self.button.setIcon(icons.themed("stop" if self._is_busy else "send", themes.current()))
        text = "Stop" if self._is_busy else "Send"
        self.button.setText("" if self._is_narrow else text)  # the icon says it too
        name = "Stop the answer (Esc)" if self._is_busy else f"Send ({send_key().text()})"
        if self._is_reading and not self._is_busy:
            name = "Send (once the files have been read)"
        self.button.setToolTip(name)
        self.button.setAccessibleName(name)
        is_enabled = self._is_busy or self._can_send()
        if not is_enabled and self.button.hasFocus():
            self.editor.setFocus(Qt.FocusReason.OtherFocusReason)  # else it would go to the side panel
        self.button.setEnabled(is_enabled)

    def _can_send(self) -> bool:
        return not self._is_reading and (self._has_attachments or bool(self.text().strip()))

    @Slot()
    def _on_text_changed(self) -> None:
        self._show_state()
        if self._model is not None:
            self._model.unsent.type(self.text())

    @Slot()
    def _on_button(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()
        else:
            self._on_submitted()

    @Slot()
    def _on_submitted(self) -> None:
        QGuiApplication.inputMethod().commit()  # a word that is not finished belongs to the message
        text = self.text()
        if self._is_busy or not self._can_send():
            return
        self.message_sent.emit(text)

    @Slot()
    def _on_escaped(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align()

    def _align(self) -> None:
        """Stay in line with the messages above."""
        characters = self.width() // self.fontMetrics().averageCharWidth()
        is_narrow = characters < NARROW
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self._show_state()
        count = str(self._tools) if characters >= NARROW * 2 // 3 else ""
        self.tools_button.setText(count if is_narrow else words.count(self._tools, "tool"))
        side = prose_margin(self.font(), self.width())
        self._column.setContentsMargins(side, _ABOVE, side, _BELOW)
        self._show_tokens()
