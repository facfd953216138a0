"""The line under an answer, and other small things the entries of the transcript are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

import msgspec
from PySide6.QtCore import QRectF, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent
from PySide6.QtWidgets import QAbstractButton, QFrame, QGridLayout, QPushButton, QToolButton, QWidget

from app import system, words
from app.chats.model import StoredMessage
from app.protocol.events import DrafterFigures, DraftFigures, Figures, KindFigures
from app.protocol.options import DRAFTER_WORDS, TEMPLATE_TITLES
from app.protocol.statistics import has_drafted
from app.ui.actions import Actions
from app.ui.engine.pair_names import thinking_lines
from app.ui.notices import Kind
from app.ui.widgets import icons
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Column, Widths
from app.ui.widgets.controls import CARD_MARGINS, GAP, break_text, column, explain, label, row
from app.words import shortened

HELP = (
    "From left to right: the decode speed (tokens after the first ÷ time from the first to the last), the tokens in "
    "the answer including any thinking, the time from Send to the first token, the acceptance rate (accepted ÷ tested "
    "draft tokens), the mean acceptance length (1 + accepted ÷ verify passes), the number of tool calls and, if the "
    "answer was cut short, the reason."
)
_LONGEST_STOP = 20
_ENDS = {
    "stop_string": "stopped at a stop string",
    "length": "reached the length limit",
    "context": "context full",
    "cancelled": "stopped by you",
    "repeats": "stopped because it kept repeating itself",
}
CUT = ("length", "context", "cancelled")
WHILE_WRITTEN = " while this answer was being written. Everything up to here was saved."
_BEFORE = " before this answer began."


def figures_of(stored: Mapping[str, object]) -> Figures:
    """The figures stored with an answer, without unknown drafters and kinds of text; empty ones if they can't be
    read."""
    figures, draft = dict(stored), stored.get("draft")
    if isinstance(draft, dict) and isinstance(draft.get("drafters"), list):
        figures["draft"] = {**draft, "drafters": _readable(draft["drafters"], DrafterFigures)}
    if isinstance(kinds := stored.get("kinds"), list):
        figures["kinds"] = _readable(kinds, KindFigures)
    try:
        return system.convert(figures, Figures)
    except msgspec.ValidationError:
        return Figures()


def _readable(entries: list[object], kind: type) -> list[object]:
    found: list[object] = []
    for entry in entries:
        with contextlib.suppress(msgspec.ValidationError):
            found.append(system.convert(entry, kind))
    return found


def footer_of(message: StoredMessage) -> str:
    """The footer of a finished answer; figures that were not measured are left out."""
    stored = message.figures
    figures = figures_of(stored)
    parts = []
    if figures.decode_tokens_per_second:
        parts.append(words.speed(figures.decode_tokens_per_second))
    if figures.completion_tokens:
        parts.append(words.tokens(figures.completion_tokens))
    if figures.time_to_first_token_seconds is not None:
        parts.append(f"{words.seconds(figures.time_to_first_token_seconds)} to first token")
    parts += _draft_parts(figures.draft)
    if calls := message.calls:
        parts.append(words.count(len(calls), "tool call").replace(" ", words.NO_BREAK))
    if stored.get("edited") is True:
        parts.append("edited")
    parts.append(_end(message))
    template = message.settings.get("template")
    parts += [f"{title} template" for name, title in TEMPLATE_TITLES.items() if template == name]
    return " · ".join(part for part in parts if part)


def _draft_parts(draft: DraftFigures) -> list[str]:
    """``68% accepted``, ``2.9 tokens per pass``; of a server's figures what they are."""
    if not has_drafted(draft):
        return []
    parts = [words.accepted(draft.acceptance_rate)] if draft.tested and draft.acceptance_rate is not None else []
    if draft.mean_acceptance_length is not None and (parts or draft.source != "engine"):
        parts.append(words.tokens_per_pass(draft.mean_acceptance_length, is_estimated=draft.estimated_passes))
    return [*parts, "drafting figures from the server's counters"] if draft.source == "counters" else parts


def details_of(message: StoredMessage) -> str:
    """One per line: thinking and answer, if there was thinking; what each drafter did, if there was more than one."""
    figures = figures_of(message.figures)
    helped = [one for one in figures.draft.drafters if one.tested]
    drafted = [_drafter_line(one) for one in helped] if len(helped) > 1 else []
    return "\n".join([*thinking_lines(figures), *drafted])


def _drafter_line(figures: DrafterFigures) -> str:
    """``Draft model: 120 of 160 draft tokens accepted (75%) in 40 verify passes``."""
    word = "pass" if figures.verify_passes == 1 else "passes"
    passes = f"{words.number(figures.verify_passes)}{words.NO_BREAK}verify{words.NO_BREAK}{word}"
    tested, rate = words.draft_tokens(figures.tested), words.share(figures.acceptance_rate)
    accepted = f"{words.number(figures.accepted)} of {tested} accepted ({rate})"
    return f"{DRAFTER_WORDS[figures.name].title}: {accepted} in {passes}"


def _end(message: StoredMessage) -> str:
    if message.status in ("interrupted", "failed"):
        return ""
    stop = message.figures.get("stop_string")
    if message.finish_reason == "stop_string" and isinstance(stop, str):
        return f"stopped at “{shortened(stop, _LONGEST_STOP)}”"
    return _ENDS.get(message.finish_reason or "", "")


def thinking_title(message: StoredMessage) -> str:
    """What stands above the thinking of a finished answer."""
    seconds = figures_of(message.figures).thinking_seconds
    took = words.duration(seconds) if seconds else ""
    if (message.status == "complete" and message.finish_reason not in CUT) or message.text.strip():
        return thought_for(seconds)
    return f"Stopped thinking after {took}" if took else "Stopped thinking"


def thought_for(seconds: float) -> str:
    """``Thought for 12 s``; without the time where that isn't known."""
    return f"Thought for {words.duration(seconds)}" if seconds else "Thinking"


def note_of(message: StoredMessage) -> str | None:
    """A sentence under an answer that did not end by itself."""
    failure = message.figures.get("failure")
    if message.status == "interrupted" and not isinstance(failure, str):
        failure = f"Slipstream closed{WHILE_WRITTEN}"
    if isinstance(failure, str):
        has_begun = message.text or message.thinking or message.calls
        return failure if has_begun else failure.replace(WHILE_WRITTEN, _BEFORE)
    if message.status == "failed":
        return "Something went wrong, and there is no answer."
    if message.finish_reason in ("end", "stop_string") and not message.text.strip():
        what = "its tool calls" if message.calls else "thinking" if message.thinking.strip() else ""
        after = f"The model stopped after {what}, without writing an answer."
        return after if what else "The model ended its answer before the first word."
    return None


CONTEXT_TEXT = "The messages above no longer fit in the context"
_COPIED_MILLISECONDS = 1500


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
        for button in self.buttons:
            break_text(button, button.maximumWidth())
        needed = [button.sizeHint().width() + GAP for button in self.buttons]
        count = len(needed)
        while count > 1 and sum(max(needed[place::count]) for place in range(count)) > available:
            count -= 1
        for button in self.buttons:
            break_text(button, available if count == 1 else button.maximumWidth())
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


INDENT = 16
"""Of what is in a folded part, beside the line that marks it."""
_LINE_LEFT = 7
ABOVE_TEXT, BELOW_TEXT = 4, 8


class _FoldButton(QPushButton):
    """Opens and closes the text, and stays where it is on the screen."""

    def __init__(self, column: Column, parent: QWidget) -> None:
        super().__init__(parent, autoDefault=True)  # Enter presses it, too
        self._column = column
        self.setCheckable(True)
        themes.set_role(self, "fold")

    def nextCheckState(self) -> None:  # noqa: N802
        self._column.keep_place(self, super().nextCheckState)


class FoldedPart(QWidget):
    """A part of an answer that is a line until the user opens it with ``button``. ``stop_button`` ends what goes on;
    ``None`` before that was possible for the first time. ``height_changed``: it needs another height."""

    height_changed = Signal()

    def __init__(self, column: Column, parent: QWidget, stops: tuple[str, str, str], actions: Actions | None) -> None:
        """``column``: whose entry it is in. ``stops``: what the button to stop says, its tooltip, and its action.
        Without ``actions`` nobody can stop it here."""
        super().__init__(parent)
        self._column = column
        self._stops = stops
        self._actions = actions
        self._widths = Widths(0, 0)
        self._text_top = 0
        self.button = _FoldButton(column, self)
        self.stop_button: QPushButton | None = None
        self.button.toggled.connect(self._on_toggled)
        themes.follow(self, self._dress)

    @property
    def is_open(self) -> bool:
        return self.button.isChecked()

    def set_open(self, is_open: bool) -> None:
        """Show or hide the text."""
        self.button.setChecked(is_open)

    def _show_content(self, is_open: bool) -> None:
        """Show what is in it, made now if it wasn't there, or hide it."""
        raise NotImplementedError

    @Slot(bool)
    def _on_toggled(self, is_open: bool) -> None:
        self._show_content(is_open)
        self._dress()
        self._tell()
        self.height_changed.emit()

    def _fit_buttons(self, widths: Widths) -> int:
        """Use these widths; gives back where the buttons end."""
        self._widths = widths
        size = self.button.sizeHint()
        width = min(size.width(), widths.prose)
        self.button.setGeometry(0, 0, width, size.height())
        if self.stop_button is None or self.stop_button.isHidden():
            return size.height()
        wanted = self.stop_button.sizeHint()
        fits = width + 8 + wanted.width() <= widths.prose
        top = (size.height() - wanted.height()) // 2 if fits else size.height()
        self.stop_button.setGeometry(width + 8 if fits else 0, top, min(wanted.width(), widths.prose), wanted.height())
        return size.height() if fits else top + wanted.height()

    @Slot()
    def _on_view_height_changed(self) -> None:
        if self.is_open:
            self.height_changed.emit()

    def _show_stop(self, shown: bool) -> None:
        if shown and self.stop_button is None:
            self.stop_button = QPushButton(self._stops[0], self, autoDefault=False)
            themes.set_role(self.stop_button, "link")
            explain(self.stop_button, self._stops[1])
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
            self._actions.run(self._stops[2])

    def _show_title(self, title: str) -> None:
        if title != self.button.text():
            self.button.setText(title)
            self._tell()
            self.height_changed.emit()

    def _tell(self, title: str = "") -> None:
        """Tell screen readers; ``title``: what they say in place of the text."""
        title = title or self.button.text().replace(words.NO_BREAK, " ")
        name = f"{title}, {'open' if self.is_open else 'closed'}"
        if name != self.button.accessibleName():
            self.button.setAccessibleName(name)

    def _dress(self) -> None:
        self.button.setIcon(icons.themed("chevron-down" if self.is_open else "chevron-right", themes.current()))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """The line beside what is open."""
        if self.is_open and self._text_top:
            line = QRectF(_LINE_LEFT, self._text_top, 2, self.height() - BELOW_TEXT - self._text_top)
            QPainter(self).fillRect(line, themes.current().line)


def version_switch(version: int, versions: int, step: Callable[[int], object]) -> QWidget:
    """‹ 1/2 ›: which version of a message this is, from 1. ``step`` gets -1 or 1 for the earlier or the later one."""
    result = QWidget()
    back, on = icon_button("left", "", "Earlier version"), icon_button("right", "", "Later version")
    number = label(f"{version}/{versions}", role="quiet", scale=0.9, figures=True)
    number.setAccessibleName(f"Version {version} of {versions}")
    row(back, number, on, gap=0, on=result)
    back.setEnabled(version > 1)
    on.setEnabled(version < versions)
    back.clicked.connect(lambda: step(-1))
    on.clicked.connect(lambda: step(1))
    return result


def action_button(icon: str, actions: Actions, name: str, *values: object) -> QToolButton:
    """A quiet button for an action of the table; without ``values`` it does nothing by itself."""
    button = icon_button(icon, actions.text(name), actions.description(name))
    if values:
        button.clicked.connect(lambda _checked: actions.run(name, *values))
    return button


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
