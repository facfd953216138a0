"""What stands between the messages: the line where the context begins, and the page of an empty chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QPushButton, QWidget

from app.ui.chat.parts import ChatCommands, height_of
from app.ui.notices import Kind
from app.ui.widgets import theme as themes
from app.ui.widgets.column import Widths
from app.ui.widgets.controls import label
from app.ui.widgets.layouts import CARD_MARGINS, GAP, column, row

EXAMPLES = ("What is speculative decoding?", "Write a JSON settings file", "Tell me a short story")
GUIDE_TEXT = "You are talking to a small guide that knows this app."
CONTEXT_TEXT = "Older messages above no longer fit into the context"


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
        self._row = row(*self.buttons, None)
        self._column = column(self.text, self._row, margins=CARD_MARGINS, on=self)

    def fit(self, widths: Widths) -> int:
        """Buttons that have no room beside each other go below each other."""
        margins = self.contentsMargins() + self._column.contentsMargins()
        available = widths.prose - margins.left() - margins.right()
        needed = sum(button.sizeHint().width() + self._row.spacing() for button in self.buttons)
        fits = needed <= available
        self._row.setDirection(QBoxLayout.Direction.LeftToRight if fits else QBoxLayout.Direction.TopToBottom)
        return height_of(self, widths.prose)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        theme = themes.current()
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush({"info": theme.accent, "warning": theme.warning, "bad": theme.bad}[self._role])
        painter.drawRoundedRect(1, 12, 3, self.height() - 24, 1.5, 1.5)


class ContextLine(QWidget):
    """Where the context of the model begins."""

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

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        middle = self.height() // 2
        gap = self._label.geometry().adjusted(-12, 0, 12, 0)
        line = themes.current().line
        painter.fillRect(0, middle, max(0, gap.left()), 1, line)
        painter.fillRect(gap.right(), middle, max(0, self._prose - gap.right()), 1, line)


class Welcome(QWidget):
    """An empty chat: what one could ask, and on the first start what one is talking to."""

    def __init__(self, commands: ChatCommands, guide: bool, proposal: str = "") -> None:
        """``guide``: say that the model is the bundled guide; ``proposal`` is a pair to get instead of it."""
        super().__init__()
        self._commands = commands
        title = label("Ask anything", "heading", wraps=True, scale=1.5)
        hint = label("Three questions, from easy to hard for a draft model:", "quiet", wraps=True)
        for text in (title, hint):
            text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.examples = [named_button(text, partial(self._ask, text)) for text in EXAMPLES]
        for button in self.examples:
            button.setMinimumWidth(260)
        centered = [(button, Qt.AlignmentFlag.AlignHCenter) for button in self.examples]
        self.card = self._make_card(proposal) if guide else None
        layout = column(None, title, hint, GAP, *centered, None, on=self)
        if self.card is not None:
            layout.addWidget(self.card)

    def _make_card(self, proposal: str) -> Card:
        actions = [("Open models…", self._open_models), ("Keep the guide", self._hide_card)]
        if not proposal:
            return Card(f"{GUIDE_TEXT} For real chats, open a model.", actions, role="info")
        text = f"{GUIDE_TEXT} For real chats, get a model that fits this computer: {proposal}."
        card = Card(text, [("Get it with draft", self._get_proposed), *actions], role="info")
        themes.set_role(card.buttons[0], "primary")
        return card

    def _ask(self, example: str) -> None:
        self._commands.ask(example)

    def _open_models(self) -> None:
        self._commands.open_models()

    def _get_proposed(self) -> None:
        self._commands.get_proposed()

    def _hide_card(self) -> None:
        if self.card is not None:
            self.card.hide()
        self._commands.hide_guide_card()

    def fit(self, widths: Widths) -> int:
        parent = self.parentWidget()
        available = parent.height() - 64 if parent is not None else 0
        self.setMaximumWidth(widths.prose)
        if self.card is not None:
            self.card.fit(widths)
        return max(height_of(self, widths.prose), available)

    def is_in_use(self) -> bool:
        return False
