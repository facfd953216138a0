"""Models → Recommended: models with what accelerates them, the best one for this machine first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from PySide6.QtWidgets import QAbstractButton, QCheckBox, QFrame, QWidget

from app.models.hub.catalog import DraftModel, Inside, Offer, Sidecar
from app.models.mtp import can_compute
from app.models.text import size_text
from app.ui.models.fit_badge import FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import clear_layout, explain, label, scrolling, show_text, small_button
from app.ui.widgets.layouts import CARD_MARGINS, LEFT, PAGE_MARGINS, column, row
from app.ui.widgets.theme import SPACING

Whereabouts = Literal["hub", "downloads", "library", "incomplete"]
"""Where a recommended model is; ``incomplete``: in the library, but without the head or draft that comes with it."""


@dataclass(frozen=True)
class Recommendation:
    """One model of the catalog as the tab shows it."""

    offer: Offer
    fit: FitBadge
    whereabouts: Whereabouts = "hub"


class RecommendedTab(QWidget):
    """Shows the models.

    Attributes:
        search: The button for whoever looks for something else.
    """

    def __init__(self, get: Callable[[Offer, bool], object], show_details: Callable[[Offer], object]) -> None:
        """``get`` downloads a model, with its projector or without; ``show_details`` shows its repository."""
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
        self._area = scrolling(inside)
        column(self._area, on=self)
        self._buttons: dict[str, QAbstractButton] = {}
        """Those of the cards, by accessible name."""
        self.show_status("")

    def show_status(self, text: str, role: str = "quiet") -> None:
        """The progress of a download request, or why it failed."""
        show_text(self._status, text, role)

    def show_models(self, machine: str, best: Recommendation | None, others: Sequence[Recommendation]) -> None:
        """``best`` is the one suggested for this machine; ``machine`` describes its memory in one line."""
        self._machine.setText(machine)
        focused = self._area.focusWidget()
        name = focused.accessibleName() if focused is not None and focused.hasFocus() else ""
        clear_layout(self._cards)
        self._buttons.clear()
        if best is not None:
            self._cards.addWidget(label("Best for this computer", "heading"))
            self._cards.addWidget(self._card(best, is_best=True))
        else:
            text = (
                "None of the recommended models fits in this computer's memory. The Slipstream Guide works everywhere."
            )
            self._cards.addWidget(label(text, wraps=True))
        if others:
            self._cards.addWidget(label("Other models", "heading"))
        for one in others:
            self._cards.addWidget(self._card(one, is_best=False))
        if (button := self._buttons.get(name)) is not None:
            self._cards.activate()  # shows the cards: what isn't visible can't have the focus
            button.setFocus()

    def _card(self, one: Recommendation, *, is_best: bool) -> QFrame:
        model, card = one.offer.model, QFrame()
        theme.set_role(card, "card")
        get = small_button(_get_text(one))
        get.setEnabled(one.whereabouts in ("hub", "incomplete"))
        get.setAccessibleName(f"{get.text()}: {model.title}")
        if is_best and get.isEnabled():
            theme.set_role(get, "primary")
        images = QCheckBox(images_text(one.offer))
        explain(images, "Also downloads its projector (mmproj), the second file that it needs to see images.")
        images.setAccessibleName(f"{images.text()}: {model.title}")
        if model.mmproj is None or not get.isEnabled():
            images.hide()  # to show it, without a parent, would open a window; so would the next one
        get.clicked.connect(lambda: self._get(one.offer, images.isChecked()))
        details = small_button("Other files…")
        details.setToolTip("Shows the repository with all its quantizations")
        details.setAccessibleName(f"Other files of {model.title}")
        details.clicked.connect(lambda: self._show_details(one.offer))
        self._buttons |= {button.accessibleName(): button for button in (get, images, details)}
        fit = label(one.fit.text, one.fit.mood)
        fit.setToolTip(one.fit.detail)
        measured = label(measured_text(one.offer), "quiet", wraps=True)
        if not measured.text():
            measured.hide()
        column(
            row((label(model.title, "heading", wraps=True), 1), fit),
            label(model.why, wraps=True),
            label(drafting_text(one), wraps=True),
            measured,
            label(needs_text(one.offer), "quiet", wraps=True),
            (images, LEFT),
            row((label(license_text(one.offer), "quiet", wraps=True), 1), details, get),
            margins=CARD_MARGINS,
            on=card,
        )
        return card


def _get_text(one: Recommendation) -> str:
    """On its button."""
    match one.whereabouts, one.offer.accelerator:
        case "library", _:
            return "In your library"
        case "downloads", _:
            return "In Downloads"
        case "incomplete", Sidecar() as head:
            return f"Get its MTP head ({size_text(head.size)})"
        case "incomplete", DraftModel() as draft:
            return f"Get its draft ({size_text(draft.size)})"
        case _:
            return f"Get ({size_text(one.offer.size)})"


def drafting_text(one: Recommendation) -> str:
    """What drafts for a model here, and what is left out or missing."""
    accelerator, listed = one.offer.accelerator, one.offer.file.accelerator
    if one.whereabouts == "incomplete":
        missing = accelerator.title if isinstance(accelerator, DraftModel) else "its MTP head"
        return f"The model is in your library, but {missing}, which drafts for it, isn't."
    match accelerator:
        case Inside():
            return "Its MTP head drafts: it is inside the file."
        case Sidecar():
            return f"Its MTP head drafts: a file of {size_text(accelerator.size)} that comes with it."
        case DraftModel():
            return f"{accelerator.title} drafts for it: a model of {size_text(accelerator.size)} that comes with it."
        case _:
            ngrams = "Text that comes up again is drafted from the chat itself (n-grams)."
            if not isinstance(listed, Inside | Sidecar):
                return ngrams
            if can_compute(listed.architecture):
                return f"Its MTP head stays off on a Mac, where others measured that it costs time. {ngrams}"
            return f"Answers without its MTP head in this version. {ngrams}"


def measured_text(offer: Offer) -> str:
    """What others measured; empty if nothing is known."""
    if not offer.model.measured:
        return ""
    return "\n".join(
        ["Measured by others, not by us:"]
        + [f"• {one.hardware}: {one.result} ({one.source})" for one in offer.model.measured]
    )


def needs_text(offer: Offer) -> str:
    """``Needs about 7.2 GB with 8,192 tokens of context · Q4_K_M``."""
    return (
        f"Needs about {size_text(offer.needed)} with {offer.file.context:,} tokens of context · "
        f"{offer.file.quantization}"
    )


def images_text(offer: Offer) -> str:
    """On the box that adds its projector: ``With images: another 986 MB to download``."""
    projector = offer.model.mmproj
    size = projector.size if projector is not None else None
    return f"With images: another {size_text(size)} to download" if size else "With images: another file to download"


def license_text(offer: Offer) -> str:
    """Of the model and its draft, with what one should know about it."""
    licenses = [offer.model.license]
    if isinstance(offer.accelerator, DraftModel):
        licenses.append(offer.accelerator.license)
    note = f" · {offer.model.license_note}" if offer.model.license_note else ""
    return f"License: {', '.join(dict.fromkeys(licenses))}{note}"
