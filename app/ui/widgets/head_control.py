"""The choice whether to use the MTP head inside a model, in the Speed panel and in the Open models dialog."""

from __future__ import annotations

from PySide6.QtCore import Signal, Slot
from PySide6.QtWidgets import QWidget

from app.ui.widgets.controls import Choice, explain, label, show_text
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

HELP = (
    "This model's file contains an MTP head: a part that predicts further tokens, and drafts without a second model. "
    "Automatic uses it where it is expected to save time. It never changes the answers. A change loads the model again "
    "and is remembered for this model."
)
_CHOICES = {"auto": "Automatic", "on": "On", "off": "Off"}
"""Those of `app.protocol.limits.HeadChoice`."""


class HeadControl(QWidget):
    """A list to choose from, and below it why the head isn't used, and what it brought."""

    choice_changed = Signal(str)
    """Carries a `HeadChoice`; only for choices of the user."""

    def __init__(self) -> None:
        super().__init__()
        self._box = Choice("MTP head")
        self._box.offer(list(_CHOICES.items()))
        self._reason = label(role="quiet", wraps=True)
        line = row(label("MTP head", "heading"), (self._box, 1), gap=3 * SPACING)
        self._measured = label(role="quiet", wraps=True, figures=True)
        column(line, self._reason, self._measured, gap=SPACING, on=self)
        for widget in (self, self._box):
            explain(widget, HELP)
        self._box.activated.connect(self._on_activated)
        self.show_choice("auto", "")

    def choice(self) -> str:
        """A `HeadChoice`."""
        return str(self._box.currentData())

    def show_choice(self, choice: str, reason: str, measured: str = "") -> None:
        """``reason``: why the head isn't used, a sentence; empty if it is. ``measured``: what a trial says of it."""
        self._box.setCurrentIndex(self._box.findData(choice))
        self._box.setAccessibleDescription(" ".join(text for text in (reason, measured) if text))
        show_text(self._measured, measured)
        show_text(self._reason, f"Not in use. {reason}" if reason else "")

    @Slot(int)
    def _on_activated(self, index: int) -> None:
        self.choice_changed.emit(self._box.itemData(index))
