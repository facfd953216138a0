"""Connects the tabs "Recommended" and "Search" with Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices

from app.errors import KnownError
from app.models.downloads.item import Item
from app.models.hub.catalog import Catalog, Offer, load_catalog
from app.models.hub.drafts import DraftCandidate
from app.models.hub.heads import HubModel
from app.models.hub.repository import RemoteModel, Repository, SearchResult, Sort
from app.models.library.entry import LibraryEntry
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import shape_of
from app.models.text import printable, size_text
from app.ui.models.commands import ModelCommands
from app.ui.models.fit_badge import FitBadge, badge_for, badge_for_size
from app.ui.models.hub_service import HubService
from app.ui.models.recommended_tab import Recommendation, RecommendedTab, Whereabouts
from app.ui.models.search_tab import SearchTab


class HubPresenter(QObject):
    """Fills the two tabs and makes download items of what is asked for.

    Attributes:
        recommended, search: The tabs.
    """

    def __init__(
        self,
        service: HubService,
        commands: ModelCommands,
        whereabouts: Callable[[Offer], Whereabouts],
        get: Callable[[Item], object],
        show_search: Callable[[], object],
        parent: QObject | None = None,
    ) -> None:
        """``whereabouts`` says where a recommended model is; ``get`` downloads an item.

        ``show_search`` brings the tab "Search" to the front.
        """
        super().__init__(parent)
        self.recommended = RecommendedTab(self.get_offer, self._show_offer)
        self.search = SearchTab()
        self._page = self.search.page
        self._service = service
        self._machine = commands.machine
        self._whereabouts = whereabouts
        self._get = get
        self._show_search = show_search
        self._catalog: Catalog = load_catalog()
        self._searched = self._looked = 0
        """Numbers of the latest search and the latest repository; answers to earlier ones are ignored."""
        self._offers = 0
        self.recommended.search.clicked.connect(show_search)
        self.search.search_requested.connect(self._on_search)
        self.search.repository_chosen.connect(self.show_repository)
        self._page.token.clicked.connect(commands.ask_for_token)
        self._page.get.clicked.connect(self._on_get)
        self._page.model_chosen.connect(self._on_model_chosen)
        self._page.find_draft.clicked.connect(self._on_find)
        self._page.web_page.clicked.connect(self._on_web_page)
        service.draft_found.connect(self._on_draft_found)

    # ------------------------------------------------------------ recommended

    @Slot()
    def refresh(self) -> None:
        """Show the models for the current memory: those that fit before those that don't."""
        machine = self._machine()
        best = self._catalog.propose(machine)
        others = [
            self._recommendation(offer, machine)
            for offer in self._catalog.offers(machine)
            if best is None or offer.model is not best.model
        ]
        self.recommended.show_models(
            machine_text(machine),
            self._recommendation(best, machine) if best else None,
            sorted(others, key=lambda one: one.fit.mood == "bad"),
        )

    def get_offer(self, offer: Offer, with_images: bool = False) -> None:
        """Look a recommended model up and have it downloaded; if wanted, with what it needs to see images."""
        self.recommended.show_status(f"Looking up the files of {offer.model.title}…")
        self._service.resolve(
            offer,
            partial(self._on_resolved, offer),
            lambda error: self.recommended.show_status(str(error), "bad"),
            with_images=with_images,
        )

    def _on_resolved(self, offer: Offer, item: Item) -> None:
        if self._whereabouts(offer) == "incomplete" and not item.head and not item.draft:
            text = f"{offer.file.repository} no longer offers the MTP head of {offer.model.title}."
            self.recommended.show_status(text, "bad")
            return
        self.recommended.show_status("")
        self._get(item)

    def _recommendation(self, offer: Offer, machine: MachineMemory) -> Recommendation:
        return Recommendation(offer, badge_for_size(offer.needed, machine), self._whereabouts(offer))

    def _show_offer(self, offer: Offer) -> None:
        self._show_search()
        self.show_repository(offer.file.repository)

    # ------------------------------------------------------------ search

    @Slot(str, str)
    def _on_search(self, words: str, sort: str) -> None:
        self._searched += 1
        number = self._searched
        self.search.show_status("Searching…")

        def found(results: list[SearchResult]) -> None:
            if number == self._searched:
                self._turn_page()
                self._page.clear()
                self.search.show_results(results)

        def failed(error: KnownError) -> None:
            if number == self._searched:
                self.search.show_status(str(error), "bad")

        self._service.search(words, cast(Sort, sort), found, failed)

    @Slot(str)
    def show_repository(self, name: str) -> None:
        """Look a repository up and show its files."""
        number = self._turn_page()
        self._page.clear(f"Looking up {printable(name)}…")

        def found(repository: Repository) -> None:
            if number == self._looked:
                machine = self._machine()
                fits = {one: badge_for_size(one.size + _BESIDE_WEIGHTS, machine) for one in repository.models}
                self._page.show_repository(repository, fits)

        def failed(error: KnownError) -> None:
            if number == self._looked:
                self._page.clear(str(error))

        self._service.repository(name, found, failed)

    @Slot()
    def _on_model_chosen(self) -> None:
        """Its header says exactly how much memory it takes and whether it has a head; a few megabytes at most."""
        self._service.stop_finding()
        repository, model = self._page.repository, self._page.model()
        if repository is None or model is None:
            return

        def found(what: HubModel) -> None:
            if what.place != "alone":
                self._page.show_fit(model, badge_for(shape_of(what.header), self._machine()))
            self._page.show_head(model, what)

        def failed(error: KnownError) -> None:
            self._page.show_fit(model, FitBadge("Unknown", "quiet", str(error)))
            self._page.show_head(model, None)

        self._service.look_at(model, repository, found, failed)

    # ------------------------------------------------------------ drafts

    def find_drafts_for(self, entry: LibraryEntry) -> None:
        """Look for drafts for a model in the library; they are shown on the page of the tab "Search"."""
        self._turn_page()
        self._show_search()
        self._page.clear(f"Drafts for {printable(entry.title, 120)}, which is in your library.")
        self._find_drafts(entry.path, ())

    @Slot()
    def _on_find(self) -> None:
        repository, model = self._page.repository, self._page.model()
        if repository is not None and model is not None:
            self._find_drafts(model, repository.base_models)

    def _find_drafts(self, model: Path | RemoteModel, bases: Sequence[str]) -> None:
        self._offers = 0
        self._page.begin_drafts()
        self._service.find_drafts(
            model, bases, self._on_drafts_done, lambda error: self._page.show_drafts_status(str(error))
        )

    @Slot(object)
    def _on_draft_found(self, candidate: DraftCandidate) -> None:
        self._page.add_draft(candidate)
        self._offers += candidate.verdict.fits

    def _on_drafts_done(self, number: int) -> None:
        if not number:
            text = "No small model of this family was found. Search for one by name."
        else:
            fit = "none fit" if not self._offers else "1 fits" if self._offers == 1 else f"{self._offers} fit"
            text = f"{number} checked, {fit}. Their vocabularies were compared, not just their names."
        self._page.show_drafts_status(text)

    # ------------------------------------------------------------ getting

    @Slot()
    def _on_get(self) -> None:
        repository, model, draft = self._page.repository, self._page.model(), self._page.draft()
        if repository is not None and model is not None:
            title = f"{_short(repository.id)} {model.quantization}".strip()
            head, projector = self._page.head(), self._page.projector()
            extra = " with draft" if draft is not None else " with MTP head" if head is not None else ""
            licenses = repository.license, draft.license if draft is not None else ""
            self._get(Item.of(title + extra, model, draft.model if draft else None, licenses, head, projector))
        elif draft is not None:
            title = f"{_short(draft.repository)} {draft.model.quantization}".strip()
            self._get(Item.of(title, draft.model, None, (draft.license,)))

    @Slot()
    def _on_web_page(self) -> None:
        if problem := self._service.endpoint_problem():
            self._page.clear(problem)
        elif self._page.repository is not None:
            QDesktopServices.openUrl(QUrl(self._service.page(self._page.repository.id)))

    def _turn_page(self) -> int:
        """Something else of one repository is to be shown."""
        self._looked += 1
        self._service.stop_finding()
        return self._looked


_BESIDE_WEIGHTS = 1_000_000_000
"""Bytes for the KV cache and buffers until a header gives better numbers."""


def machine_text(machine: MachineMemory) -> str:
    """``NVIDIA RTX 4060, 7.6 GB of 8.6 GB free · memory: 11 GB of 16 GB free``."""
    parts = [
        f"{printable(device.description)}, {size_text(device.free_bytes)} of {size_text(device.total_bytes)} free"
        for device in machine.devices
    ]
    parts.append(f"memory: {size_text(machine.memory_free)} of {size_text(machine.memory_total)} free")
    text = " · ".join(parts)
    return text[0].upper() + text[1:] if machine.devices else f"No GPU support in this build · {text}"


def _short(repository: str) -> str:
    """``Qwen3-8B`` for ``Qwen/Qwen3-8B-GGUF``."""
    return repository.rpartition("/")[2].removesuffix("-GGUF")
