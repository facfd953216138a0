"""Models → Search: repositories on Hugging Face, their files, and drafts for them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

from PySide6.QtCore import Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QTreeWidgetItem, QWidget

from app import words
from app.models.downloads.item import Item
from app.models.hub.drafts import DraftCandidate, HubModel, look_at
from app.models.hub.repository import RemoteModel, Repository, SearchResult, Sort, without_models
from app.models.library.library import LibraryEntry
from app.models.memory_shape import shape_of
from app.system import KnownError
from app.ui.context import AppContext
from app.ui.models.downloads_tab import DownloadsTab
from app.ui.models.fit import UNKNOWN_FIT, FitBadge, badge_for, badge_for_size
from app.ui.models.library_service import LibraryService
from app.ui.models.recommended_tab import HubService
from app.ui.widgets import theme
from app.ui.widgets.controls import (
    LIST_MARGINS,
    beside,
    column,
    label,
    named,
    plain_tooltip,
    push_button,
    row,
    show_text,
    small_button,
)
from app.ui.widgets.table import Table
from app.ui.widgets.theme import SPACING
from app.words import printable

SORTS: dict[Sort, str] = {
    "trending": "Trending",
    "downloads": "Most downloaded",
    "likes": "Most liked",
    "newest": "Newest",
}
_GATED = {
    "automatic": "Gated: accept the terms on the model's page, then enter an access token.",
    "manual": "Gated: the owner decides who may download it. Ask on the model's page, then enter an access token.",
}
_HEAD_TIP = "The head drafts for this model. It is stored in the same folder, where Slipstream finds it."
_IMAGES_TIP = (
    "The model needs its projector (mmproj) to see images. It is stored in the same folder, where Slipstream finds it."
)
_BESIDE_WEIGHTS = 1_000_000_000
"""Memory for KV cache and buffers, in bytes, until a header gives better numbers."""


class SearchTab(QWidget):
    """The search and its results, beside the page of the selected repository (``page``)."""

    def __init__(self, ctx: AppContext, hub: HubService, library: LibraryService, downloads: DownloadsTab) -> None:
        super().__init__()
        self._hub = hub
        self._asked: Future[Any] | None = None
        example = "Search Hugging Face for GGUF models, such as qwen3 8b"
        self._words = named(QLineEdit(placeholderText=example, clearButtonEnabled=True), "Search words")
        self._sort = named(QComboBox(), "Sort by")
        for value, text in SORTS.items():
            self._sort.addItem(text, value)
        self._status = label(
            "Type what you're looking for. Nothing is sent before you press Search.", "quiet", wraps=True
        )
        self._results = Table(
            "Repositories found",
            ["Repository", "Downloads", "Likes", "Updated"],
            right=(1, 2),
            least_widths={1: 320, 2: 480, 3: 400},
        )
        self.page = RepositoryPage(ctx, hub, library, downloads)
        left = QWidget(minimumWidth=280)
        column(
            row((self._words, 1), push_button("Search", self._search, role="primary")),
            row(label("Sort by", "quiet"), self._sort, None),
            self._status,
            (self._results, 1),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        column(beside(left, self.page, [520, 440]), on=self)
        self._words.returnPressed.connect(self._search)
        self._sort.activated.connect(self._search)
        self._results.itemSelectionChanged.connect(self._on_selected)

    def set_words(self, words: str) -> None:
        """Fill in words and search."""
        self._words.setText(words)
        self._search()

    @Slot()
    def _search(self) -> None:
        words, sort = self._words.text().strip(), cast(Sort, self._sort.currentData())
        if not words:
            return
        self._show_status("Searching…")
        self._hub.drop(self._asked)
        self._asked = self._hub.ask(
            lambda hub: hub.search(words, sort), self._show_results, lambda error: self._show_status(str(error), "bad")
        )

    def _show_results(self, results: Sequence[SearchResult]) -> None:
        self.page.clear()
        self._results.clear()
        for one in results:
            name = printable(one.id, 120) + ("  (gated)" if one.gated != "no" else "")
            cells = [name, words.compact(one.downloads), words.compact(one.likes), one.modified[:10]]
            item = self._results.add(cells, one.id)
            gated = "\nYou have to accept its terms on its page first." if one.gated != "no" else ""
            item.setToolTip(0, plain_tooltip(printable(one.id, 200) + gated))
        self._show_status("" if results else "No models found. Try fewer or different words.")

    def _show_status(self, text: str, role: str = "quiet") -> None:
        show_text(self._status, text, role)

    @Slot()
    def _on_selected(self) -> None:
        if isinstance(chosen := self._results.chosen(), str):
            self.page.look_up(chosen)


class RepositoryPage(QWidget):
    """The files of a repository, drafts for one of them, and download buttons. ``repository``: the shown one; ``None``
    while finding drafts for a model on this computer.
    """

    def __init__(self, ctx: AppContext, hub: HubService, library: LibraryService, downloads: DownloadsTab) -> None:
        super().__init__(minimumWidth=300)
        self._hub, self._library, self._downloads = hub, library, downloads
        self._asked: Future[Any] | None = None
        self._fitting = 0
        """How many of the found drafts fit."""
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.repository: Repository | None = None
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._facts = label(role="quiet", wraps=True)
        self._gated = label(role="warning", wraps=True)
        self._files = Table("Files", ["Quantization", "Size", "Fits"], right=(1, 2))
        self._drafts = Table("Drafts found", ["Draft", "Size", "Fits"], right=(1, 2))
        self._head = label(role="quiet", wraps=True)
        self._with_head, self._with_images = QCheckBox("With its head"), QCheckBox("With images")
        self._with_head.setToolTip(_HEAD_TIP)
        self._with_images.setToolTip(_IMAGES_TIP)
        self._looked: HubModel | None = None
        """What is known about the selected model."""
        self._is_looking = False
        """Its head is still being determined."""
        self._drafts_status = label(role="quiet", wraps=True)
        self._reason = label(role="quiet", wraps=True)
        self._web_page = small_button("Open page", self._on_web_page)
        self._token = small_button(ctx.actions.text("ask_for_token"))
        ctx.actions.connect_button(self._token, "ask_for_token")
        self._find_draft = push_button("Find a draft for this model", self._on_find)
        self._get = push_button("Get", self._on_get, role="primary")
        self._lay_out()
        self._files.itemSelectionChanged.connect(self._on_file_selected)
        self._drafts.itemSelectionChanged.connect(self._refresh)
        self._with_head.toggled.connect(self._refresh)
        self.clear()

    def _lay_out(self) -> None:
        layout = column(
            self._title,
            self._facts,
            self._gated,
            row(self._web_page, self._token, None),
            (self._files, 2),
            self._head,
            self._with_head,
            self._with_images,
            self._drafts_status,
            (self._drafts, 1),
            self._reason,
            row(None, self._find_draft, self._get),
            margins=4 * SPACING,
            on=self,
        )
        layout.insertStretch(layout.count() - 1, 0)  # takes the space only when there is no list

    # ------------------------------------------------------------ selection

    def model(self) -> RemoteModel | None:
        """The selected model of the repository."""
        chosen = self._files.chosen()
        return chosen if isinstance(chosen, RemoteModel) else None

    def draft(self) -> DraftCandidate | None:
        """The selected draft, if it fits."""
        chosen = self._drafts.chosen()
        return chosen if isinstance(chosen, DraftCandidate) and chosen.verdict.fits else None

    def head(self) -> RemoteModel | None:
        """The head to download with the model; a selected draft replaces it."""
        found = self._looked
        offered = found is not None and found.can_run and self._with_head.isChecked() and self.draft() is None
        return found.head if found is not None and offered else None

    def projector(self) -> RemoteModel | None:
        """The projector to download with the model."""
        found = self._looked
        return found.projector if found is not None and self._with_images.isChecked() else None

    # ------------------------------------------------------------ display

    def clear(self, message: str = "Select a repository to see its files.") -> None:
        """Show no repository."""
        self._hub.drop(self._asked)
        self._hub.stop_finding()
        self.repository = None
        self._title.setText("")
        self._facts.setText(message)
        self._gated.hide()
        self._files.clear()
        self._files.hide()
        self._forget_head()
        self._clear_drafts()
        self._refresh()

    def look_up(self, name: str) -> None:
        """Look a repository up and show its files."""
        self.clear(f"Looking up {printable(name)}…")
        self._asked = self._hub.ask(
            lambda hub: hub.repository(name), self._show_repository, lambda error: self.clear(str(error))
        )

    def _show_repository(self, repository: Repository) -> None:
        machine = self._library.machine()
        self.clear("")
        self.repository = repository
        self._title.setText(printable(repository.id, 200))
        license = printable(repository.license) if repository.license else "not specified"
        self._facts.setText(f"License: {license} · commit {repository.commit[:8]}")
        show_text(self._gated, _GATED.get(repository.gated, ""))
        items = [self._files.add((), model) for model in repository.offered]
        for item, model in zip(items, repository.offered, strict=True):
            is_model = bool(repository.models)
            fit = badge_for_size(model.size + _BESIDE_WEIGHTS, machine) if is_model else UNKNOWN_FIT
            self._dress(item, model, fit)
        self._files.setVisible(bool(items))
        if len(items) == 1:
            self._files.setCurrentItem(items[0])
        if not repository.models:
            more = _ONLY_HEADS if repository.heads else without_models(repository)
            self._facts.setText(f"{self._facts.text()}\n{more}")
        if repository.pieces:
            self._facts.setText(f"{self._facts.text()}\n{_PIECES}")
        self._refresh()

    @Slot()
    def _on_file_selected(self) -> None:
        """Read its header for its exact memory needs and its head; a few megabytes at most."""
        self._forget_head()
        self._clear_drafts()
        self._refresh()
        self._hub.stop_finding()
        repository, model = self.repository, self.model()
        if repository is None or model is None:
            return

        def found(what: HubModel) -> None:
            alone = FitBadge(f"{what.title} only", "quiet", _head_text(what)) if what.place == "alone" else None
            self._on_looked(model, alone or badge_for(shape_of(what.header), self._library.machine()), what)

        def failed(error: KnownError) -> None:
            self._on_looked(model, FitBadge("Unknown", "quiet", str(error)), None)

        heads, vision = repository.heads, repository.vision
        self._hub.ask(lambda hub: look_at(hub.network, model, heads, self._hub.is_closed, vision), found, failed)

    def _on_looked(self, model: RemoteModel, fit: FitBadge, found: HubModel | None) -> None:
        """``found``: facts about the model; ``None`` if its file couldn't be read."""
        if (item := self._files.item_of(model)) is not None:
            self._dress(item, model, fit)
        if model is self.model():
            self._looked, self._is_looking = found, False
            self._refresh()

    # ------------------------------------------------------------ drafts

    def find_drafts_for(self, entry: LibraryEntry) -> None:
        """Find drafts for a model in the library."""
        self.clear(f"Drafts for {printable(entry.title, 120)}, which is in your library.")
        self._find_drafts(entry.path, ())

    @Slot()
    def _on_find(self) -> None:
        repository, model = self.repository, self.model()
        if repository is not None and model is not None:
            self._find_drafts(model, repository.base_models)

    def _find_drafts(self, model: Path | RemoteModel, bases: Sequence[str]) -> None:
        self._fitting = 0
        self._clear_drafts("Looking for drafts: reading and comparing their vocabularies…")

        def failed(error: KnownError) -> None:
            show_text(self._drafts_status, str(error))

        self._hub.find_drafts(model, bases, self._add_draft, self._on_drafts_done, failed)

    def _add_draft(self, offer: DraftCandidate) -> None:
        """Add a draft that was found, whether or not it fits."""
        self._fitting += offer.verdict.fits
        model, verdict = offer.model, offer.verdict
        moods = ("", "", "warning" if verdict.warning else "good") if verdict.fits else ("quiet",) * 3
        cells = (printable(model.name, 120), words.size(model.size), "yes" if verdict.fits else "no")
        item = self._drafts.add(cells, offer)
        self._drafts.dress(item, cells, moods, _sentence(offer))
        self._drafts.show()
        if verdict.fits and not self._drafts.selectedItems():
            self._drafts.setCurrentItem(item)

    def _on_drafts_done(self, number: int) -> None:
        if not number:
            text = "No small model of this family and no EAGLE-3 head was found. Search for one by name."
        else:
            fit = words.count(self._fitting, "fits", "fit") if self._fitting else "none fit"
            text = f"{number} checked, {fit}. Their vocabularies were compared, not just their names."
        show_text(self._drafts_status, text)

    # ------------------------------------------------------------ the buttons

    @Slot()
    def _on_get(self) -> None:
        repository, model, draft = self.repository, self.model(), self.draft()
        if repository is not None and model is not None:
            title = f"{_short(repository.id)} {model.quantization}".strip()
            head = self.head()
            with_head = f" with {self._looked.title}" if head is not None and self._looked is not None else ""
            extra = " with draft" if draft is not None else with_head
            licenses = repository.license, draft.license if draft is not None else ""
            second = draft.model if draft is not None else None
            self._downloads.add(Item.of(title + extra, model, second, licenses, head, self.projector()))
        elif draft is not None:
            title = f"{_short(draft.repository)} {draft.model.quantization}".strip()
            self._downloads.add(Item.of(title, draft.model, None, (draft.license,)))

    @Slot()
    def _on_web_page(self) -> None:
        if problem := self._hub.endpoint_problem():
            self.clear(problem)
        elif self.repository is not None:
            QDesktopServices.openUrl(QUrl(f"{self._hub.network.endpoint}/{self.repository.id}"))

    def _dress(self, item: QTreeWidgetItem, model: RemoteModel, fit: FitBadge) -> None:
        parts = f" · {len(model.files)} parts" if len(model.files) > 1 else ""
        cells = (f"{model.quantization or printable(model.name)}{parts}", words.size(model.size), fit.text)
        self._files.dress(item, cells, ("", "", fit.mood), f"{model.name}\n{fit.detail}".strip())

    def _clear_drafts(self, status: str = "") -> None:
        self._drafts.clear()
        self._drafts.hide()
        show_text(self._drafts_status, status)

    def _forget_head(self) -> None:
        self._looked = None
        repository = self.repository
        has_more = repository is not None and bool(repository.heads or repository.vision)
        self._is_looking = self.model() is not None and has_more
        self._with_head.setChecked(True)
        self._with_images.setChecked(True)

    @Slot()
    def _refresh(self) -> None:
        has_model, found, draft = self.model() is not None, self._drafts.chosen(), self.draft()
        show_text(self._reason, _sentence(found) if isinstance(found, DraftCandidate) else "")
        self._web_page.setVisible(self.repository is not None)
        self._token.setVisible(self.repository is not None and self.repository.gated != "no")
        is_alone = self._looked is not None and self._looked.place == "alone"
        self._find_draft.setVisible(has_model and not is_alone)
        self._get.setVisible(self.repository is not None or draft is not None)
        is_of_use = self._looked is None or self._looked.can_run or not is_alone
        self._get.setEnabled((has_model and is_of_use and not self._is_looking) or draft is not None)
        self._refresh_head()
        if self._looked is not None and (head := self.head()) is not None:
            self._get.setText(f"Get with {self._looked.title} (+{words.size(head.size)})")
        elif draft is None:
            self._get.setText("Get")
        else:
            size = words.size(draft.model.size)
            self._get.setText(f"Get with draft (+{size})" if has_model else f"Get this draft ({size})")

    def _refresh_head(self) -> None:
        found = self._looked
        is_offered = found is not None and found.head is not None and found.can_run
        self._with_head.setVisible(is_offered and self.draft() is None)
        if found is not None and found.head is not None:
            self._with_head.setText(f"With its {found.title}, {words.size(found.head.size)}")
        projector = found.projector if found is not None else None
        self._with_images.setVisible(projector is not None)
        if projector is not None:
            self._with_images.setText(f"With images: its projector, {words.size(projector.size)}")
        text = "Looking for what belongs to it…" if self._is_looking else ""
        show_text(self._head, _head_text(found) if found is not None else text)


_PIECES = (
    "Some models are in pieces, such as “.part1of2”, which Slipstream doesn’t download. Download them in a browser "
    "into the models folder: the library can join them."
)
_ONLY_HEADS = "It has only heads, without the models they belong to. Each drafts for one model."


def _head_text(found: HubModel) -> str:
    """What to say about a model's head, besides offering it."""
    if found.place == "alone":
        use = "It drafts for the model it belongs to." if found.can_run else "This version can't use it yet."
        return f"This file is an {found.title} without its model, so there is nothing to chat with. {use}"
    if found.place == "inside":
        use = "It drafts, without a second model." if found.can_run else "This version can't use it yet."
        return f"{found.title} inside. {use}"
    if found.head is not None and not found.can_run:
        size = words.size(found.head.size)
        return f"There is an {found.title} for it ({size}), which this version can't use yet."
    return ""


def _sentence(draft: DraftCandidate) -> str:
    """What is known about it, in one line."""
    parts = (f"{printable(draft.repository)}:", draft.verdict.reason, draft.verdict.warning, draft.verdict.note)
    return " ".join(part for part in parts if part)


def _short(repository: str) -> str:
    return repository.rpartition("/")[2].removesuffix("-GGUF")
