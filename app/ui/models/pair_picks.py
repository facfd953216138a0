"""What the two pickers of the Open models dialog offer: all models as targets, and drafts ranked for the target."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Signal, Slot
from shiboken6 import isValid

from app.errors import KnownError
from app.models.library.entry import LibraryEntry
from app.models.ranking import RankedDraft
from app.models.text import printable, size_text
from app.ui.models.library_service import LibraryService
from app.ui.models.picker import ModelPicker, Pick
from app.ui.widgets import units

_NO_TARGET = "Choose a target first."
_NO_MODELS = "No models in the library yet."
_NO_OTHERS = "No other models in the library."


class PairPicks(QObject):
    """Fills the pickers as the library and the target change.

    Signals:
        ranked: The `RankedDraft`s for the target, the most promising first.
    """

    ranked = Signal(list)

    def __init__(
        self, targets: ModelPicker, drafts: ModelPicker, library: LibraryService, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._targets = targets
        self._drafts = drafts
        self._library = library
        self._target = ""
        library.scanned.connect(self._on_scanned)
        self._drafts.show_picks([], _NO_TARGET)
        self._on_scanned()
        library.scan()

    def set_target(self, path: str) -> None:
        """The file that drafts are ranked for; empty for none."""
        self._target = path
        if not path:
            self._drafts.show_picks([], _NO_TARGET)
            return
        self._library.entry_at(path, partial(self._rank, path), partial(self._on_failed, path))

    @Slot()
    def _on_scanned(self) -> None:
        entries = sorted(self._library.entries(), key=lambda entry: entry.last_used or 0, reverse=True)
        self._targets.show_picks([_target_pick(entry) for entry in entries], _NO_MODELS)
        self.set_target(self._target)

    def _rank(self, path: str, target: LibraryEntry) -> None:
        if isValid(self) and path == self._target:
            self._library.rank(target, partial(self._on_ranked, path))

    def _on_ranked(self, path: str, ranked: list[RankedDraft]) -> None:
        if isValid(self) and path == self._target:
            self._drafts.show_picks([_draft_pick(one) for one in ranked], _NO_OTHERS)
            self.ranked.emit(ranked)

    def _on_failed(self, path: str, error: KnownError) -> None:
        if isValid(self) and path == self._target:
            self._drafts.show_picks([], str(error))


def _name(entry: LibraryEntry) -> str:
    quantization = entry.summary.quantization if entry.summary else ""
    parts = (printable(entry.title, 60), printable(quantization), size_text(entry.size))
    return " · ".join(dict.fromkeys(part for part in parts if part))


def _target_pick(entry: LibraryEntry) -> Pick:
    away = "" if entry.available else "its folder is not there"
    return Pick(str(entry.path), _name(entry), entry.usable, entry.problem or away)


def _draft_pick(ranked: RankedDraft) -> Pick:
    text, trial = _name(ranked.entry), ranked.trial
    if ranked.verdict.fits and trial is not None:
        accepted = "" if trial.acceptance_rate is None else f"{units.accepted(trial.acceptance_rate)}, "
        text += f" · {accepted}{units.factor(trial.speed_up)} here"
    elif ranked.verdict.fits and ranked.verdict.warning:
        text += " · large for a draft"
    return Pick(str(ranked.entry.path), text, ranked.verdict.fits, ranked.verdict.reason)
