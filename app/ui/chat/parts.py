"""Small things the entries of the transcript are made of, and what their buttons do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QImage, QKeyEvent, QKeySequence, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QPlainTextEdit, QPushButton, QToolButton, QWidget

from app.chats.model import Attachment
from app.models.text import is_right_to_left
from app.ui.chat.send_key import begins_line, send_key
from app.ui.notices import Kind
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.entries import Widths
from app.ui.widgets.layouts import CARD_MARGINS, GAP, column, row

CONTEXT_TEXT = "The messages above no longer fit in the context"
_COPIED_MILLISECONDS = 1500


def _nothing(*_: object) -> None:
    """A button that nobody has connected yet does nothing."""


@dataclass
class ChatCommands:
    """Called by the views; whoever owns the transcript fills it in. Messages are named by their ids."""

    regenerate: Callable[[str], object] = _nothing
    compare: Callable[[str], object] = _nothing
    edit: Callable[[str, str, Sequence[Attachment]], object] = _nothing
    """With the new wording, and what goes with it."""
    tokens_of: Callable[[Attachment], int | None] = lambda _attachment: None
    """How much of the context an attachment takes, where that is known."""
    show_attachment: Callable[[Attachment], object] = _nothing
    continue_answer: Callable[[str], object] = _nothing
    ways_to_regenerate: Callable[[str], Sequence[tuple[str, Callable[[], object]]]] = lambda _message_id: ()
    """What an answer can be written again with: what a menu says, and what does it. An empty text: a line between."""
    delete: Callable[[str, bool], object] = _nothing
    """And whether what follows goes, too."""
    branch: Callable[[str], object] = _nothing
    can_branch: Callable[[], bool] = lambda: True
    keep_place: Callable[[QWidget, Callable[[], object]], object] = lambda _widget, change: change()
    """Do what changes the height of a message, and leave this part of it where it is on the screen."""
    show_point: Callable[[QWidget, QPoint], object] = _nothing
    """Something is being selected up to this point of a widget."""
    stop_thinking: Callable[[], object] | None = None
    """Has the answer that is being written begin; ``None`` where the engine can't."""
    leave_messages: Callable[[], object] = _nothing
    """The keyboard goes back to where the user writes."""
    choose_version: Callable[[str, int], object] = _nothing
    """So many versions on: -1 or 1."""
    ask: Callable[[str], object] = _nothing
    """An example of the empty chat."""
    load_thumbnail: Callable[[Attachment, int, Callable[[QImage], None]], object] = _nothing
    """The small picture of an attached image, of a height in pixels, is given to what shows it."""
    open_models: Callable[[], object] = _nothing
    get_proposed: Callable[[], object] = _nothing
    """The pair that the card of the first start proposes."""
    load_starter: Callable[[], object] = _nothing
    hide_introduction: Callable[[], object] = _nothing


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

    # -- Qt

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
        elif begins_line(event):
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            super().keyPressEvent(event)


def copy_text(text: str, button: QAbstractButton) -> None:
    """Put text on the clipboard; its button says so for a moment."""
    QGuiApplication.clipboard().setText(text)
    button.setText("Copied")
    QTimer.singleShot(_COPIED_MILLISECONDS, button, lambda: button.setText("Copy"))


def icon_button(icon: str, text: str, name: str) -> QToolButton:
    """A quiet button with an icon; ``text`` may be empty, ``name`` is what a screen reader says."""
    result = QToolButton(autoRaise=True)
    result.setText(text)
    result.setToolTip(name)
    result.setAccessibleName(name)
    result.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    icons.set_icon(result, icon)
    if text:
        result.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    themes.scale_font(result, 0.9)
    return result


def named_button(name: str, action: Callable[[], object]) -> QPushButton:
    """A button with this text and effect."""
    button = QPushButton(name)
    button.setAccessibleName(name)
    button.clicked.connect(lambda _checked: action())
    return button


class Card(QFrame):
    """A raised surface with text and buttons."""

    def __init__(self, text: str, actions: Iterable[tuple[str, Callable[[], object]]], role: Kind) -> None:
        """``actions``: what stands on each button, and what it does."""
        super().__init__()
        themes.set_role(self, "card")
        self._role = role
        self.text = label(text, wraps=True)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.buttons = [named_button(name, action) for name, action in actions]
        self._grid = QGridLayout()
        self._grid.setSpacing(GAP)
        self._grid.setColumnStretch(len(self.buttons), 1)
        self._column = column(self.text, self._grid, margins=CARD_MARGINS, on=self)
        self._place_buttons(1)

    def fit(self, widths: Widths) -> int:
        """As many buttons beside each other as have room, the others below them."""
        margins = self.contentsMargins() + self._column.contentsMargins()
        available = widths.prose - margins.left() - margins.right()
        needed = [button.sizeHint().width() + GAP for button in self.buttons]
        count = len(needed)
        while count > 1 and sum(max(needed[place::count]) for place in range(count)) > available:
            count -= 1
        if count != self._beside:
            self._place_buttons(count)
        return height_of(self, widths.prose)

    def _place_buttons(self, count: int) -> None:
        self._beside = count
        for place, button in enumerate(self.buttons):
            self._grid.addWidget(button, place // count, place % count)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        theme = themes.current()
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush({"info": theme.accent, "warning": theme.warning, "bad": theme.bad}[self._role])
        painter.drawRoundedRect(1, 12, 3, self.height() - 24, 1.5, 1.5)


class VersionSwitch(QWidget):
    """‹ 1/2 ›: the versions of a message. Hidden while there is only one."""

    def __init__(self, parent: QWidget, step: Callable[[int], object]) -> None:
        """``step``: called with -1 or 1, how many versions the user wants to go on."""
        super().__init__(parent)
        self._back = icon_button("left", "", "Earlier version")
        self._on = icon_button("right", "", "Later version")
        self._label = label(role="quiet", scale=0.9, figures=True)
        row(self._back, self._label, self._on, gap=0, on=self)
        self._back.clicked.connect(lambda: step(-1))
        self._on.clicked.connect(lambda: step(1))
        self._versions = 1
        self._is_busy = False
        self.set_versions(1, 1)

    def set_versions(self, version: int, versions: int) -> None:
        """Version number ``version`` (from 1) of ``versions``."""
        self._label.setText(f"{version}/{versions}")
        self._label.setAccessibleName(f"Version {version} of {versions}")
        self._back.setEnabled(version > 1)
        self._on.setEnabled(version < versions)
        self._versions = versions
        self.setVisible(versions > 1 and not self._is_busy)

    def set_busy(self, busy: bool) -> None:
        """Hidden while an answer is being written."""
        self._is_busy = busy
        self.setVisible(self._versions > 1 and not busy)


def height_of(widget: QWidget, width: int) -> int:
    """The height a label, or a widget with a layout, needs at this width."""
    return widget.heightForWidth(width) if widget.hasHeightForWidth() else widget.sizeHint().height()


class ContextLine(QWidget):
    """A line that marks where the model's context begins."""

    def __init__(self) -> None:
        super().__init__()
        self._label = label(CONTEXT_TEXT, "quiet", scale=0.9)
        self._label.setParent(self)
        self._prose = 0

    def fit(self, widths: Widths) -> int:
        self._prose = widths.prose
        self._label.setWordWrap(self._label.sizeHint().width() > widths.prose)
        width = min(self._label.sizeHint().width(), widths.prose)
        height = height_of(self._label, width)
        self._label.setGeometry((widths.prose - width) // 2, 4, width, height)
        return height + 8

    def is_in_use(self) -> bool:
        return False

    def is_drawn(self) -> bool:
        return True

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() // 2
        gap = self._label.geometry().adjusted(-12, 0, 12, 0)
        line = themes.current().line
        painter.fillRect(0, middle, max(0, gap.left()), 1, line)
        painter.fillRect(gap.right(), middle, max(0, self._prose - gap.right()), 1, line)
