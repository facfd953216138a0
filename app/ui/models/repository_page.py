"""One repository on Hugging Face: its models by quantization, and drafts that fit the chosen one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QPushButton,
    QWidget,
)

from app.models.hub.drafts import DraftCandidate
from app.models.hub.repository import RemoteModel, Repository
from app.models.text import printable, size_text
from app.ui.models.fit_badge import UNKNOWN_FIT, FitBadge
from app.ui.widgets import theme
from app.ui.widgets.controls import label, small_button
from app.ui.widgets.layouts import column, row
from app.ui.widgets.table import Table
from app.ui.widgets.theme import SPACING

_Row: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], str]
"""What stands in a line, the colors of its cells, its tooltip."""
_GATED = {
    "automatic": "Gated: accept its terms on its page, then enter an access token.",
    "manual": "Gated: its owner decides who may download it. Ask on its page, then enter an access token.",
}


class RepositoryPage(QWidget):
    """Shows files and asks for them.

    Attributes:
        token: The button "Enter a token…".

    Signals:
        get_requested: The `Repository`, the `RemoteModel`, and the `DraftCandidate` to get with it or ``None``.
        model_chosen: A `RemoteModel` was selected.
        drafts_requested: Find drafts for this `RemoteModel` of this `Repository`.
        file_chosen: Another model is chosen; drafts for the one before are not wanted any more.
        page_requested: Open the page of the repository with this id in the browser.
    """

    get_requested = Signal(object, object, object)
    model_chosen = Signal(object)
    drafts_requested = Signal(object, object)
    file_chosen = Signal()
    page_requested = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        theme.set_role(self, "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._repository: Repository | None = None
        self._title = label(role="heading", wraps=True, scale=1.15)
        self._facts = label(role="quiet", wraps=True)
        self._gated = label(role="warning", wraps=True)
        self._files = Table("Files", ["Quantization", "Size", "Fits"], right=(1, 2))
        self._drafts = Table("Drafts found", ["Draft", "Size", "Fits"], right=(1, 2))
        self._drafts_status = label(role="quiet", wraps=True)
        self._reason = label(role="quiet", wraps=True)
        self._page = small_button("Open its page")
        self.token = small_button("Enter a token…")
        self._find = QPushButton("Find a draft for this")
        self._get = QPushButton("Get")
        theme.set_role(self._get, "primary")
        self._lay_out()
        self._page.clicked.connect(self._on_page)
        self._find.clicked.connect(self._on_find)
        self._get.clicked.connect(self._on_get)
        self._files.itemSelectionChanged.connect(self._on_file_selected)
        self._drafts.itemSelectionChanged.connect(self._refresh)
        self.clear()

    # ------------------------------------------------------------ what is shown

    def clear(self, message: str = "Choose a repository to see its files.") -> None:
        """Show no repository."""
        self._repository = None
        self._title.setText("")
        self._facts.setText(message)
        self._gated.hide()
        self._files.clear()
        self._files.hide()
        self.show_drafts_status("")
        self._clear_drafts()
        self._refresh()

    def show_repository(self, repository: Repository, fits: Mapping[RemoteModel, FitBadge]) -> None:
        self.clear("")
        self._repository = repository
        self._title.setText(printable(repository.id, 200))
        licence = printable(repository.licence) if repository.licence else "not given"
        self._facts.setText(f"Licence: {licence} · commit {repository.commit[:8]}")
        self._gated.setText(_GATED.get(repository.gated, ""))
        self._gated.setVisible(bool(self._gated.text()))
        for model in repository.models:
            line = _row_of(model, fits.get(model, UNKNOWN_FIT))
            self._files.dress(self._files.add(line[0], model), *line)
        self._files.setVisible(bool(repository.models))
        if not repository.models:
            self._facts.setText(f"{self._facts.text()}\nThere are no GGUF models in it.")
        self._refresh()

    def show_local_target(self, title: str) -> None:
        """Drafts are looked for, for a model that is on this computer."""
        self.clear(f"Drafts for {printable(title, 120)}, which is in the library.")

    def begin_drafts(self) -> None:
        """A search for drafts begins."""
        self._clear_drafts()
        self.show_drafts_status("Looking for drafts: their vocabularies are read and compared …")

    def show_fit(self, model: RemoteModel, fit: FitBadge) -> None:
        """Whether this model fits has become known."""
        if (item := self._files.item_of(model)) is not None:
            self._files.dress(item, *_row_of(model, fit))

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
        """How the search for drafts goes, or how it ended."""
        self._drafts_status.setText(text)
        self._drafts_status.setVisible(bool(text))

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        column(
            self._title,
            self._facts,
            self._gated,
            row(self._page, self.token, None),
            (self._files, 2),
            self._drafts_status,
            (self._drafts, 1),
            self._reason,
            row(None, self._find, self._get),
            margins=4 * SPACING,
            on=self,
        )
        self.setMinimumWidth(300)

    def _clear_drafts(self) -> None:
        self._drafts.clear()
        self._drafts.hide()

    @Slot()
    def _on_file_selected(self) -> None:
        self.file_chosen.emit()
        self._clear_drafts()
        self.show_drafts_status("")
        self._refresh()
        if (model := self._files.chosen()) is not None:
            self.model_chosen.emit(model)

    @Slot()
    def _refresh(self) -> None:
        has_model = self._files.chosen() is not None
        chosen, offer = self._drafts.chosen(), self._offer()
        self._reason.setText(_sentence(chosen) if isinstance(chosen, DraftCandidate) else "")
        self._reason.setVisible(bool(self._reason.text()))
        self._page.setVisible(self._repository is not None)
        self.token.setVisible(self._repository is not None and self._repository.gated != "no")
        self._find.setVisible(has_model)
        self._get.setVisible(self._repository is not None or offer is not None)
        self._get.setEnabled(has_model or offer is not None)
        if offer is None:
            self._get.setText("Get")
        else:
            size = size_text(offer.model.size)
            self._get.setText(f"Get with draft (+{size})" if has_model else f"Get this draft ({size})")

    def _offer(self) -> DraftCandidate | None:
        chosen = self._drafts.chosen()
        return chosen if isinstance(chosen, DraftCandidate) and chosen.verdict.fits else None

    @Slot()
    def _on_page(self) -> None:
        if self._repository is not None:
            self.page_requested.emit(self._repository.id)

    @Slot()
    def _on_find(self) -> None:
        self.drafts_requested.emit(self._repository, self._files.chosen())

    @Slot()
    def _on_get(self) -> None:
        self.get_requested.emit(self._repository, self._files.chosen(), self._offer())


def _sentence(draft: DraftCandidate) -> str:
    """What is known about it, in one line."""
    parts = (f"{printable(draft.repository)}:", draft.verdict.reason, draft.verdict.warning, draft.verdict.note)
    return " ".join(part for part in parts if part)


def _row_of(model: RemoteModel, fit: FitBadge) -> _Row:
    name = model.quantization or printable(model.name)
    if len(model.files) > 1:
        name = f"{name} · {len(model.files)} parts"
    cells = (name, size_text(model.size), fit.text)
    return cells, ("", "", fit.mood), "\n".join((model.name, fit.detail)).strip()
