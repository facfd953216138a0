"""What a model thought before its answer: a button that says how long that took, and the text while it is open.

Nothing of the text is laid out before it is opened for the first time: it may be far longer than the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QWidget

from app.markdown.find import count_matches
from app.protocol.events import Piece
from app.ui.actions import Actions
from app.ui.chat.footer import thought_for
from app.ui.widgets import icons, units
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column
from app.ui.widgets.controls import explain
from app.ui.widgets.entries import Widths

if TYPE_CHECKING:
    from app.ui.chat.markdown.view import MarkdownView

_TICK_MS = 1000
_INDENT = 16
"""Of the text, beside the line that marks it."""
_LINE_LEFT = 7
_ABOVE_TEXT, _BELOW_TEXT = 4, 8
_STOP_HELP = "Has the model answer now, with what it has thought so far."


class _FoldButton(QPushButton):
    """Opens and closes the text, also with Enter, and stays where it is on the screen."""

    def __init__(self, column: Column, parent: QWidget) -> None:
        super().__init__(parent, autoDefault=False)
        self._column = column
        self.setCheckable(True)
        themes.set_role(self, "fold")

    def nextCheckState(self) -> None:  # noqa: N802
        self._column.keep_place(self, super().nextCheckState)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)


class ThinkingPart(QWidget):
    """The thinking of one answer, while it streams or afterwards.

    Attributes:
        button: Opens and closes it.
        stop_button: Ends the thinking; only while the model thinks, and where that can be done.
        view: The text; ``None`` before it was opened.

    Signals:
        height_changed: It needs another height.
    """

    height_changed = Signal()

    def __init__(self, name: str, column: Column, parent: QWidget, actions: Actions | None = None) -> None:
        """``name``: of the text, for screen readers. ``column``: it is in an entry of this. Without ``actions`` nobody
        can stop it here."""
        super().__init__(parent)
        self.view: MarkdownView | None = None
        self._name = name
        self._column = column
        self._actions = actions
        self._text: list[str] = []
        self._unseen: list[Piece] = []
        """What is given to the view when it is opened."""
        self._find_pieces: Callable[[], list[Piece]] | None = None
        self._is_finished = False
        self._shows_drafted = self._is_raw = False
        self._query, self._matches, self._counted = "", 0, -1
        self._seconds: Callable[[], float] = float
        self._widths = Widths(0, 0)
        self.button = _FoldButton(column, self)
        self.stop_button: QPushButton | None = None
        self._timer = QTimer(self, interval=_TICK_MS)
        self._timer.timeout.connect(self._tell_seconds)
        self.button.toggled.connect(self._on_toggled)
        themes.follow(self, self._dress)

    # -- text

    @property
    def content(self) -> str:
        """What the model thought, as it wrote it."""
        if len(self._text) > 1:
            self._text = ["".join(self._text)]
        return self._text[0] if self._text else ""

    def append_pieces(self, pieces: list[Piece]) -> None:
        """More of it. Pieces that are not thinking are left out."""
        pieces = [piece for piece in pieces if piece.thinking]
        self._text += [piece.text for piece in pieces]
        if self.view is not None:
            self.view.append_pieces(pieces)
        else:
            self._unseen += pieces

    def take(self, pieces: list[Piece], seconds: Callable[[], float]) -> None:
        """More of an answer, of which only the thinking is shown, from its first letter on. ``seconds``: for how long
        the model has thought so far."""
        self.append_pieces(pieces)
        if self.isHidden() and self.content.strip():
            self.show()
            self.height_changed.emit()
        if pieces[-1].thinking:
            self.begin(seconds)
        else:
            self.pause()

    def begin(self, seconds: Callable[[], float]) -> None:
        """The model thinks. ``seconds``: for how long so far."""
        if not self._timer.isActive():
            self._seconds = seconds
            self._timer.start()
            self._show_stop(self._actions is not None and self._actions.is_enabled("skip_thinking"))
            self._tell_seconds()

    def pause(self) -> None:
        """The model writes its answer; it may think again."""
        if self._timer.isActive():
            self._timer.stop()
            self._show_stop(False)
            self._show_title(thought_for(self._seconds()))

    def finish(self, title: str) -> None:
        """There is no more of it. ``title``: how it was, in a few words."""
        self._timer.stop()
        self._show_stop(False)
        self._is_finished = True
        if self.view is not None:
            self.view.finish()
        self._show_title(title)

    def show_stored(self, text: str, find_pieces: Callable[[], list[Piece]] | None, title: str) -> None:
        """Thinking that was complete before; see `MarkdownView.set_text`."""
        self._text, self._find_pieces, self._is_finished = [text], find_pieces, True
        if self.view is not None:
            self.view.set_text(text, find_pieces, folds=True)
        self._show_title(title)

    # -- how it is shown

    @property
    def is_open(self) -> bool:
        return self.button.isChecked()

    def set_open(self, is_open: bool) -> None:
        """Show or hide the text."""
        self.button.setChecked(is_open)

    def set_show_drafted(self, shown: bool) -> None:
        """Tint the tokens that came from the draft."""
        self._shows_drafted = shown
        if self.view is not None:
            self.view.set_show_drafted(shown)

    def set_raw(self, raw: bool) -> None:
        """Show the text as the model wrote it."""
        self._is_raw = raw
        if self.view is not None:
            self.view.set_raw(raw)

    def set_find(self, query: str) -> int:
        """Mark every match; gives back how many there are, whether the text is open or not."""
        if self.view is not None:
            self.view.set_find(query)
        length = sum(map(len, self._text))
        if (query, length) != (self._query, self._counted):
            self._query, self._counted = query, length
            self._matches = count_matches(self.content, query) if query else 0
        return self._matches

    def is_drawn(self) -> bool:
        """Whether all that is to be seen is on screen."""
        return not self.is_open or self.view is None or self.view.is_drawn

    def fit(self, widths: Widths) -> int:
        """Use these widths; gives back the height it needs."""
        self._widths = widths
        size = self.button.sizeHint()
        width = min(size.width(), widths.prose)
        self.button.setGeometry(0, 0, width, size.height())
        bottom = size.height()
        if self.stop_button is not None and not self.stop_button.isHidden():
            wanted = self.stop_button.sizeHint()
            fits = width + 8 + wanted.width() <= widths.prose
            top = (size.height() - wanted.height()) // 2 if fits else size.height()
            left = width + 8 if fits else 0
            self.stop_button.setGeometry(left, top, min(wanted.width(), widths.prose), wanted.height())
            bottom = bottom if fits else top + wanted.height()
        if self.view is not None and self.is_open:
            self.view.set_widths(widths.prose - _INDENT, widths.code - _INDENT)
            self.view.move(_INDENT, bottom + _ABOVE_TEXT)
            bottom += _ABOVE_TEXT + self.view.content_height() + _BELOW_TEXT
        self.resize(widths.code, bottom)
        return bottom

    @Slot(bool)
    def _on_toggled(self, is_open: bool) -> None:
        if is_open and self.view is None:
            self._make_view()
        if self.view is not None:
            self.view.setVisible(is_open)
        self._dress()
        self._tell()
        self.height_changed.emit()

    def _make_view(self) -> None:
        from app.ui.chat.markdown.view import MarkdownView

        view = self.view = MarkdownView(soft=True, parent=self)
        view.setAccessibleName(self._name)
        view.lower()  # behind the buttons for the Tab key, which goes by the order of the children
        for button in (self.stop_button, self.button):
            if button is not None:
                button.lower()
        themes.scale_font(view, 0.95)
        view.set_raw(self._is_raw)
        view.set_show_drafted(self._shows_drafted)
        view.height_changed.connect(self._on_view_height_changed)
        view.selection_dragged.connect(lambda point: self._column.show_point(view, point))
        if self._widths.prose:
            view.set_widths(self._widths.prose - _INDENT, self._widths.code - _INDENT)
        unseen, self._unseen = self._unseen, []
        if unseen or not self._is_finished:
            view.append_pieces(unseen)
            if self._is_finished:
                view.finish()
        else:
            view.set_text(self.content, self._find_pieces, folds=True)
        if self._query:
            view.set_find(self._query)

    @Slot()
    def _on_view_height_changed(self) -> None:
        if self.is_open:
            self.height_changed.emit()

    def _show_stop(self, shown: bool) -> None:
        if shown and self.stop_button is None:
            self.stop_button = QPushButton("Stop thinking", self, autoDefault=False)
            themes.set_role(self.stop_button, "link")
            explain(self.stop_button, _STOP_HELP)
            self.stop_button.clicked.connect(self._on_stop)
        if self.stop_button is not None:
            if not shown and self.stop_button.hasFocus():
                self.button.setFocus(Qt.FocusReason.OtherFocusReason)
            self.stop_button.setEnabled(shown)
            self.stop_button.setVisible(shown)
        self.height_changed.emit()

    @Slot()
    def _on_stop(self) -> None:
        if self._actions is not None and self.stop_button is not None:
            self.button.setFocus(Qt.FocusReason.OtherFocusReason)  # a disabled button would lose it
            self.stop_button.setEnabled(False)
            self._actions.run("skip_thinking")

    # -- what the button says

    @Slot()
    def _tell_seconds(self) -> None:
        seconds = int(self._seconds())
        self._show_title(f"Thinking… {units.duration(seconds)}" if seconds else "Thinking…")

    def _show_title(self, title: str) -> None:
        if title != self.button.text():
            self.button.setText(title)
            self._tell()
            self.height_changed.emit()

    def _tell(self) -> None:
        """To screen readers, without the seconds while they change."""
        title = "Thinking" if self._timer.isActive() else self.button.text().replace(units.NO_BREAK, " ")
        name = f"{title}, {'open' if self.is_open else 'closed'}"
        if name != self.button.accessibleName():
            self.button.setAccessibleName(name)

    def _dress(self) -> None:
        self.button.setIcon(icons.themed("chevron-down" if self.is_open else "chevron-right", themes.current()))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self.view is not None and self.is_open:
            top = self.view.y()
            line = QRectF(_LINE_LEFT, top, 2, self.height() - _BELOW_TEXT - top)
            QPainter(self).fillRect(line, themes.current().line)
