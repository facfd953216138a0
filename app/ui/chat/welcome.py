"""What stands in a chat without messages."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.ui.chat.parts import Card, ChatCommands, height_of, named_button
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label
from app.ui.widgets.entries import Widths
from app.ui.widgets.layouts import GAP, column

EXAMPLES = ("What is speculative decoding?", "Write a JSON settings file", "Tell me a short story")
GUIDE_TEXT = (
    "This is the Slipstream Guide, a tiny built-in model that only answers questions about the app. "
    "For everything else,"
)


class Welcome(QWidget):
    """The page of an empty chat: example questions and, on the first start, an introduction of the guide."""

    def __init__(self, commands: ChatCommands, guide: bool, proposal: str = "") -> None:
        """``guide``: say that the model is the bundled guide; ``proposal`` is a model to get instead of it."""
        super().__init__()
        self._commands = commands
        title = label("Ask anything", "heading", wraps=True, scale=1.5)
        hint = label("Try one of these:", "quiet", wraps=True)
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
            return Card(f"{GUIDE_TEXT} open a model.", actions, role="info")
        text = f"{GUIDE_TEXT} get a model that runs well on this computer: {proposal}."
        card = Card(text, [("Get this model", self._get_proposed), *actions], role="info")
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

    def is_drawn(self) -> bool:
        return True
