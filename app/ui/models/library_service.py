"""The library outside the window's thread: scanning folders, ranking drafts, checking and deleting files."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QObject, QProcess, QUrl, Signal, Slot
from PySide6.QtGui import QDesktopServices

from app import system
from app.models.machine_memory import MachineMemory
from app.models.measurements import trials_file
from app.models.starter import starter_file
from app.protocol.events import PairLoaded
from app.settings import Settings
from app.system import windows_program
from app.ui.engine.pair_names import is_guide
from app.ui.models.fit import UNKNOWN_FIT, FitBadge, badge_for
from app.ui.widgets.tasks import Failed, Lane

_PROGRESS_SHARE = 0.002
"""Smaller steps of progress aren't reported."""
_PATIENCE_SECONDS = 5.0
"""Seconds to wait for running work at exit."""

if TYPE_CHECKING:
    from app.models.library.folders import ModelFolder
    from app.models.library.library import Library, LibraryEntry
    from app.models.ranking import Ranking

T = TypeVar("T")


def models_folder(values: Settings) -> Path:
    """Where downloaded models are stored."""
    from app.models.library.library import own_folder

    return own_folder(values.models_folder)


class LibraryService(QObject):
    """One for the app. Short tasks run in one thread in order, long ones (a checksum) in another.

    Attributes:
        machine: The current memory; may be called from any thread.
        trials: Measurements of pairs; safe from any thread.

    Signals:
        scanned: The `LibraryEntry`s of the last scan.
        scan_failed: A `KnownError`.
        progressed: How far the check of this file is, 0 to 1.
    """

    scanned = Signal(list)
    scan_failed = Signal(object)
    progressed = Signal(str, float)

    def __init__(self, values: Settings, machine: Callable[[], MachineMemory], parent: QObject | None = None) -> None:
        """``machine`` returns the current memory; called from another thread."""
        super().__init__(parent)
        self.machine = machine
        self._fits: dict[str, FitBadge] = {}
        self._frees: dict[str, int] = {}
        self._values = values
        self.trials = trials_file(system.data_dir())
        self._made: Library | None = None
        self._looked_into: tuple[Path, list[Path]] | None = None
        self._scanning: Future[Any] | None = None
        self._entries: list[LibraryEntry] = []
        self._lane = Lane(self, "library")
        self._slow_lane = Lane(self, "library files")
        self._stops: dict[str, threading.Event] = {}
        """To stop checks, by the path in `progressed`."""

    # ------------------------------------------------------------ state

    def entries(self) -> list[LibraryEntry]:
        """The entries of the last scan."""
        return list(self._entries)

    def entry(self, path: str) -> LibraryEntry | None:
        return next((entry for entry in self._entries if str(entry.path) == path), None)

    def fit(self, entry: LibraryEntry) -> FitBadge:
        """Whether a model fit in the memory at the last scan."""
        return self._fits.get(str(entry.path), UNKNOWN_FIT)

    def notices(self) -> list[str]:
        """Messages for the user about the last scan."""
        return list(self._library.notices)

    def would_free(self, entry: LibraryEntry) -> int:
        """Bytes that deleting it would free, as of the last scan."""
        return self._frees.get(str(entry.path), 0)

    # ------------------------------------------------------------ slow work

    def scan(self) -> None:
        """Scan all configured folders; `scanned` or `scan_failed` follows."""
        if self._scanning is not None:
            self._scanning.cancel()  # one that hasn't started
        if self._folders() != self._looked_into:
            self._made = None
        library = self._library

        def scan() -> tuple[list[LibraryEntry], dict[str, FitBadge], dict[str, int]]:
            entries = library.scan(self._lane.is_closed)
            return entries, self._badges(entries), {str(entry.path): library.would_free(entry) for entry in entries}

        self._scanning = self._lane.submit(scan, self._on_scanned, self.scan_failed.emit)

    def judge_again(self) -> None:
        """Update which models fit in the current memory; `scanned` follows."""
        entries = self.entries()
        self._lane.submit(lambda: self._badges(entries), self._on_judged)

    def find(self, done: Callable[[list[ModelFolder]], None]) -> None:
        """Folders of other apps that aren't in the library yet."""
        library = self._library

        def find() -> list[ModelFolder]:
            from app.models.library.folders import found_folders

            known = {folder.path for folder in library.folders()}
            return [one for one in found_folders() if one.path not in known]

        self._lane.submit(find, done)

    def compute(self, function: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run something that would block the window."""
        self._lane.submit(function, done)

    def reveal(self, path: Path) -> None:
        """Show a folder, or a file (selected if possible), in the system's file manager."""
        self._lane.submit(path.is_dir, partial(_reveal, path))

    def rank(self, target: LibraryEntry, done: Callable[[Ranking], None]) -> None:
        """Rank all other models as drafts for ``target``, and get the measurement of its own head."""
        library, entries = self._library, self.entries()

        def rank() -> Ranking:
            from app.models.ranking import Judge, Ranking, rank_drafts, trial_of_own_head

            ranked = rank_drafts(target, entries, self.trials, Judge(library.differences))
            library.save()
            return Ranking(ranked, trial_of_own_head(target, self.trials))

        self._lane.submit(rank, done)

    def ask(
        self, question: Callable[[Library], T], done: Callable[[T], None] | None = None, failed: Failed | None = None
    ) -> None:
        """Run a short task."""
        self._lane.submit(partial(question, self._library), done, failed)

    def check(
        self,
        path: str,
        work: Callable[[Library, Callable[[int, int], None], Callable[[], bool]], T],
        done: Callable[[T], None],
        failed: Failed,
    ) -> None:
        """Run a task of minutes on the file at ``path``, until `stop`. ``work`` also gets functions to report progress
        (bytes done and total) and to check whether to stop.
        """
        library, stop, told = self._library, threading.Event(), -1.0
        self._stops[path] = stop

        def tell(done: int, total: int) -> None:
            nonlocal told
            share = done / total if total else 1.0
            if share - told >= _PROGRESS_SHARE or share == 1.0:
                told = share
                self._slow_lane.post(lambda: self.progressed.emit(path, share))

        self._slow_lane.submit(lambda: work(library, tell, stop.is_set), done, failed)

    @Slot(object)
    def note_pair(self, pair: PairLoaded | None) -> None:
        """Called when a pair was loaded."""
        if pair is not None and pair.remote is None and not is_guide(pair.target.path):
            files = [model.path for model in pair.models]
            self.ask(lambda library: library.note_use(files))

    def stop(self, path: str) -> None:
        """Stop the check of this file; its ``failed`` is called."""
        if path in self._stops:
            self._stops[path].set()

    def close(self) -> None:
        """End everything; what was found is stored, unless a drive doesn't respond."""
        for stop in self._stops.values():
            stop.set()
        for lane in (self._lane, self._slow_lane):
            lane.close(_PATIENCE_SECONDS)

    def _folders(self) -> tuple[Path, list[Path]]:
        """The models folder and the others, from the settings."""
        starter = None if self._values.starter_hidden else starter_file()
        others = [Path(folder) for folder in self._values.extra_folders]
        return models_folder(self._values), [*others, *([starter.parent] if starter else [])]

    @property
    def _library(self) -> Library:
        """The library with the configured folders; imported on first use."""
        if self._made is None:
            from app.models.library.library import Library

            self._looked_into = self._folders()
            self._made = Library(*self._looked_into, system.data_dir())
        return self._made

    def _badges(self, entries: list[LibraryEntry]) -> dict[str, FitBadge]:
        machine = self.machine()
        return {
            str(entry.path): badge_for(entry.summary.shape, machine)
            for entry in entries
            if entry.usable and entry.summary is not None
        }

    def _on_scanned(self, found: tuple[list[LibraryEntry], dict[str, FitBadge], dict[str, int]]) -> None:
        self._entries, self._fits, self._frees = found
        self.scanned.emit(self._entries)

    def _on_judged(self, fits: dict[str, FitBadge]) -> None:
        self._fits |= fits  # a scan that ended meanwhile may have found others
        self.scanned.emit(self._entries)


def _reveal(path: Path, is_folder: bool) -> None:
    if is_folder:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))
    elif sys.platform == "win32":
        # Explorer has its own syntax for this, which QProcess would quote.
        subprocess.Popen(f'"{windows_program("explorer.exe")}" /select,"{path}"')
    elif sys.platform == "darwin":
        QProcess.startDetached("/usr/bin/open", ["-R", str(path)])
    else:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(path.parent)))
