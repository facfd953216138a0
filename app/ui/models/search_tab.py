"""Models → Search: repositories on Hugging Face, their files, and drafts for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QPushButton, QTreeWidgetItem, QWidget

from app.models.hub.drafts import DraftCandidate
from app.models.hub.heads import HubModel
from app.models.hub.repository import RemoteModel, Repository, SearchResult
from app.models.text import count_text, printable, size_text
from app.ui.models.fit_badge import FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import beside, label, plain_tooltip, show_text, small_button
from app.ui.widgets.layouts import LIST_MARGINS, column, row
from app.ui.widgets.table import Table
from app.ui.widgets.theme import SPACING

SORTS = (
    ("trending", "Trending"),
    ("downloads", "Most downloaded"),
    ("likes", "Most liked"),
    ("newest", "Newest"),
)
_GATED = {
    "automatic": "Gated: accept the terms on the model's page, then enter an access token.",
    "manual": "Gated: the owner decides who may download it. Ask on the model's page, then enter an access token.",
}


class SearchTab(QWidget):
    """Shows what was found and says what the user wants to know or have.

    Attributes:
        page: The repository that is shown.

    Signals:
        search_requested: Words and one of `SORTS`.
        repository_chosen: The id of a repository whose files shall be shown.
    """

    search_requested = Signal(str, str)
    repository_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        example = "Search Hugging Face for GGUF models, such as qwen3 8b"
        self._words = QLineEdit(placeholderText=example, clearButtonEnabled=True)
        self._words.setAccessibleName("Search words")
        self._sort = QComboBox()
        self._sort.setAccessibleName("Sort by")
        for value, text in SORTS:
            self._sort.addItem(text, value)
        go = QPushButton("Search")
        theme.set_role(go, "primary")
        self._status = label(role="quiet", wraps=True)
        self._results = Table(
            "Repositories found",
            ["Repository", "Downloads", "Likes", "Updated"],
            right=(1, 2),
            least_widths={1: 320, 2: 480, 3: 400},
        )
        self.page = RepositoryPage()
        left = QWidget(minimumWidth=280)
        column(
            row((self._words, 1), go),
            row(label("Sort by", "quiet"), self._sort, None),
            self._status,
            (self._results, 1),
            gap=3 * SPACING,
            margins=LIST_MARGINS,
            on=left,
        )
        column(beside(left, self.page, [520, 440]), on=self)
        self._words.returnPressed.connect(self._on_search)
        go.clicked.connect(self._on_search)
        self._sort.activated.connect(self._on_search)
        self._results.itemSelectionChanged.connect(self._on_selected)
        self.show_status("Type what you're looking for. Nothing is sent before you press Search.")

    # ------------------------------------------------------------ what is shown

    def show_results(self, results: Sequence[SearchResult]) -> None:
        self._results.clear()
        for one in results:
            name = printable(one.id, 120) + ("  (gated)" if one.gated != "no" else "")
            cells = [name, count_text(one.downloads), count_text(one.likes), one.modified[:10]]
            item = self._results.add(cells, one.id)
            gated = "\nYou have to accept its terms on its page first." if one.gated != "no" else ""
            item.setToolTip(0, plain_tooltip(printable(one.id, 200) + gated))
        self.show_status("" if results else "No models found. Try fewer or different words.")

    def show_status(self, text: str, role: str = "quiet") -> None:
        """What the search is doing, or why it failed."""
        show_text(self._status, text, role)

    def set_words(self, words: str) -> None:
        """Enter words for the user, and search."""
        self._words.setText(words)
        self._on_search()

    # ------------------------------------------------------------ inside

    @Slot()
    def _on_search(self) -> None:
        if words := self._words.text().strip():
            self.search_requested.emit(words, self._sort.currentData())

    @Slot()
    def _on_selected(self) -> None:
        if (chosen := self._results.chosen()) is not None:
            self.repository_chosen.emit(chosen)


class RepositoryPage(QWidget):
    """Shows files and asks for them.

    Attributes:
        repository: What is shown; ``None`` while drafts for a model on this computer are looked for.
        web_page, token, find_draft, get: The buttons "Open page", "Enter token…", "Find a draft" and "Get".

    Signals:
        model_chosen: Another `model` is selected, or none.
    """

    model_chosen = Signal()

    def __init__(self) -> None:
        super().__init__(minimumWidth=300)
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.repository: Repository | None = None
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._facts = label(role="quiet", wraps=True)
        self._gated = label(role="warning", wraps=True)
        self._files = Table("Files", ["Quantization", "Size", "Fits"], right=(1, 2))
        self._drafts = Table("Drafts found", ["Draft", "Size", "Fits"], right=(1, 2))
        self._head = label(role="quiet", wraps=True)
        self._with_head = QCheckBox("With its MTP head")
        self._with_head.setToolTip(
            "The head drafts for this model. It is stored in the same folder, where Slipstream finds it."
        )
        self._with_images = QCheckBox("With images")
        self._with_images.setToolTip(
            "The model needs its projector (mmproj) to see images. It is stored in the same folder, where Slipstream "
            "finds it."
        )
        self._looked: HubModel | None = None
        """What is known about the selected model."""
        self._is_looking = False
        """Whether it is still to be found out which head belongs to it."""
        self._drafts_status = label(role="quiet", wraps=True)
        self._reason = label(role="quiet", wraps=True)
        self.web_page = small_button("Open page")
        self.token = small_button("Enter token…")
        self.find_draft = QPushButton("Find a draft for this model")
        self.get = QPushButton("Get")
        theme.set_role(self.get, "primary")
        layout = column(
            self._title,
            self._facts,
            self._gated,
            row(self.web_page, self.token, None),
            (self._files, 2),
            self._head,
            self._with_head,
            self._with_images,
            self._drafts_status,
            (self._drafts, 1),
            self._reason,
            row(None, self.find_draft, self.get),
            margins=4 * SPACING,
            on=self,
        )
        layout.insertStretch(layout.count() - 1, 0)  # takes the space only when there is no list
        self._files.itemSelectionChanged.connect(self._on_file_selected)
        self._drafts.itemSelectionChanged.connect(self._refresh)
        self._with_head.toggled.connect(self._refresh)
        self.clear()

    # ------------------------------------------------------------ what is chosen

    def model(self) -> RemoteModel | None:
        """The selected model of the repository."""
        chosen = self._files.chosen()
        return chosen if isinstance(chosen, RemoteModel) else None

    def draft(self) -> DraftCandidate | None:
        """The selected draft, if it fits."""
        chosen = self._drafts.chosen()
        return chosen if isinstance(chosen, DraftCandidate) and chosen.verdict.fits else None

    def head(self) -> RemoteModel | None:
        """The MTP head to download with the model; a draft takes its place."""
        found = self._looked
        offered = found is not None and found.can_run and self._with_head.isChecked() and self.draft() is None
        return found.head if found is not None and offered else None

    def projector(self) -> RemoteModel | None:
        """The projector to download with the model."""
        found = self._looked
        return found.projector if found is not None and self._with_images.isChecked() else None

    # ------------------------------------------------------------ what is shown

    def clear(self, message: str = "Select a repository to see its files.") -> None:
        """Show no repository."""
        self.repository = None
        self._title.setText("")
        self._facts.setText(message)
        self._gated.hide()
        self._files.clear()
        self._files.hide()
        self._forget_head()
        self._clear_drafts()
        self._refresh()

    def show_repository(self, repository: Repository, fits: Mapping[RemoteModel, FitBadge]) -> None:
        self.clear("")
        self.repository = repository
        self._title.setText(printable(repository.id, 200))
        license = printable(repository.license) if repository.license else "not specified"
        self._facts.setText(f"License: {license} · commit {repository.commit[:8]}")
        show_text(self._gated, _GATED.get(repository.gated, ""))
        items = [self._files.add((), model) for model in repository.models]
        for item, model in zip(items, repository.models, strict=True):
            self._dress(item, model, fits[model])
        self._files.setVisible(bool(items))
        if len(items) == 1:
            self._files.setCurrentItem(items[0])
        if not repository.models:
            only = "only MTP heads, without the models they belong to" if repository.heads else "no GGUF models"
            self._facts.setText(f"{self._facts.text()}\nIt has {only}.")
        if repository.pieces:
            self._facts.setText(f"{self._facts.text()}\n{_PIECES}")
        self._refresh()

    def begin_drafts(self) -> None:
        """A search for drafts starts."""
        self._clear_drafts("Looking for drafts: reading and comparing their vocabularies…")

    def show_fit(self, model: RemoteModel, fit: FitBadge) -> None:
        """It has become known whether this model fits."""
        if (item := self._files.item_of(model)) is not None:
            self._dress(item, model, fit)

    def show_head(self, model: RemoteModel, found: HubModel | None) -> None:
        """It has become known whether this model has an MTP head; ``None``: its file couldn't be read."""
        if model is self.model():
            self._looked, self._is_looking = found, False
            self._refresh()
            if found is not None and found.place == "alone" and (item := self._files.item_of(model)) is not None:
                self._dress(item, model, FitBadge("MTP head only", "quiet", _ALONE))

    def add_draft(self, offer: DraftCandidate) -> None:
        """A draft was found, whether it fits or not."""
        model, verdict = offer.model, offer.verdict
        moods = ("", "", "warning" if verdict.warning else "good") if verdict.fits else ("quiet",) * 3
        cells = (printable(model.name, 120), size_text(model.size), "yes" if verdict.fits else "no")
        item = self._drafts.add(cells, offer)
        self._drafts.dress(item, cells, moods, _sentence(offer))
        self._drafts.show()
        if verdict.fits and not self._drafts.selectedItems():
            self._drafts.setCurrentItem(item)

    def show_drafts_status(self, text: str) -> None:
        """The progress or the result of the search for drafts."""
        show_text(self._drafts_status, text)

    # ------------------------------------------------------------ inside

    def _dress(self, item: QTreeWidgetItem, model: RemoteModel, fit: FitBadge) -> None:
        parts = f" · {len(model.files)} parts" if len(model.files) > 1 else ""
        cells = (f"{model.quantization or printable(model.name)}{parts}", size_text(model.size), fit.text)
        self._files.dress(item, cells, ("", "", fit.mood), f"{model.name}\n{fit.detail}".strip())

    def _clear_drafts(self, status: str = "") -> None:
        self._drafts.clear()
        self._drafts.hide()
        self.show_drafts_status(status)

    def _forget_head(self) -> None:
        self._looked = None
        repository = self.repository
        has_more = repository is not None and bool(repository.heads or repository.vision)
        self._is_looking = self.model() is not None and has_more
        self._with_head.setChecked(True)
        self._with_images.setChecked(True)

    @Slot()
    def _on_file_selected(self) -> None:
        self._forget_head()
        self._clear_drafts()
        self._refresh()
        self.model_chosen.emit()

    @Slot()
    def _refresh(self) -> None:
        has_model, found, draft = self.model() is not None, self._drafts.chosen(), self.draft()
        show_text(self._reason, _sentence(found) if isinstance(found, DraftCandidate) else "")
        self.web_page.setVisible(self.repository is not None)
        self.token.setVisible(self.repository is not None and self.repository.gated != "no")
        is_alone = self._looked is not None and self._looked.place == "alone"
        self.find_draft.setVisible(has_model and not is_alone)
        self.get.setVisible(self.repository is not None or draft is not None)
        self.get.setEnabled((has_model and not is_alone and not self._is_looking) or draft is not None)
        self._refresh_head()
        if (head := self.head()) is not None:
            self.get.setText(f"Get with MTP head (+{size_text(head.size)})")
        elif draft is None:
            self.get.setText("Get")
        else:
            size = size_text(draft.model.size)
            self.get.setText(f"Get with draft (+{size})" if has_model else f"Get this draft ({size})")

    def _refresh_head(self) -> None:
        found = self._looked
        is_offered = found is not None and found.head is not None and found.can_run
        self._with_head.setVisible(is_offered and self.draft() is None)
        if found is not None and found.head is not None:
            self._with_head.setText(f"With its MTP head, {size_text(found.head.size)}")
        projector = found.projector if found is not None else None
        self._with_images.setVisible(projector is not None)
        if projector is not None:
            self._with_images.setText(f"With images: its projector, {size_text(projector.size)}")
        text = "Looking for what belongs to it…" if self._is_looking else ""
        show_text(self._head, _head_text(found) if found is not None else text)


_PIECES = (
    "Some models are in pieces, such as “.part1of2”, which Slipstream doesn’t download. Download them in a browser "
    "into the models folder: the library can join them."
)
_ALONE = "This file is an MTP head without its model, so there is nothing to chat with. Choose the model instead."


def _head_text(found: HubModel) -> str:
    """What there is to say about a model's head, besides offering it."""
    if found.place == "alone":
        return _ALONE
    if found.place == "inside":
        use = "It drafts, without a second model." if found.can_run else "This version can't use it yet."
        return f"MTP head inside. {use}"
    if found.head is not None and not found.can_run:
        return f"There is an MTP head for it ({size_text(found.head.size)}), which this version can't use yet."
    return ""


def _sentence(draft: DraftCandidate) -> str:
    """What is known about it, in one line."""
    parts = (f"{printable(draft.repository)}:", draft.verdict.reason, draft.verdict.warning, draft.verdict.note)
    return " ".join(part for part in parts if part)
