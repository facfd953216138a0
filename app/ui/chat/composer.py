"""Where the user writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QMimeData, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QGuiApplication, QImage, QKeySequence, QResizeEvent, QTextOption
from PySide6.QtWidgets import QFrame, QPushButton, QSizePolicy, QWidget

from app import words
from app.ui import notices
from app.ui.chat.chips import ComposerAttachments
from app.ui.chat.drop_area import is_picture, local_files, picture_in
from app.ui.chat.editor import MessageEditor, send_key
from app.ui.chat.parts import icon_button
from app.ui.engine.queue import wait_for
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.entries import prose_margin
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

if TYPE_CHECKING:
    from app.ui.chat.model import ChatModel
    from app.ui.context import AppContext

MAX_LINES = 8
NARROW = 48
"""Characters: where fewer have room beside each other, the button has no text."""
_ABOVE, _BELOW = 8, 16
"""Free space."""
_LEAST_WIDTH = 300
"""Of the text, beside which the count of its tokens has room."""
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
    """A text field that grows, what is attached to it, and the button that sends or stops.

    Signals:
        message_sent: The user sent what is written.
        stop_requested: The user stopped the answer.
    """

    message_sent = Signal(str)
    stop_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_busy = self._is_narrow = self._has_attachments = self._is_reading = False
        self._count = 0
        self._model: ChatModel | None = None
        self.attachments = ComposerAttachments()
        keys = QKeySequence(ATTACH_KEYS).toString(QKeySequence.SequenceFormat.NativeText)
        self.attach_button = icon_button("attach", "", f"Attach files ({keys})")
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
        line = row(column(None, self.attach_button), (self.editor, 1), column(None, side), gap=2 * SPACING)
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
        self.set_hint(self._why_it_waits(model) if model.state.is_waiting else "")
        if model.is_unanswered():
            self._notice_list.show("unanswered", notices.unanswered())
        else:
            self._notice_list.remove("unanswered")

    def _why_it_waits(self, model: ChatModel) -> str:
        job = model.live.job if model.live is not None else None
        when = wait_for(self._queue.before(job) if job is not None else [], self._engine.state()).message
        return f"Your message will be sent {when}." if when else ""

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
        """Whether something is attached, which needs no text; and whether files are still being read, which are waited
        for.
        """
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

    def _show_tokens(self) -> None:
        """Only where that leaves room to write."""
        self.tokens.setText(words.tokens(self._count) if self._count else "")
        room = self.width() - 2 * self._column.contentsMargins().left()
        others = sum(one.sizeHint().width() for one in (self.tokens, self.button, self.attach_button))
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
        is_narrow = self.width() < self.fontMetrics().averageCharWidth() * NARROW
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self._show_state()
        side = prose_margin(self.font(), self.width())
        self._column.setContentsMargins(side, _ABOVE, side, _BELOW)
        self._show_tokens()
