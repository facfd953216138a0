"""Settings → Models: where models are kept, and where else to look for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal, SignalInstance, Slot
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.models.text import printable
from app.ui.widgets.controls import clear_layout, label, plain_tooltip, small_button
from app.ui.widgets.file_dialogs import open_in_folder
from app.ui.widgets.theme import SPACING


@dataclass(frozen=True)
class FoundFolder:
    """A folder of another app that was found here and is not looked into yet."""

    path: str
    app: str


class ModelsPage(QWidget):
    """Shows folders and says what the user wants with them.

    Signals:
        folder_chosen: Downloads shall go into this folder.
        reveal_requested: Show the models folder in the file manager.
        folder_added, folder_removed: Look into this folder too, or no more.
        move_cancelled: Stop moving models to the new folder.
    """

    folder_chosen = Signal(str)
    reveal_requested = Signal()
    folder_added = Signal(str)
    folder_removed = Signal(str)
    move_cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._folder = QLineEdit(readOnly=True)
        self._folder.setAccessibleName("Models folder")
        self._change = QPushButton("Change…")
        self._change.setAccessibleName("Change the models folder")
        self._reveal = QPushButton("Show")
        self._reveal.setToolTip("Show the folder in the file manager")
        self._reveal.setAccessibleName("Show the models folder in the file manager")
        self._moving = QProgressBar(textVisible=False)
        self._moving.setAccessibleName("Moving the models")
        self._moving.setRange(0, 1000)
        self._cancel = QPushButton("Stop moving")
        self._status = label(role="quiet", wraps=True)
        self._others = QVBoxLayout()
        self._found = QVBoxLayout()
        self._found_heading = label("Found on this computer", "heading")
        self._add = QPushButton("Add a folder…")
        for button in (self._change, self._reveal, self._cancel, self._add):
            button.setAutoDefault(False)
        self._lay_out()
        self._change.clicked.connect(self._on_change)
        self._reveal.clicked.connect(self.reveal_requested)
        self._cancel.clicked.connect(self.move_cancelled)
        self._add.clicked.connect(self._on_add)
        self.show_moving(None)
        self.show_status("")

    # ------------------------------------------------------------ what is shown

    def show_folder(self, path: str) -> None:
        self._folder.setText(path)
        self._folder.setCursorPosition(0)
        self._folder.setToolTip(plain_tooltip(path))

    def show_extra_folders(self, folders: Sequence[str]) -> None:
        """Folders that are looked into; nothing is written there."""
        clear_layout(self._others)
        for folder in folders:
            self._others.addLayout(self._row(folder, "", "Remove", self.folder_removed))

    def show_found(self, found: Sequence[FoundFolder]) -> None:
        """Folders of other apps that could be added."""
        clear_layout(self._found)
        for one in found:
            self._found.addLayout(self._row(one.path, one.app, "Add", self.folder_added))
        self._found_heading.setVisible(bool(found))

    def show_moving(self, share: float | None) -> None:
        """How much of the models has been moved, 0 to 1; ``None`` while nothing is."""
        self._moving.setVisible(share is not None)
        self._cancel.setVisible(share is not None)
        self._change.setEnabled(share is None)
        if share is not None:
            self._moving.setValue(round(share * 1000))

    def show_status(self, text: str) -> None:
        """How moving went."""
        self._status.setText(text)
        self._status.setVisible(bool(text))

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        folder = QHBoxLayout()
        folder.setSpacing(2 * SPACING)
        folder.addWidget(self._folder, 1)
        folder.addWidget(self._reveal)
        folder.addWidget(self._change)
        moving = QHBoxLayout()
        moving.setSpacing(2 * SPACING)
        moving.addWidget(self._moving, 1)
        moving.addWidget(self._cancel)
        column = QVBoxLayout(self)
        column.setContentsMargins(5 * SPACING, 5 * SPACING, 5 * SPACING, 5 * SPACING)
        column.setSpacing(2 * SPACING)
        column.addWidget(label("Models folder", "heading"))
        column.addWidget(label("Downloaded models go here. It can be on another disk.", "quiet", wraps=True))
        column.addLayout(folder)
        column.addLayout(moving)
        column.addWidget(self._status)
        column.addSpacing(3 * SPACING)
        column.addWidget(label("Also look in", "heading"))
        column.addWidget(
            label(
                "Models in these folders appear in the library. Nothing is written or deleted there.",
                "quiet",
                wraps=True,
            )
        )
        column.addLayout(self._others)
        column.addWidget(self._add, 0, Qt.AlignmentFlag.AlignLeft)
        column.addSpacing(3 * SPACING)
        column.addWidget(self._found_heading)
        column.addLayout(self._found)
        column.addStretch(1)

    def _row(self, path: str, app: str, verb: str, signal: SignalInstance) -> QHBoxLayout:
        words = QVBoxLayout()
        words.setSpacing(0)
        if app:
            words.addWidget(label(app))
        shown = label(printable(path, 300), "quiet" if app else None, wraps=True)
        shown.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        words.addWidget(shown)
        button = small_button(verb)
        button.setAccessibleName(f"{verb} {path}")
        button.clicked.connect(lambda: signal.emit(path))
        row = QHBoxLayout()
        row.setSpacing(2 * SPACING)
        row.addLayout(words, 1)
        row.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)
        return row

    @Slot()
    def _on_change(self) -> None:
        self._ask_folder("Choose the models folder", self.folder_chosen)

    @Slot()
    def _on_add(self) -> None:
        self._ask_folder("Choose a folder with models", self.folder_added)

    def _ask_folder(self, title: str, signal: SignalInstance) -> None:
        dialog = QFileDialog(self, title)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.fileSelected.connect(signal)
        open_in_folder(dialog, self._folder.text())
