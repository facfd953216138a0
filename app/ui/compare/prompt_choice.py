"""Which prompts are compared, how often and how far: the upper part of the tab "Prompt set"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Signal, Slot
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QFileDialog,
    QGridLayout,
    QPushButton,
    QRadioButton,
    QSpinBox,
    QWidget,
)

from app.compare import prompts
from app.compare.prompts import Prompt
from app.errors import KnownError
from app.ui.widgets.controls import ElidedLabel, explain, label
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING

MOST_KINDS = 16
"""With more kinds than this in a file all of them are taken."""
DEFAULT_LONGEST = 128
_A_ROW = 8
_FILES = "Prompts (*.txt *.jsonl *.json);;All files (*)"
_FILE_HELP = (
    "A text file with one prompt a line; a .jsonl file with an object a line: "
    '{"kind": "code", "prompt": "…"} or {"kind": "code", "messages": [{"role": "user", "content": "…"}]}; '
    "or a comparison that was exported as JSON."
)


@dataclass(frozen=True)
class SetChoice:
    """A set of prompts to compare. ``path`` is the file it came from; ``is_bundled``: one that Slipstream brings."""

    prompts: tuple[Prompt, ...]
    path: Path
    is_bundled: bool
    kinds: tuple[str, ...]
    """Empty: all."""
    repeats: int
    longest: int


class PromptChoice(QWidget):
    """Attributes:
        kinds: The boxes of the kinds of text; other ones for each file.

    Signals:
        changed: The prompts are those of another file.
        failed: A file cannot be used, and why, in words for the user.
    """

    changed = Signal()
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._path = prompts.bundled_file()
        self._prompts: list[Prompt] = []
        self._own: tuple[Path, list[Prompt]] | None = None
        self._boxes: dict[str, QCheckBox] = {}
        self.kinds = QButtonGroup(self, exclusive=False)
        self._bundled = QRadioButton("Bundled")
        explain(self._bundled, "Prompts that come with Slipstream: three of each kind of text.")
        self._from_file = QRadioButton("From a file")
        explain(self._from_file, _FILE_HELP)
        self._choose = QPushButton("Choose file…")
        explain(self._choose, f"{_FILE_HELP} A file can also be dropped here.")
        self._file = ElidedLabel("quiet")
        kinds = self._kinds_box = QWidget()
        kinds.setMinimumWidth(1)  # what is in it would keep the window wide: it takes more rows instead
        self._kinds_grid = QGridLayout(kinds)
        self._kinds_grid.setContentsMargins(0, 0, 0, 0)
        self._kinds_grid.setHorizontalSpacing(4 * SPACING)
        self._kinds_grid.setVerticalSpacing(0)
        self._repeats = _spin("Repeats", 1, 20, 1, 1)
        explain(self._repeats, "How often each prompt is compared, each time with another seed.")
        self._longest = _spin("Longest answer", 16, 8192, 16, DEFAULT_LONGEST)
        explain(self._longest, "Tokens after which an answer is cut. Below about 60 a speed is rough.")
        self._lay_out()
        self._bundled.setChecked(True)
        self._bundled.clicked.connect(self._take_bundled)
        self._from_file.clicked.connect(self._on_from_file)
        self._choose.clicked.connect(self.choose_file)
        self._take_bundled()

    def choice(self) -> SetChoice:
        """What is chosen; there may be no prompts in it."""
        kinds = tuple(kind for kind, box in self._boxes.items() if box.isChecked())
        taken = tuple(one for one in self._prompts if not self._boxes or one.kind in kinds)
        return SetChoice(
            prompts=taken,
            path=self._path,
            is_bundled=self._bundled.isChecked(),
            kinds=() if len(taken) == len(self._prompts) else kinds,
            repeats=self._repeats.value(),
            longest=self._longest.value(),
        )

    @Slot()
    def choose_file(self) -> None:
        """Ask for a file of prompts."""
        folder = str(self._own[0].parent) if self._own else ""
        name, _ = QFileDialog.getOpenFileName(self, "Prompts to compare", folder, _FILES)
        if name:
            self.open_file(Path(name))
        else:
            self._show_source()

    def open_file(self, path: Path) -> None:
        """Take the prompts of a file, or say why that cannot be."""
        try:
            found = prompts.read(path)
        except KnownError as error:
            self._show_source()
            self.failed.emit(str(error))
            return
        self._own = path, found
        self._take(path, found)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        source = row(self._bundled, self._from_file, self._choose, (self._file, 1), gap=4 * SPACING)
        space = 4 * SPACING
        numbers = row(label("Repeats"), self._repeats, space, label("Longest answer"), self._longest, space, None)
        column(source, self._kinds_box, numbers, on=self)

    @Slot()
    def _take_bundled(self) -> None:
        try:
            self._take(prompts.bundled_file(), prompts.bundled())
        except KnownError as error:
            self.failed.emit(str(error))

    def _take(self, path: Path, found: list[Prompt]) -> None:
        self._path, self._prompts = path, found
        self._offer_kinds(list(dict.fromkeys(one.kind for one in found)))
        self._show_source()
        self.changed.emit()

    def _offer_kinds(self, kinds: Sequence[str]) -> None:
        for box in self._boxes.values():
            self.kinds.removeButton(box)
            self._kinds_grid.removeWidget(box)
            box.deleteLater()
        self._boxes = {}
        for kind in kinds if 1 < len(kinds) <= MOST_KINDS else ():
            box = QCheckBox(kind.replace("&", "&&"))
            box.setAccessibleName(f"Kind: {kind}")
            box.setChecked(True)
            self.kinds.addButton(box)
            self._boxes[kind] = box
        self._place_kinds()

    def _place_kinds(self) -> None:
        """As many a row as fit."""
        boxes = list(self._boxes.values())
        widest = max((box.sizeHint().width() for box in boxes), default=0) + self._kinds_grid.horizontalSpacing()
        a_row = max(1, min(_A_ROW, (self.width() + self._kinds_grid.horizontalSpacing()) // max(widest, 1)))
        for place, box in enumerate(boxes):
            self._kinds_grid.addWidget(box, place // a_row, place % a_row)
        for place in range(_A_ROW):
            self._kinds_grid.setColumnStretch(place, 1 if place < a_row else 0)

    def _show_source(self) -> None:
        is_own = self._own is not None and self._path == self._own[0]
        self._bundled.setChecked(not is_own)
        self._from_file.setChecked(is_own)
        count = f"{len(self._prompts):,} prompts"
        self._file.setText(f"{self._path.name}, {count}" if is_own else count)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_kinds()

    @Slot()
    def _on_from_file(self) -> None:
        if self._own is not None:
            self._take(*self._own)
        else:
            self.choose_file()


def _spin(name: str, low: int, high: int, step: int, value: int) -> QSpinBox:
    box = QSpinBox(minimum=low, maximum=high, singleStep=step, value=value)
    box.setAccessibleName(name)
    return box
