"""Models → Recommended: pairs that fit each other, the best one for this machine first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtWidgets import QFrame, QWidget

from app.models.hub.catalog import CatalogPair
from app.models.text import size_text
from app.ui.models.fit_badge import FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import clear_layout, label, scrolling, show_text, small_button
from app.ui.widgets.layouts import CARD_MARGINS, LEFT, PAGE_MARGINS, column, row
from app.ui.widgets.theme import SPACING


@dataclass(frozen=True)
class Recommendation:
    """One pair of the catalog as the tab shows it."""

    pair: CatalogPair
    fit: FitBadge
    state: str = ""
    """``In your library`` or ``In Downloads``, on its button; empty if neither."""


class RecommendedTab(QWidget):
    """Shows the pairs.

    Attributes:
        search: The button for whoever looks for something else.
    """

    def __init__(self, get: Callable[[CatalogPair], object], show_details: Callable[[CatalogPair], object]) -> None:
        """``get`` downloads a pair, ``show_details`` shows its repository."""
        super().__init__()
        self._get, self._show_details = get, show_details
        self._machine = label(role="quiet", wraps=True)
        self._status = label(role="quiet", wraps=True)
        self._cards = column(gap=3 * SPACING)
        self.search = small_button("Search for another model")
        inside = QWidget()
        column(
            self._machine,
            self._status,
            self._cards,
            (self.search, LEFT),
            None,
            gap=3 * SPACING,
            margins=PAGE_MARGINS,
            on=inside,
        )
        column(scrolling(inside), on=self)
        self.show_status("")

    def show_status(self, text: str, role: str = "quiet") -> None:
        """The progress of a download request, or why it failed."""
        show_text(self._status, text, role)

    def show_pairs(self, machine: str, best: Recommendation | None, others: Sequence[Recommendation]) -> None:
        """``best`` is the one suggested for this machine; ``machine`` describes its memory in one line."""
        self._machine.setText(machine)
        clear_layout(self._cards)
        if best is not None:
            self._cards.addWidget(label("Best for this computer", "heading"))
            self._cards.addWidget(self._card(best, is_best=True))
        else:
            text = (
                "None of the recommended pairs fits in this computer's memory. The Slipstream Guide works everywhere."
            )
            self._cards.addWidget(label(text, wraps=True))
        if others:
            self._cards.addWidget(label("Other pairs", "heading"))
        for one in others:
            self._cards.addWidget(self._card(one, is_best=False))

    def _card(self, one: Recommendation, *, is_best: bool) -> QFrame:
        pair, card = one.pair, QFrame()
        theme.set_role(card, "card")
        get = small_button(one.state or f"Get with draft ({size_text(pair.size)})")
        get.setEnabled(not one.state)
        get.setAccessibleName(f"{get.text()}: {pair.title}")
        if is_best and not one.state:
            theme.set_role(get, "primary")
        get.clicked.connect(lambda: self._get(pair))
        details = small_button("Other files…")
        details.setToolTip("Shows the repository with all its quantizations")
        details.setAccessibleName(f"Other files of {pair.title}")
        details.clicked.connect(lambda: self._show_details(pair))
        licenses = ", ".join(dict.fromkeys((pair.target.license, pair.draft.license)))
        fit = label(one.fit.text, one.fit.mood)
        fit.setToolTip(one.fit.detail)
        column(
            row((label(pair.title, "heading", wraps=True), 1), fit),
            label(pair.why, wraps=True),
            row((label(f"License: {licenses}", "quiet", wraps=True), 1), details, get),
            margins=CARD_MARGINS,
            on=card,
        )
        return card
