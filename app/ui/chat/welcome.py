"""What stands in a chat without messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.models.starter import is_starter, starter_file
from app.settings import Pair, Settings
from app.ui.actions import Actions
from app.ui.chat.parts import Card, height_of, named_button
from app.ui.engine.pair_files import PairFiles, is_guide
from app.ui.widgets import theme as themes
from app.ui.widgets.controls import label, plain_tooltip
from app.ui.widgets.entries import Widths
from app.ui.widgets.layouts import GAP, column

EXAMPLES = ("What is speculative decoding?", "Write a JSON settings file", "Tell me a short story")
STARTER_EXAMPLES = {
    "Rewrite a sentence": 'Rewrite this sentence without mistakes: "She dont like the coffe becuase it are to hot."',
    "Find facts in a text": (
        "Find the name, the city and the year in the last text.\n\n"
        "Text: Ben Miller moved to Berlin in 2015.\nFacts: Ben Miller, Berlin, 2015\n\n"
        "Text: Maria Lopez opened a small bakery in Lisbon in 2021. It sells bread and cakes.\nFacts:"
    ),
    "Continue a story": (
        "Tom found an old map in the attic. It showed the way to a cave in the hills. He took a lamp and went into the "
        "cave.\n\nContinue the story with one sentence."
    ),
}
"""What the buttons say while the starter model is loaded, and what is sent; tried 20 times each (docs/models.md)."""
_TEXTS = {
    "guide": (
        "This is the Slipstream Guide, a tiny built-in model that only answers questions about the app. "
        "For everything else,"
    ),
    "starter model": "This is the starter model. It is small and quick, but often wrong. For better answers,",
}


@dataclass(frozen=True)
class Introduction:
    """What an empty chat says of a model that came with the app; of others nothing."""

    model: Literal["", "guide", "starter model"] = ""
    has_card: bool = False
    offers_starter: bool = False
    proposal: str = ""


def introduction(settings: Settings, files: Pair | PairFiles | None) -> Introduction:
    """What an empty chat says of this pair, until the user wants to keep it; ``None``: the bundled one."""
    if files is None or (not files.server and is_guide(files.target)):
        offers_starter = not settings.starter_hidden and starter_file() is not None
        return Introduction("guide", not settings.guide_introduced, offers_starter)
    if not files.server and is_starter(files.target):
        return Introduction("starter model", not settings.starter_introduced)
    return Introduction()


class Welcome(QWidget):
    """The page of an empty chat: examples and, for a model that came with the app, an introduction."""

    def __init__(self, actions: Actions, introduction: Introduction) -> None:
        super().__init__()
        self._actions = actions
        title = label("Ask anything", "heading", wraps=True, scale=1.5)
        hint = label("Try one of these:", "quiet", wraps=True)
        for text in (title, hint):
            text.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        asked = STARTER_EXAMPLES if introduction.model == "starter model" else {text: text for text in EXAMPLES}
        self.examples = [named_button(name, partial(actions.run, "ask", text)) for name, text in asked.items()]
        for button, sent in zip(self.examples, asked.values(), strict=True):
            button.setMinimumWidth(260)
            button.setToolTip(plain_tooltip(sent) if sent != button.text() else "")
        centered = [(button, Qt.AlignmentFlag.AlignHCenter) for button in self.examples]
        self.card = self._make_card(introduction) if introduction.has_card else None
        layout = column(None, title, hint, GAP, *centered, None, on=self)
        if self.card is not None:
            layout.addWidget(self.card)

    def _make_card(self, said: Introduction) -> Card:
        text = _TEXTS[said.model]
        text += f" get a model that runs well on this computer: {said.proposal}." if said.proposal else " open a model."
        names = ["get_proposed"] if said.proposal else []
        if said.offers_starter:
            text += " Or start right away with the starter model, which is small and quick, but often wrong."
            names.append("load_starter")
        buttons = [(self._actions.text(name), partial(self._actions.run, name)) for name in [*names, "choose_models"]]
        card = Card(text, [*buttons, (f"Keep the {said.model}", self._hide_card)], role="info")
        if said.proposal:
            themes.set_role(card.buttons[0], "primary")
        return card

    def _hide_card(self) -> None:
        if self.card is not None:
            self.card.hide()
        self._actions.run("hide_introduction")

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
