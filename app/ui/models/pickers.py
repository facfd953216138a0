"""The rows of the Open models dialog for the model files, and the library's suggestions for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QLineEdit, QMenu, QPushButton, QToolButton, QWidget
from shiboken6 import isValid

from app import words
from app.errors import KnownError
from app.models.library.entry import LibraryEntry
from app.models.ranking import RankedDraft, Ranking
from app.models.text import printable, size_text, visible
from app.models.trials import Trial
from app.ui.models.library_service import LibraryService
from app.ui.widgets import icons
from app.ui.widgets.controls import explain, label, plain_tooltip, push_button
from app.ui.widgets.layouts import column, row
from app.ui.widgets.questions import open_in_folder
from app.ui.widgets.theme import SPACING

FILE_FILTER = "GGUF models (*.gguf)"
_TYPING_MS = 300
MOST, MOST_GRAY = 30, 12
"""How many models a picker lists, of those that can be chosen and of those that can't; more would fill the screen."""
_NO_TARGET = "Choose a target model first."


def dropped_files(data: QMimeData) -> list[str]:
    """Paths of the GGUF files that are being dragged."""
    paths = [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
    return [path for path in paths if path.lower().endswith(".gguf")]


class FileRow(QWidget):
    """A path that can be typed, chosen or dropped, and below it a description of the file."""

    path_changed = Signal()
    """Milliseconds: not after every key, but when the user stops typing."""

    def __init__(
        self, title: str, help_text: str, *, can_be_empty: bool, start_folder: str = "", picker: str = "Library"
    ) -> None:
        """``start_folder`` is where the file dialog opens while there is no path.

        Attributes:
            picker: Offers models of the library.
        """
        super().__init__()
        self._title = title
        self._start_folder = start_folder
        self._edit = QLineEdit(placeholderText="None" if can_be_empty else "Choose a .gguf file or drop it here")
        self._edit.setAccessibleName(title)
        choose = push_button("Choose…", self._on_choose, name=f"Choose {title.lower()}")
        self.picker = ModelPicker(picker, f"{title} from the library")
        self.picker.chosen.connect(self.set_path)
        clear = QToolButton()
        icons.set_icon(clear, "close")
        clear.setAccessibleName(f"No {title.lower()}")
        clear.setToolTip(f"No {title.lower()}")
        self._info = label(role="quiet", wraps=True)
        self._info.setMinimumHeight(self._info.fontMetrics().height())
        self._pause = QTimer(self, singleShot=True, interval=_TYPING_MS)
        heading = label(title, "heading", buddy=self._edit)
        for part in (heading, self._edit):
            explain(part, help_text)
        column(heading, row((self._edit, 1), clear, self.picker, choose), self._info, gap=SPACING, on=self)
        clear.setVisible(can_be_empty)  # now that it has a parent, or it would be a window of its own for a moment
        self.setAcceptDrops(True)
        self._edit.setAcceptDrops(False)  # it would insert the URL as text
        self._edit.textEdited.connect(self._pause.start)
        self._edit.editingFinished.connect(self._on_editing_finished)
        self._pause.timeout.connect(self._on_changed)
        clear.clicked.connect(lambda: self.set_path(""))

    def path(self) -> str:
        """The path as typed or pasted, also in quotes, as a file's address or with ``~``; empty for none."""
        typed = self._edit.text().strip().strip("'\"")
        typed = url.toLocalFile() if (url := QUrl(typed)).isLocalFile() else typed
        return str(Path(typed).expanduser()) if typed.startswith("~/") else typed

    def set_path(self, path: str) -> None:
        """Emits `path_changed` if it is a different one."""
        if path == self.path():
            return
        self._edit.setText(path)
        self._on_changed()

    def set_info(self, text: str) -> None:
        """Describe the file."""
        self._info.setText(visible(text))

    @Slot()
    def _on_editing_finished(self) -> None:
        if self._pause.isActive():
            self._on_changed()

    @Slot()
    def _on_changed(self) -> None:
        self._pause.stop()
        self.path_changed.emit()

    @Slot()
    def _on_choose(self) -> None:
        dialog = QFileDialog(self, f"Choose {self._title.lower()}", filter=FILE_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        folder = str(Path(self.path()).parent) if self.path() else self._start_folder
        dialog.fileSelected.connect(self.set_path)
        open_in_folder(dialog, folder)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(len(dropped_files(event.mimeData())) == 1)

    def dropEvent(self, event: QDropEvent) -> None:
        self.set_path(dropped_files(event.mimeData())[0])
        event.acceptProposedAction()


@dataclass(frozen=True)
class Pick:
    """One model in the menu."""

    path: str
    text: str
    can_choose: bool = True
    reason: str = ""
    """Shown after the text of an entry that can't be chosen, and as its tooltip."""


class ModelPicker(QPushButton):
    """A button with a menu of models to choose from; those that cannot be chosen are gray and say why.

    Signals:
        chosen: The path of a model.
    """

    chosen = Signal(str)

    def __init__(self, text: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(f"{text} ▾", parent, autoDefault=False)
        self.setAccessibleName(name)
        self._menu = QMenu(self, toolTipsVisible=True)
        self.setMenu(self._menu)

    def show_picks(self, picks: Sequence[Pick], otherwise: str) -> None:
        """``otherwise`` is in the menu if there are none."""
        self._menu.clear()
        choosable = [pick for pick in picks if pick.can_choose]
        gray = [pick for pick in picks if not pick.can_choose]
        self._add(choosable, MOST, "more in the model library")
        if choosable and gray:
            self._menu.addSeparator()
        self._add(gray, MOST_GRAY, "more that don't fit")
        if not picks:
            self._menu.addAction(otherwise).setEnabled(False)

    def _add(self, picks: Sequence[Pick], most: int, more: str) -> None:
        """Add the first ``most`` of them; ``more`` says what the others are."""
        for pick in picks[:most]:
            text = pick.text if pick.can_choose else f"{pick.text}: {pick.reason}"
            action = self._menu.addAction(text.replace("&", "&&"))
            action.setToolTip(plain_tooltip("\n".join(part for part in (pick.path, pick.reason) if part)))
            action.setEnabled(pick.can_choose)
            action.triggered.connect(lambda _checked=False, path=pick.path: self.chosen.emit(path))
        if len(picks) > most:
            self._menu.addAction(f"{len(picks) - most} {more}").setEnabled(False)


class PairPicks(QObject):
    """Fills the pickers as the library and the target change: all models as targets, and drafts ranked for the target.

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
        self.entry: LibraryEntry | None = None
        """The target that drafts were ranked for."""
        self._ranked: Sequence[RankedDraft] = ()
        self.own_head: Trial | None = None
        """The trial of the MTP head inside it."""
        library.scanned.connect(self._on_scanned)
        self._drafts.show_picks([], _NO_TARGET)
        self._on_scanned()
        library.scan()

    def set_target(self, path: str) -> None:
        """The file that drafts are ranked for; empty for none."""
        self._target = path
        if self.entry is not None and str(self.entry.path) != path:
            self.entry = self.own_head = None
        if not path:
            self._drafts.show_picks([], _NO_TARGET)
            return
        self._library.ask(
            lambda library: library.entry_at(Path(path)), partial(self._rank, path), partial(self._on_failed, path)
        )

    def proposal(self, *, only_head: bool) -> str:
        """The most promising draft without a warning; empty for none. A target that drafts itself needs none, unless
        one was measured to be faster. ``only_head``: only a file with the target's MTP head.
        """
        best = next((draft for draft in self._ranked if draft.verdict.fits and draft.verdict.warning is None), None)
        if best is None or (only_head and not best.entry.is_head):
            return ""
        own = self.own_head.speed_up if self.own_head else 1.0
        was_faster = best.trial is not None and best.trial.speed_up > max(1.0, own)
        drafts_itself = self.entry is not None and self.entry.drafts_itself
        return str(best.entry.path) if only_head or was_faster or not drafts_itself else ""

    @Slot()
    def _on_scanned(self) -> None:
        entries = sorted(self._library.entries(), key=lambda entry: entry.last_used or 0, reverse=True)
        self._targets.show_picks([_target_pick(entry) for entry in entries], "No models in the library yet.")
        self.set_target(self._target)

    def _rank(self, path: str, target: LibraryEntry) -> None:
        if isValid(self) and path == self._target:
            self._library.rank(target, partial(self._on_ranked, path, target))

    def _on_ranked(self, path: str, target: LibraryEntry, ranking: Ranking) -> None:
        if isValid(self) and path == self._target:
            self.entry, self.own_head, self._ranked = target, ranking.own_head, ranking.drafts
            self._drafts.show_picks([_draft_pick(one) for one in ranking.drafts], "No other models in the library.")
            self.ranked.emit(ranking.drafts)

    def _on_failed(self, path: str, error: KnownError) -> None:
        if isValid(self) and path == self._target:
            self._drafts.show_picks([], str(error))


def _name(entry: LibraryEntry) -> str:
    quantization = entry.summary.quantization if entry.summary else ""
    parts = (printable(entry.title, 60), printable(quantization), size_text(entry.size))
    return " · ".join(dict.fromkeys(part for part in parts if part))


def _target_pick(entry: LibraryEntry) -> Pick:
    away = "" if entry.available else "its folder isn't available"
    return Pick(str(entry.path), _name(entry), entry.usable, entry.problem or away)


def _draft_pick(ranked: RankedDraft) -> Pick:
    text, trial = _name(ranked.entry), ranked.trial
    if ranked.entry.is_head:
        text = f"MTP head · {text}"
    if ranked.verdict.fits and trial is not None:
        accepted = "" if trial.acceptance_rate is None else f"{words.accepted(trial.acceptance_rate)}, "
        text += f" · {accepted}{words.speed_up(trial.speed_up)} here"
    elif ranked.verdict.fits and ranked.verdict.warning:
        text += " · large for a draft"
    return Pick(str(ranked.entry.path), text, ranked.verdict.fits, ranked.verdict.reason)
