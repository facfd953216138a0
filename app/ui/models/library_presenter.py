"""Connects the tab "Library" with the models on this computer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Slot

from app.errors import KnownError
from app.models.downloads.disk import free_bytes
from app.models.library.entry import LibraryEntry
from app.models.library.folders import FolderKind, ModelFolder
from app.models.ranking import Ranking
from app.models.text import printable, size_text
from app.settings import Settings
from app.ui.models.commands import ModelCommands
from app.ui.models.library_list import LibraryRow, row_of
from app.ui.models.library_service import LibraryService, models_folder
from app.ui.models.library_tab import LibraryTab
from app.ui.models.reveal import reveal
from app.ui.widgets.questions import ask

_CHECKED = {
    True: ("✓ Complete · checksum verified", "good"),
    False: (
        (
            "The checksum doesn't match, so the file is not what was published. Delete it and download it again; don't "
            "load it."
        ),
        "bad",
    ),
    None: ("Slipstream doesn't know the checksums of all its files, so they can't be verified.", "warning"),
}
"""The result for a checked file, and its text role."""


class LibraryPresenter(QObject):
    """Fills the tab and carries out its commands."""

    def __init__(
        self,
        tab: LibraryTab,
        service: LibraryService,
        values: Settings,
        commands: ModelCommands,
        find_drafts: Callable[[LibraryEntry], object],
        parent: QObject | None = None,
    ) -> None:
        """``find_drafts`` looks for drafts for a model on Hugging Face."""
        super().__init__(parent)
        self._tab = tab
        self._page = tab.page
        self._service = service
        self._values = values
        self._commands = commands
        self._find_drafts = find_drafts
        self._checking: set[str] = set()
        """Paths of the models being checked or waiting for it."""
        self._checked: dict[str, tuple[str, str]] = {}
        """The result of a check: a sentence and its role, shown when the model is selected."""
        self._deleted = ""
        """The model that was deleted last, until another one is selected."""
        service.scanned.connect(self.refresh)
        service.scan_failed.connect(self._on_scan_failed)
        service.progressed.connect(self._on_progressed)
        tab.again.clicked.connect(self.scan)
        tab.list.chosen.connect(self._on_chosen)
        tab.list.opened.connect(self._on_opened)
        page = self._page
        page.open.clicked.connect(lambda: commands.open_pair(page.path()))
        page.pair_requested.connect(commands.load_pair)
        page.find_draft.clicked.connect(self._on_find)
        page.reveal.triggered.connect(lambda: reveal(Path(page.path()), service))
        page.join.clicked.connect(self._on_join)
        page.verify.triggered.connect(self._on_verify)
        page.stop.clicked.connect(lambda: service.stop(page.path()))
        page.delete.triggered.connect(self._on_delete)

    @Slot()
    def scan(self) -> None:
        """Scan the folders again."""
        self._tab.show_scanning()
        self._service.scan()
        self._service.find(lambda found: self._tab.show_offer(offer(found)))

    @Slot()
    def refresh(self) -> None:
        """Show what is known now: after a scan, a trial, or a change of memory."""
        service, folder = self._service, models_folder(self._values)
        entries, now = service.entries(), time.time()

        def make() -> tuple[list[LibraryRow], str]:
            rows = [row_of(entry, service.fit(entry), now) for entry in entries]
            return rows, "\n".join([_summary(entries, _free(folder)), *service.notices()])

        service.compute(make, self._show_rows)

    def _show_rows(self, made: tuple[list[LibraryRow], str]) -> None:
        self._tab.show_rows(*made)
        self._show_page()

    # ------------------------------------------------------------ the page

    @Slot(str)
    def _on_chosen(self) -> None:
        self._show_page()
        path = self._page.path()
        self._page.show_verifying(0.0 if path in self._checking else None)
        self._page.show_status(*self._checked.get(path, ("",)))

    def _show_page(self) -> None:
        entry = self._service.entry(self._tab.list.path())
        if entry is None:
            self._page.clear(self._deleted)
            return
        self._deleted = ""
        self._page.show_model(entry, self._service.fit(entry), self._service.would_free(entry))
        if entry.usable:
            path = str(entry.path)
            self._service.rank(entry, lambda ranking: self._on_ranked(path, ranking))
        else:
            self._page.show_drafts([])

    def _on_ranked(self, path: str, ranking: Ranking) -> None:
        if self._page.path() != path:
            return
        fitting = sum(one.verdict.fits for one in ranking.drafts)
        status = "" if fitting else "No other model in the library has a matching vocabulary."
        self._page.show_drafts(ranking.drafts, status, ranking.own_head)

    @Slot(str)
    def _on_opened(self, path: str) -> None:
        entry = self._service.entry(path)
        if entry is not None and entry.usable:
            self._commands.open_pair(path)

    @Slot()
    def _on_find(self) -> None:
        if (entry := self._service.entry(self._page.path())) is not None:
            self._find_drafts(entry)

    # ------------------------------------------------------------ files

    @Slot()
    def _on_verify(self) -> None:
        path = self._page.path()
        entry = self._service.entry(path)
        if entry is None or path in self._checking:
            return
        self._checking.add(path)
        self._checked.pop(path, None)
        self._page.show_status("")
        self._page.show_verifying(0.0)
        self._service.verify(
            entry,
            lambda is_right: self._end_check(path, *_CHECKED[is_right]),
            lambda error: self._end_check(path, str(error), "warning"),
        )

    @Slot()
    def _on_join(self) -> None:
        path = self._page.path()
        entry = self._service.entry(path)
        if entry is None or path in self._checking:
            return

        def done(whole: Path) -> None:
            self._checking.discard(path)
            self._deleted = f"{printable(whole.name, 120)} is one file now."
            self.scan()

        def begin() -> None:
            self._checking.add(path)
            self._page.show_verifying(0.0)
            self._service.join(entry, done, lambda error: self._end_check(path, str(error), "warning"))

        ask(
            self._tab,
            "Join pieces",
            f"Join the {len(entry.parts)} pieces of {printable(entry.title, 120)} to one file? This needs "
            f"{size_text(entry.size)} of free disk space. The pieces are deleted once the whole file is complete.",
            safe={"Join": begin},
        )

    @Slot(str, float)
    def _on_progressed(self, path: str, share: float) -> None:
        if path in self._checking and path == self._page.path():
            self._page.show_verifying(share)

    def _end_check(self, path: str, text: str, role: str) -> None:
        self._checking.discard(path)
        self._checked[path] = text, role
        if path == self._page.path():
            self._page.show_verifying(None)
            self._page.show_status(text, role)

    @Slot()
    def _on_delete(self) -> None:
        entry = self._service.entry(self._page.path())
        if entry is None:
            return
        if entry.folder.kind is FolderKind.STARTER:
            self._deleted = "The starter model is hidden now. File → Starter model brings it back."
            self._commands.hide_starter()
            return
        if not entry.available:
            self._service.forget(entry)  # nothing is deleted, and it comes back with its folder
            return
        if any(self._commands.is_loaded(str(part)) for part in entry.parts):
            self._page.show_status("This model is loaded. Open another model first, then delete this one.", "warning")
            return
        title, freed = printable(entry.file_title, 120), size_text(self._service.would_free(entry))

        def done(freed: int) -> None:
            self._deleted = f"{title} was deleted. {size_text(freed)} of disk space was freed."
            self.scan()

        def failed(error: KnownError) -> None:
            self._page.show_status(str(error), "bad")

        ask(
            self._tab,
            "Delete model",
            f"Delete {title}? This frees {freed} and can't be undone.",
            lossy={"Delete": lambda: self._service.delete(entry, done, failed)},
        )

    @Slot(object)
    def _on_scan_failed(self, error: KnownError) -> None:
        self._tab.show_rows([], str(error))


def _summary(entries: Sequence[LibraryEntry], free: int | None) -> str:
    """``12 models, 48 GB · 210 GB free in the models folder``."""
    there = [entry for entry in entries if entry.available]
    text = f"{len(there)} model{'' if len(there) == 1 else 's'}, {size_text(sum(entry.size for entry in there))}"
    if away := len(entries) - len(there):
        text += f" · {away} in folders that aren't available"
    return text if free is None else f"{text} · {size_text(free)} free in the models folder"


def offer(found: Sequence[ModelFolder]) -> str:
    """``Models from LM Studio and Ollama were found on this computer. Choose Folders… to add them (read only).``"""
    names = list(dict.fromkeys(folder.kind.label for folder in found))
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Models from {listed} were found on this computer. Choose Folders… to add them (read only)."


def _free(folder: Path) -> int | None:
    with contextlib.suppress(KnownError):
        return free_bytes(folder)
    return None
