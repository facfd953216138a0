"""One of the two answers next to each other: its clock, its speed, its text as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QPoint, Qt, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QWidget

from app import words
from app.compare.results import Run
from app.protocol.events import Figures, Piece, Round
from app.protocol.statistics import Statistics
from app.ui.chat.answer import ThinkingPart
from app.ui.chat.footer import thought_for
from app.ui.chat.markdown.view import MarkdownView
from app.ui.chat.parts import height_of
from app.ui.chat.thinking_clock import ThinkingClock
from app.ui.widgets import theme
from app.ui.widgets.column import Column
from app.ui.widgets.controls import explain, label
from app.ui.widgets.entries import Entry, Widths, prose_margin
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

CLOCK_HELP = "Seconds since this run began, up to its last token. Both runs start with the prompt already processed."
SPEED_HELP = (
    "Decode speed: tokens after the first ÷ time from the first to the last. The time to the first token is not "
    "included."
)
_TEXT_HEIGHT = 200
_ABOVE_MARK = 0.4
"""The fraction of the height left free above the text that is scrolled to."""


class _Text(QWidget):
    """The content of a pane's column: a line of progress, what the model thought, then the answer."""

    def __init__(self, title: str, column: Column, dress_view: Callable[[MarkdownView], object]) -> None:
        super().__init__()
        self.thinking = ThinkingPart(f"{title}: thinking", column, self, dress_view)
        self.thinking.hide()
        self.progress = label(role="quiet", wraps=True)
        self.progress.setParent(self)
        self.view = MarkdownView(parent=self)
        self.view.setAccessibleName(f"{title}: answer")

    def fit(self, widths: Widths) -> int:
        self.view.set_widths(widths.prose, widths.code)
        top = 0
        if not self.progress.isHidden():
            top = height_of(self.progress, widths.prose)
            self.progress.setGeometry(0, 0, widths.prose, top)
            top += 2 * SPACING
        if not self.thinking.isHidden():
            self.thinking.move(0, top)
            top += self.thinking.fit(widths) + SPACING
        self.view.move(0, top)
        return top + self.view.content_height()

    def is_in_use(self) -> bool:
        return True

    def is_drawn(self) -> bool:
        return self.view.is_drawn and self.thinking.is_drawn()


class AnswerPane(QFrame):
    """Shows one run, while it is written or afterwards."""

    def __init__(self, title: str) -> None:
        super().__init__()
        theme.set_role(self, "reading")
        self._title = title
        self._shows_drafted = False
        self._figures = {"speed": label(figures=True, bold=True), "clock": label(figures=True, role="quiet")}
        explain(self._figures["speed"], SPEED_HELP)
        explain(self._figures["clock"], CLOCK_HELP)
        self._row = row(label(title, "heading"), None, *self._figures.values(), gap=4 * SPACING)
        self.column = Column()
        self.column.setAccessibleName(f"{title}: answer")
        column(self._row, (self.column, 1), gap=0, on=self)
        self.clear()

    # ------------------------------------------------------------ a run as it is written

    def clear(self, note: str = "") -> None:
        """Remove the text; ``note`` says what the pane is waiting for."""
        self._began: float | None = None
        self._marked: MarkdownView | None = None
        self._statistics = Statistics()
        self._clock = ThinkingClock()
        self._show_figures(None, None)
        self.column.remove(list(self.column.entries))
        self._entry = Entry(self._title, self._make_text, _TEXT_HEIGHT)
        self.column.add(self._entry)
        self.column.go_to_end()
        self.set_note(note)

    def set_note(self, note: str) -> None:
        """A quiet line while there is no text; an empty one removes it."""
        text = self._text()
        if text.progress.text() != note or text.progress.isHidden() is bool(note):
            text.progress.setText(note)
            text.progress.setVisible(bool(note))
            self.column.refit(self._entry)

    def begin(self, now: float) -> None:
        """The run starts; ``now`` is in seconds, on the same clock as in `tick`."""
        self.clear()
        self._began = now
        self.tick(now)

    def add_rounds(self, rounds: Sequence[Round]) -> None:
        """What the run added to the text; shown with the next frame."""
        for one in rounds:
            self._statistics.add(one)
        pieces = [piece for one in rounds for piece in one.pieces]
        self._clock.add(rounds)
        if pieces:
            text = self._text()
            text.thinking.take(pieces, self._clock.seconds)
            text.view.append_pieces([piece for piece in pieces if not piece.thinking])

    def tick(self, now: float) -> None:
        """Update clock and speed."""
        if self._began is not None:
            self._show_figures(self._statistics.figures(0.0).decode_tokens_per_second, now - self._began)

    def finish(self, figures: Figures | None) -> None:
        """The run is over; ``None``: it was stopped."""
        began, self._began = self._began, None
        text = self._text()
        text.thinking.finish(thought_for(figures.thinking_seconds if figures else self._clock.seconds()))
        text.view.finish()
        if figures is not None:
            self._show_figures(figures.decode_tokens_per_second, figures.total_seconds)
        elif began is None:
            self._show_figures(None, None)

    # ------------------------------------------------------------ a run that is over

    def show_run(self, run: Run, pieces: list[Piece]) -> None:
        """Show an answer that was written before."""
        self.clear()
        text, figures = self._text(), run.figures
        if run.thinking.strip():
            thought = [piece for piece in pieces if piece.thinking]
            text.thinking.show_stored(run.thinking, lambda: thought, thought_for(figures.thinking_seconds))
            text.thinking.show()
        text.view.set_text(run.text, lambda: [piece for piece in pieces if not piece.thinking])
        self._show_figures(figures.decode_tokens_per_second, figures.total_seconds)

    def set_show_drafted(self, shown: bool) -> None:
        self._shows_drafted = shown
        for view in filter(None, (self._text().view, self._text().thinking.view)):
            view.set_show_drafted(shown)

    def set_mark(self, marked: tuple[int, int], *, in_thinking: bool = False) -> None:
        """Mark these characters of the finished answer, or of the thinking, and scroll to them."""
        text = self._text()
        view = text.view
        if in_thinking:
            text.thinking.set_open(True)
            view = text.thinking.view or view
        view.set_mark(marked)
        self._marked = view
        if view.is_drawn:
            self._go_to_mark()
        else:
            view.drawn.connect(self._go_to_mark, Qt.ConnectionType.SingleShotConnection)

    def _make_text(self, entry: Entry) -> QWidget:
        text = _Text(self._title, self.column, lambda view: view.set_show_drafted(self._shows_drafted))
        text.view.set_show_drafted(self._shows_drafted)
        for part in (text.view, text.thinking):
            part.height_changed.connect(lambda: self.column.refit(entry))
        text.view.selection_dragged.connect(lambda point: self.column.show_point(text.view, point))
        return text

    def _text(self) -> _Text:
        text = self.column.build(self._entry)
        assert isinstance(text, _Text)
        return text

    def _show_figures(self, speed: float | None, seconds: float | None) -> None:
        shown = ("", "") if seconds is None else (words.speed(speed), words.clock(seconds))
        for name, text in zip(self._figures, shown, strict=True):
            if self._figures[name].text() != text:
                self._figures[name].setText(text)
                self._figures[name].setAccessibleName(f"{self._title}, {name}: {text}")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # Aligned with the text below.
        side = prose_margin(self.column.font(), event.size().width())
        self._row.setContentsMargins(side, 3 * SPACING, side, 0)

    @Slot()
    def _go_to_mark(self) -> None:
        view = self._marked
        box = view.mark_box() if view is not None else None
        if view is None or box is None:
            return
        self.column.arrange()
        bar = self.column.verticalScrollBar()
        at = view.mapTo(self.column.viewport(), QPoint(0, round(box.top()))).y() + bar.value()
        bar.setValue(round(at - _ABOVE_MARK * self.column.viewport().height()))
