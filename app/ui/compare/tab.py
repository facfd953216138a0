"""The parts of the Compare window's tabs: a verdict, a row of buttons, why nothing can be started; and one of the two
answers beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint, QRect, Qt, Slot
from PySide6.QtGui import QImageWriter, QResizeEvent
from PySide6.QtWidgets import QFrame, QMenu, QPushButton, QVBoxLayout, QWidget

from app import words
from app.compare.results import Run
from app.protocol.events import Figures, Round
from app.protocol.statistics import Statistics
from app.ui.chat.answer import ThinkingPart
from app.ui.chat.footer import height_of, thought_for
from app.ui.chat.live_answer import ThinkingClock
from app.ui.chat.markdown.view import MarkdownView
from app.ui.compare.runner import End
from app.ui.compare.wording import Verdict
from app.ui.widgets import theme
from app.ui.widgets.column import Column, Entry, Widths, prose_margin
from app.ui.widgets.controls import ElidedLabel, column, explain, label, plain_tooltip, row
from app.ui.widgets.theme import SPACING

FORMATS = {"Markdown": ".md", "CSV": ".csv", "JSON": ".json", "PNG": ".png"}
"""Name and file extension."""
_ROLES = {"good": "heading", "plain": "heading", "warning": "heading-warning", "bad": "heading-bad"}


def line() -> QFrame:
    """A hairline."""
    result = QFrame()
    theme.set_role(result, "line")
    return result


class VerdictLine(QWidget):
    """The result: one line, with sentences below it if there is more to say."""

    def __init__(self) -> None:
        super().__init__()
        self._heading = label(role="heading", wraps=True, figures=True)
        self._detail = label(role="quiet", wraps=True, figures=True)
        for part in (self._heading, self._detail):
            part.setTextInteractionFlags(
                Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
            )
            part.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        column(self._heading, self._detail, gap=SPACING, on=self)
        self.show_verdict(Verdict(""))

    def show_verdict(self, verdict: Verdict) -> None:
        self._heading.setText(verdict.heading)
        theme.set_role(self._heading, _ROLES[verdict.mood])
        self._detail.setText(verdict.detail)
        self._detail.setVisible(bool(verdict.detail))
        self.setAccessibleName(verdict.text)

    def text(self) -> str:
        return self.accessibleName()


class Footer(QWidget):
    """The row of buttons below: what can be done with it on the left, Export and Close on the right. The button on the
    left is ``run_button`` while nothing runs and ``stop_button`` while something does; the actions of ``export_menu``
    have one of `FORMATS` as their data."""

    def __init__(self, run_text: str) -> None:
        super().__init__()
        self.run_button = QPushButton(run_text)
        theme.set_role(self.run_button, "primary")
        self.stop_button = QPushButton("Stop")
        self.stop_button.setToolTip("Stop (Esc)")
        self.export_button = QPushButton("Export ▾")
        self.export_button.setAccessibleName("Export")
        self.export_button.clicked.connect(self._on_export)
        self.export_menu = QMenu(self.export_button)
        for name in FORMATS:
            self.export_menu.addAction(f"{name}…").setData(name)
        self.close_button = QPushButton("Close")
        self._status = ElidedLabel("quiet")
        self._said = "", "quiet"
        self._why_not = ""
        left, right = (self.run_button, self.stop_button), (self.export_button, self.close_button)
        row(*left, SPACING, (self._status, 1), *right, on=self)
        self.set_state(running=False, can_run=False, can_export=False)

    def set_state(
        self, *, running: bool, can_run: bool, can_export: bool, has_subject: bool = True, why_not: str = ""
    ) -> None:
        """``has_subject``: there is something to run, now or later; ``why_not``: why not now. The focus moves to the
        button that replaces one that disappears."""
        had_focus = self.window().focusWidget() in (self.run_button, self.stop_button)
        self.run_button.setVisible(has_subject and not running)
        self.run_button.setEnabled(can_run)
        self.stop_button.setVisible(running)
        self.export_button.setEnabled(can_export)
        self.run_button.setToolTip(why_not)
        self._why_not = why_not if has_subject and not running else ""
        self._show_status()
        if had_focus:
            (self.stop_button if running else self.run_button).setFocus()

    def set_status(self, text: str, role: str = "quiet") -> None:
        """The progress or the result of an export."""
        self._said = text, role
        self._show_status()

    def _show_status(self) -> None:
        text, role = self._said if self._said[0] else (self._why_not, "quiet")
        self._status.setText(text)
        self._status.setToolTip(plain_tooltip(text))
        theme.set_role(self._status, role)

    @Slot()
    def _on_export(self) -> None:
        height = self.export_menu.sizeHint().height()
        self.export_menu.popup(self.export_button.mapToGlobal(QPoint(0, -height)))


class CompareTab(QWidget):
    """Shows what a runner does; decides nothing. While it does not run it passes over what the runner says.
    ``verdict``: what came of the comparison. ``footer``: the buttons; whoever owns the tab connects them."""

    def __init__(self, run_text: str) -> None:
        super().__init__()
        self.verdict = VerdictLine()
        self.footer = Footer(run_text)
        self._blocked = ""
        self._draft_failure = ""

    def is_running(self) -> bool:
        """Whether the runner is working for this tab."""
        raise NotImplementedError

    @Slot(str)
    def note_draft_failure(self, reason: str) -> None:
        """The draft ended before the answer; mentioned below the result."""
        if self.is_running():
            self._draft_failure = f"Drafting stopped during the run. {reason}"

    def set_waiting(self, waits: str) -> None:
        """What the next run is waiting for; empty if nothing."""
        raise NotImplementedError

    def end(self, end: End) -> None:
        """The runner is done."""
        raise NotImplementedError

    def set_blocked(self, why: str) -> None:
        """Nothing can be started now, and why; empty if it can."""
        self._blocked = why
        self._show_state()

    def say(self, verdict: Verdict) -> None:
        self.verdict.show_verdict(verdict)
        self._show_state()

    def picture(self) -> bytes:
        """What the tab shows, without its buttons, as PNG."""
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        shown = self.grab(QRect(0, 0, self.width(), self.footer.y()))
        QImageWriter(buffer, QByteArray(b"PNG")).write(shown.toImage())
        return bytes(buffer.data().data())

    # ------------------------------------------------------------ for the tabs themselves

    def _say_result(self, verdict: Verdict) -> None:
        """Show the result of the run."""
        self.say(replace(verdict, detail=f"{verdict.detail} {self._draft_failure}".strip()))

    def _make_below(self) -> QVBoxLayout:
        """Create the lower part of the tab."""
        margins = (6 * SPACING, 3 * SPACING, 6 * SPACING, 4 * SPACING)
        return column(self.verdict, self.footer, gap=3 * SPACING, margins=margins)

    def _show_state(self) -> None:
        """Update which buttons can be used."""
        raise NotImplementedError


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

    def show_run(self, run: Run) -> None:
        """Show an answer that was written before."""
        self.clear()
        text, figures = self._text(), run.figures
        if run.thinking.strip():
            thought = [piece for piece in run.pieces if piece.thinking]
            text.thinking.show_stored(run.thinking, lambda: thought, thought_for(figures.thinking_seconds))
            text.thinking.show()
        text.view.set_text(run.text, lambda: [piece for piece in run.pieces if not piece.thinking])
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
