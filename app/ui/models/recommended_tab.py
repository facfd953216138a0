"""Models → Recommended: models and their accelerators, the best for this machine first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QAbstractButton, QCheckBox, QFrame, QWidget

from app import words
from app.models.downloads.item import Item, ItemState
from app.models.gguf import read_header
from app.models.heads import can_compute, head_title
from app.models.hub import drafts
from app.models.hub.api import Hub, HubConnection, network_settings, read_remote_header
from app.models.hub.catalog import DraftModel, Inside, Offer, Sidecar, load_catalog
from app.models.hub.catalog_items import places, resolve
from app.models.hub.drafts import DraftCandidate
from app.models.hub.network import TokenPlace
from app.models.hub.repository import RemoteModel
from app.models.machine_memory import MachineMemory
from app.settings import Settings
from app.system import Canceled, KnownError
from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.fit import FitBadge, badge_for_size
from app.ui.models.library_service import LibraryService
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    CARD_MARGINS,
    LEFT,
    PAGE_MARGINS,
    clear_layout,
    column,
    explain,
    label,
    named,
    row,
    scrolling,
    show_text,
    small_button,
)
from app.ui.widgets.tasks import Failed, Lane
from app.ui.widgets.theme import SPACING
from app.words import printable

T = TypeVar("T")


class HubService(QObject):
    """Hugging Face outside the window's thread; one for the app. ``network`` is shared with the downloads."""

    def __init__(self, values: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._values = values
        self._connection = HubConnection(network_settings(values))
        self.network = self._connection.network
        self._lane = Lane(self, "hub", at_once=4)
        self._found: Future[int] | None = None
        self._finding = threading.Event()
        """Set to stop the running draft search; each search has its own event."""

    def apply_settings(self) -> None:
        """The settings of the network have changed."""
        self.network.settings = network_settings(self._values)

    def endpoint_problem(self) -> str:
        """Why the address in the settings can't be used; empty if it can."""
        try:
            _ = self.network.endpoint
        except KnownError as error:
            return str(error)
        return ""

    def is_closed(self) -> bool:
        """Tells questions to stop early; may be called from any thread."""
        return self._lane.is_closed()

    def ask(self, question: Callable[[Hub], T], done: Callable[[T], None], failed: Failed) -> Future[T]:
        """Run ``question`` in another thread, then ``done`` or ``failed`` in the window's."""
        return self._lane.submit(lambda: question(self._connection.hub), done, failed)

    def drop(self, question: Future[Any] | None) -> None:
        """Drop a question; nothing is called any more."""
        self._lane.drop(question)

    def find_drafts(
        self,
        model: Path | RemoteModel,
        bases: Sequence[str],
        found: Callable[[DraftCandidate], None],
        done: Callable[[int], None],
        failed: Failed,
    ) -> None:
        """Find drafts for a model on this computer, or for a remote one based on ``bases``.

        ``found`` gets each draft, ``done`` their number. A stopped search calls neither.
        """
        self.stop_finding()
        stop = self._finding = threading.Event()

        def tell(candidate: DraftCandidate) -> None:
            if not stop.is_set():
                found(candidate)

        def find(hub: Hub) -> int:
            if isinstance(model, Path):
                header = read_header(model)
            else:
                header = read_remote_header(self.network, model, self._lane.is_closed)
            number = 0
            for candidate in drafts.find_drafts(hub, header, bases, stop.is_set):
                if stop.is_set():
                    raise Canceled
                self._lane.post(partial(tell, candidate))
                number += 1
            return number

        self._found = self.ask(find, done, failed)

    def stop_finding(self) -> None:
        """Stop the search for drafts."""
        self._finding.set()
        self._lane.drop(self._found)

    # ------------------------------------------------------------ the token

    def token_place(self, done: Callable[[TokenPlace], None]) -> None:
        """Where the access token is stored."""
        self._lane.submit(lambda: self._connection.tokens.place(self._connection.host), done)

    def set_token(self, token: str | None, done: Callable[[TokenPlace], None], failed: Failed) -> None:
        """Store this access token, or delete it."""

        def change() -> TokenPlace:
            tokens, host = self._connection.tokens, self._connection.host
            if token is None:
                tokens.delete(host)
            else:
                tokens.set(host, token)
            return tokens.place(host)

        self._lane.submit(change, done, failed)

    def close(self) -> None:
        """Drop all questions, and close all connections."""
        self._finding.set()
        self._lane.close()
        self.network.close()


Whereabouts = Literal["hub", "downloads", "library", "incomplete"]
"""State of a recommended model; ``incomplete``: in the library, but without its head or draft."""


class RecommendedTab(QWidget):
    """A card for each model. Signals ``search_requested``: the user wants another model; ``details_requested``: show
    the files of this repository.
    """

    search_requested = Signal()
    details_requested = Signal(str)

    def __init__(self, hub: HubService, library: LibraryService, downloads: DownloadsTab) -> None:
        super().__init__()
        self._hub, self._library, self._downloads = hub, library, downloads
        self._catalog = load_catalog()
        self._machine = label(role="quiet", wraps=True)
        self._status = label(role="quiet", wraps=True)
        self._cards = column(gap=3 * SPACING)
        inside = QWidget()
        column(
            self._machine,
            self._status,
            self._cards,
            (small_button("Search for another model", self.search_requested.emit), LEFT),
            None,
            gap=3 * SPACING,
            margins=PAGE_MARGINS,
            on=inside,
        )
        self._area = scrolling(inside)
        column(self._area, on=self)
        self._buttons: dict[str, QAbstractButton] = {}
        """The cards' buttons, by accessible name."""
        self._show_status("")

    # ------------------------------------------------------------ downloading

    def get(self, offer: Offer, with_images: bool = False) -> None:
        """Look a model up and download it, optionally with its projector for images."""
        self._show_status(f"Looking up the files of {offer.model.title}…")
        self._hub.ask(
            partial(resolve, offer=offer, with_images=with_images),
            partial(self._on_resolved, offer),
            lambda error: self._show_status(str(error), "bad"),
        )

    def _on_resolved(self, offer: Offer, item: Item) -> None:
        if self.whereabouts(offer) == "incomplete" and not item.head and not item.draft:
            text = f"{offer.file.repository} no longer offers the head of {offer.model.title}."
            self._show_status(text, "bad")
            return
        self._show_status("")
        self._downloads.add(item)

    def whereabouts(self, offer: Offer) -> Whereabouts:
        entries = [entry for entry in self._library.entries() if entry.usable or (entry.is_head and entry.available)]
        there = [(entry.origin.repository, entry.origin.path) for entry in entries if entry.origin is not None]
        coming = [
            (file.repository, file.path)
            for one in self._downloads.progress()
            if one.state is not ItemState.DONE
            for file in one.item.files
        ]
        model = [(place.repository, place.file) for place in places(offer, metal=True)]
        match offer.accelerator:
            case DraftModel(repository=repository, file=file):
                wanted = [model, [(repository, file)]]
            case Sidecar(repository=elsewhere, file=file):
                wanted = [model, [(elsewhere or repository, file) for repository, _ in model]]
            case _:
                wanted = [model]
        missing = [one for one in wanted if not _is_among(one, there)]
        if not missing:
            return "library"
        if _is_among(missing[0], coming):  # the model, if it is missing too: a draft may come for another one
            return "downloads"
        return "hub" if model in missing else "incomplete"

    # ------------------------------------------------------------ display

    def _show_status(self, text: str, role: str = "quiet") -> None:
        """The progress of a download request, or why it failed."""
        show_text(self._status, text, role)

    @Slot()
    def refresh(self) -> None:
        """Show the models for the current memory: the suggested one, then those that fit, then the others."""
        machine = self._library.machine()
        best = self._catalog.propose(machine)
        others = [one for one in self._catalog.offers(machine) if best is None or one.model is not best.model]
        others.sort(key=lambda one: badge_for_size(one.needed, machine).mood == "bad")
        self._machine.setText(machine_text(machine))
        focused = self._area.focusWidget()
        name = focused.accessibleName() if focused is not None and focused.hasFocus() else ""
        clear_layout(self._cards)
        self._buttons.clear()
        if best is not None:
            self._cards.addWidget(label("Best for this computer", "heading"))
            self._cards.addWidget(self._card(best, badge_for_size(best.needed, machine), is_best=True))
        else:
            text = (
                "None of the recommended models fits in this computer's memory. The Slipstream Guide works everywhere."
            )
            self._cards.addWidget(label(text, wraps=True))
        if others:
            self._cards.addWidget(label("Other models", "heading"))
        for one in others:
            self._cards.addWidget(self._card(one, badge_for_size(one.needed, machine)))
        if (button := self._buttons.get(name)) is not None:
            self._cards.activate()  # shows the cards, because hidden widgets can't have the focus
            button.setFocus()

    def _card(self, offer: Offer, badge: FitBadge, *, is_best: bool = False) -> QFrame:
        model, where, card = offer.model, self.whereabouts(offer), QFrame()
        theme.set_role(card, "card")
        get = small_button(text := _get_text(offer, where), name=f"{text}: {model.title}")
        get.setEnabled(where in ("hub", "incomplete"))
        if is_best and get.isEnabled():
            theme.set_role(get, "primary")
        images = named(QCheckBox(text := images_text(offer)), f"{text}: {model.title}")
        explain(images, "Also downloads its projector (mmproj), the second file that it needs to see images.")
        if model.mmproj is None or not get.isEnabled():
            images.hide()  # showing it without a parent would open a window; likewise below
        get.clicked.connect(lambda: self.get(offer, images.isChecked()))
        details = small_button(
            "Other files…",
            lambda: self.details_requested.emit(offer.file.repository),
            name=f"Other files of {model.title}",
            tooltip="Shows the repository with all its quantizations",
        )
        self._buttons |= {button.accessibleName(): button for button in (get, images, details)}
        fit = label(badge.text, badge.mood)
        fit.setToolTip(badge.detail)
        measured = label(measured_text(offer), "quiet", wraps=True)
        if not measured.text():
            measured.hide()
        column(
            row((label(model.title, "heading", wraps=True), 1), fit),
            label(model.why, wraps=True),
            label(drafting_text(offer, where), wraps=True),
            measured,
            label(needs_text(offer), "quiet", wraps=True),
            (images, LEFT),
            row((label(license_text(offer), "quiet", wraps=True), 1), details, get),
            margins=CARD_MARGINS,
            on=card,
        )
        return card


def _get_text(offer: Offer, where: Whereabouts) -> str:
    """The text of its button."""
    match where, offer.accelerator:
        case "library", _:
            return "In your library"
        case "downloads", _:
            return "In Downloads"
        case "incomplete", Sidecar() as head:
            return f"Get its {_title(head)} ({words.size(head.size)})"
        case "incomplete", DraftModel() as draft:
            return f"Get its draft ({words.size(draft.size)})"
        case _:
            return f"Get ({words.size(offer.size)})"


def drafting_text(offer: Offer, where: Whereabouts) -> str:
    """How a model drafts here, and what is left out or missing."""
    accelerator, listed = offer.accelerator, offer.file.accelerator
    if where == "incomplete":
        missing = accelerator.title if isinstance(accelerator, DraftModel) else f"its {_title(accelerator)}"
        return f"The model is in your library, but {missing}, which drafts for it, isn't."
    match accelerator:
        case Inside():
            return "Its MTP head drafts: it is inside the file."
        case Sidecar():
            size = words.size(accelerator.size)
            return f"Its {_title(accelerator)} drafts: a file of {size} that comes with it."
        case DraftModel():
            return f"{accelerator.title} drafts for it: a model of {words.size(accelerator.size)} that comes with it."
        case _:
            ngrams = "Text that comes up again is drafted from the chat itself (n-grams)."
            if not isinstance(listed, Inside | Sidecar):
                return ngrams
            if can_compute(listed.architecture):
                return f"Its {_title(listed)} stays off on a Mac, where others measured that it costs time. {ngrams}"
            return f"Answers without its {_title(listed)} in this version. {ngrams}"


def _title(accelerator: object) -> str:
    """What to call the head that it is."""
    return head_title(accelerator.architecture) if isinstance(accelerator, Inside | Sidecar) else ""


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
        f"Needs about {words.size(offer.needed)} with {words.number(offer.file.context)} tokens of context · "
        f"{offer.file.quantization}"
    )


def images_text(offer: Offer) -> str:
    """The label of the checkbox for its projector: ``With images: another 986 MB to download``."""
    projector = offer.model.mmproj
    size = projector.size if projector is not None else None
    return f"With images: another {words.size(size)} to download" if size else "With images: another file to download"


def license_text(offer: Offer) -> str:
    """The licenses of the model and its draft, with caveats."""
    licenses = [offer.model.license]
    if isinstance(offer.accelerator, DraftModel):
        licenses.append(offer.accelerator.license)
    note = f" · {offer.model.license_note}" if offer.model.license_note else ""
    return f"License: {', '.join(dict.fromkeys(licenses))}{note}"


def machine_text(machine: MachineMemory) -> str:
    """``NVIDIA RTX 4060, 7.6 GB of 8.6 GB free · memory: 11 GB of 16 GB free``."""
    parts = [
        f"{printable(device.description)}, {words.size(device.free_bytes)} of {words.size(device.total_bytes)} free"
        for device in machine.devices
    ]
    parts.append(f"memory: {words.size(machine.memory_free)} of {words.size(machine.memory_total)} free")
    text = " · ".join(parts)
    return text[0].upper() + text[1:] if machine.devices else f"No GPU support in this build · {text}"


def _is_among(wanted: Sequence[tuple[str, str]], files: Sequence[tuple[str, str]]) -> bool:
    """Whether one of ``files`` is wanted; both are repositories and paths."""
    return any(
        repository == named and fnmatchcase(path.rpartition("/")[2].lower(), file.lower())
        for named, file in wanted
        for repository, path in files
    )
