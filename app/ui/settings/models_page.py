"""Settings → Models: where models are stored, and where else to look for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPushButton, QWidget

from app.models.library.folders import ModelFolder
from app.models.text import printable
from app.ui.widgets.controls import clear_layout, label, plain_tooltip, small_button
from app.ui.widgets.layouts import LEFT, TOP, column, row
from app.ui.widgets.theme import SPACING

_OTHERS = "Models in these folders appear in your library. Slipstream never changes or deletes anything there."


class ModelsPage(QWidget):
    """Shows folders and says what the user wants with them.

    Attributes:
        change, reveal, add: The buttons of the models folder and of the other folders.
    """

    def __init__(self, add: Callable[[str], object], remove: Callable[[str], object]) -> None:
        """``add`` and ``remove`` add a folder to the library or remove it."""
        super().__init__()
        self._add_folder, self._remove_folder = add, remove
        self._folder = QLineEdit(readOnly=True)
        self._folder.setAccessibleName("Models folder")
        self.change = QPushButton("Change…", autoDefault=False)
        self.change.setAccessibleName("Change the models folder")
        self.reveal = QPushButton("Show", autoDefault=False)
        self.reveal.setToolTip("Show the folder in the file manager")
        self.reveal.setAccessibleName("Show the models folder in the file manager")
        self._others = column(gap=-1)
        self._found = column(gap=-1)
        self._found_heading = label("Found on this computer", "heading")
        self.add = QPushButton("Add a folder…", autoDefault=False)
        self._lay_out()

    # ------------------------------------------------------------ what is shown

    def show_folder(self, path: str) -> None:
        self._folder.setText(path)
        self._folder.setCursorPosition(0)
        self._folder.setToolTip(plain_tooltip(path))

    def show_extra_folders(self, folders: Sequence[str]) -> None:
        """Folders that are scanned; nothing is written there."""
        clear_layout(self._others)
        for folder in folders:
            self._others.addLayout(self._row(folder, "", "Remove", self._remove_folder))

    def show_found(self, found: Sequence[ModelFolder]) -> None:
        """Folders of other apps that could be added."""
        clear_layout(self._found)
        for one in found:
            self._found.addLayout(self._row(str(one.path), one.kind.label, "Add", self._add_folder))
        self._found_heading.setVisible(bool(found))

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        column(
            label("Models folder", "heading"),
            label("Downloaded models are stored here. The folder can be on another disk.", "quiet", wraps=True),
            row((self._folder, 1), self.reveal, self.change),
            3 * SPACING,
            label("Other folders to look in", "heading"),
            label(_OTHERS, "quiet", wraps=True),
            self._others,
            (self.add, LEFT),
            3 * SPACING,
            self._found_heading,
            self._found,
            None,
            margins=5 * SPACING,
            on=self,
        )

    def _row(self, path: str, app: str, verb: str, act: Callable[[str], object]) -> QHBoxLayout:
        words = column(gap=0)
        if app:
            words.addWidget(label(app))
        shown = label(printable(path, 300), "quiet" if app else None, wraps=True)
        shown.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        words.addWidget(shown)
        button = small_button(verb)
        button.setAccessibleName(f"{verb} {path}")
        button.clicked.connect(lambda: act(path))
        return row((words, 1), (button, TOP))
