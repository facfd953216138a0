"""Models → Recommended: pairs that fit each other, the best one for this machine first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.models.text import size_text
from app.ui.models.fit_badge import FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import clear_layout, label, scrolling, small_button
from app.ui.widgets.theme import SPACING


@dataclass(frozen=True)
class Recommendation:
    """One pair of the catalogue as the tab shows it."""

    key: str
    title: str
    """``Qwen3 8B + draft 0.6B``."""
    why: str
    """One or two sentences."""
    size: int
    """Bytes to download, both models."""
    licence: str
    fit: FitBadge
    state: str = ""
    """``in the library`` or ``downloading``; empty where neither."""


class RecommendedTab(QWidget):
    """Shows the pairs.

    Signals:
        get_requested: The key of the pair to download.
        details_requested: Show the repository of this pair.
        search_requested: The user looks for something else.
    """

    get_requested = Signal(str)
    details_requested = Signal(str)
    search_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._machine = label(role="quiet", wraps=True)
        self._status = label(role="quiet", wraps=True)
        self._cards = QVBoxLayout()
        self._cards.setSpacing(3 * SPACING)
        search = small_button("Search for another model")
        search.clicked.connect(self.search_requested)
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(5 * SPACING, 4 * SPACING, 5 * SPACING, 5 * SPACING)
        column.setSpacing(3 * SPACING)
        column.addWidget(self._machine)
        column.addWidget(self._status)
        column.addLayout(self._cards)
        column.addWidget(search, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        area = scrolling(inside)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)
        self.show_status("")

    def show_machine(self, text: str) -> None:
        """What the proposals go by: ``NVIDIA RTX 4060, 7.6 of 8.6 GB free · 16 GB of memory, 11 GB free``."""
        self._machine.setText(text)

    def show_status(self, text: str, role: str = "quiet") -> None:
        """How getting a pair goes, or why it failed."""
        self._status.setText(text)
        theme.set_role(self._status, role)
        self._status.setVisible(bool(text))

    def show_pairs(self, best: Recommendation | None, others: Sequence[Recommendation]) -> None:
        """``best`` is the one proposed for this machine."""
        clear_layout(self._cards)
        if best is not None:
            self._cards.addWidget(label("Best for this computer", "heading"))
            self._cards.addWidget(self._card(best, is_best=True))
        else:
            text = "No pair of the catalogue fits the memory of this computer. The Slipstream Guide works everywhere."
            self._cards.addWidget(label(text, wraps=True))
        if others:
            self._cards.addWidget(label("Other pairs", "heading"))
        for one in others:
            self._cards.addWidget(self._card(one, is_best=False))

    def _card(self, one: Recommendation, *, is_best: bool) -> QFrame:
        card = QFrame()
        theme.set_role(card, "card")
        get = small_button(one.state.capitalize() or f"Get with draft ({size_text(one.size)})")
        get.setEnabled(not one.state)
        get.setAccessibleName(f"{get.text()}: {one.title}")
        if is_best and not one.state:
            theme.set_role(get, "primary")
        get.clicked.connect(lambda: self.get_requested.emit(one.key))
        details = small_button("Other files…")
        details.setToolTip("Shows the repository with all its quantizations")
        details.setAccessibleName(f"Other files of {one.title}")
        details.clicked.connect(lambda: self.details_requested.emit(one.key))
        fit = label(one.fit.text, one.fit.mood)
        fit.setToolTip(one.fit.detail)
        head = QHBoxLayout()
        head.setSpacing(2 * SPACING)
        head.addWidget(label(one.title, "heading", wraps=True), 1)
        head.addWidget(fit)
        foot = QHBoxLayout()
        foot.setSpacing(2 * SPACING)
        foot.addWidget(label(f"Licence: {one.licence}", "quiet", wraps=True), 1)
        foot.addWidget(details)
        foot.addWidget(get)
        column = QVBoxLayout(card)
        column.setContentsMargins(4 * SPACING, 3 * SPACING, 4 * SPACING, 3 * SPACING)
        column.setSpacing(2 * SPACING)
        column.addLayout(head)
        column.addWidget(label(one.why, wraps=True))
        column.addLayout(foot)
        return card
