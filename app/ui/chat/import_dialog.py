"""File → Import chats…: which files, what is in them, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QStandardPaths, Qt, Signal, Slot
from PySide6.QtWidgets import QCheckBox, QDialog, QFileDialog, QLineEdit, QProgressBar, QPushButton, QWidget

from app.chats.importing import Imported, Summary
from app.errors import KnownError
from app.models.text import printable, visible
from app.ui.chat.transfers import ChatTransfers
from app.ui.widgets import theme, units
from app.ui.widgets.announcing import announce
from app.ui.widgets.controls import explain, label, show_text
from app.ui.widgets.layouts import DIALOG_MARGINS, column, row
from app.ui.widgets.questions import choose_folder, open_in_folder
from app.ui.widgets.theme import SPACING

_WIDTH, _HEIGHT = 640, 400
_STEPS = 1000
_SOURCES = (
    ("ChatGPT", "Settings, Data controls, Export data. Choose the .zip file from the email."),
    ("Claude", "Settings, Privacy, Export data. Choose the .zip file from the email."),
    ("Open WebUI", "Settings, Data controls, Export chats."),
    ("llama.cpp’s page", "Settings, Import/Export."),
    ("LM Studio", "Choose the folder “conversations” in the folder “.lmstudio”."),
    ("Jan", "Choose the folder “threads” in Jan’s data folder."),
    ("Slipstream", "Chats that were exported as Slipstream JSON or Markdown."),
    ("Other programs", "Files with ShareGPT conversations or OpenAI messages."),
)
_INTRODUCTION = (
    "Slipstream recognizes these files by their content. It reads them on this computer and sends nothing anywhere."
)
_NOTHING = "These files contain no chats that Slipstream can read."


class ImportDialog(QDialog):
    """Reads, shows a summary, and imports when that is accepted.

    Signals:
        shown_requested: The user wants to see the imported chats; has their ids.
    """

    shown_requested = Signal(object)

    def __init__(self, transfers: ChatTransfers, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Import chats")
        self._transfers = transfers
        self._paths: list[Path] = []
        self._imported: Imported | None = None
        self._is_running = False
        self._heading = label(role="heading", wraps=True, scale=1.2, bold=True)
        self._text = label(wraps=True)
        self._left_out = label(role="quiet", wraps=True)
        self._sources = _sources_part()
        self._into_folder = QCheckBox("Add to folder")
        self._folder = QLineEdit()
        self._folder_part = QWidget()
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS)
        self._choose_files = QPushButton("Choose files…")
        self._choose_folder = QPushButton("Choose folder…")
        self._import = QPushButton("Import")
        self._show = QPushButton("Show")
        self._close = QPushButton("Cancel", autoDefault=False)
        self._build()
        self._show_choice()

    def read(self, paths: Sequence[Path]) -> None:
        """Read these files and folders, and show what is in them."""
        self._paths = list(paths)
        name = printable(self._paths[0].name) if len(self._paths) == 1 else f"{units.number(len(self._paths))} files"
        self._begin(f"Reading {name}…", "Cancel")
        self._transfers.summarize(self._paths, self._on_progress, self._on_summary, self._on_failed)

    # ------------------------------------------------------------ building

    def _build(self) -> None:
        for button in (self._choose_files, self._import, self._show):
            theme.set_role(button, "primary")
        self._folder.setAccessibleName("Name of the folder")
        self._bar.setAccessibleName("Progress")
        explain(self._choose_folder, "Reads all files of a folder and of the folders in it.")
        row((self._into_folder, 0), (self._folder, 1), on=self._folder_part)
        self._into_folder.toggled.connect(self._folder.setEnabled)
        self._choose_files.clicked.connect(self._ask_for_files)
        self._choose_folder.clicked.connect(self._ask_for_folder)
        self._import.clicked.connect(self._run)
        self._show.clicked.connect(self._on_show)
        self._close.clicked.connect(self._on_close)
        buttons = row(None, self._close, self._choose_folder, self._choose_files, self._import, self._show)
        column(
            self._heading,
            self._text,
            self._sources,
            self._left_out,
            self._folder_part,
            self._bar,
            None,
            buttons,
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )
        self.resize(theme.px(_WIDTH), theme.px(_HEIGHT))

    def _arrange(self, heading: str, text: str, *shown: QWidget, close: str) -> None:
        """Show the next step: its texts and, of the parts that not every step has, these."""
        self._heading.setText(heading)
        show_text(self._text, text)
        show_text(self._left_out, "")
        parts = (self._sources, self._folder_part, self._bar)
        for part in (*parts, self._choose_files, self._choose_folder, self._import, self._show):
            part.setVisible(part in shown)
        self._close.setText(close)
        self._close.setEnabled(True)
        self._is_running = self._bar in shown
        first = next((one for one in shown if isinstance(one, QPushButton)), self._close)
        first.setDefault(True)
        first.setFocus()
        announce(self, f"{heading}. {text}")

    # ------------------------------------------------------------ steps

    def _show_choice(self) -> None:
        self._arrange(
            "Bring your chats from another app",
            _INTRODUCTION,
            *(self._sources, self._choose_files, self._choose_folder),
            close="Cancel",
        )

    def _begin(self, heading: str, close: str) -> None:
        self._bar.setValue(0)
        self._arrange(heading, "", self._bar, close=close)

    def _ask_for_files(self) -> None:
        dialog = QFileDialog(self, "Import chats")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters(["Chats (*.json *.jsonl *.md *.zip)", "All files (*)"])
        dialog.filesSelected.connect(lambda names: self.read([Path(name) for name in names]))
        open_in_folder(dialog, QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DownloadLocation))

    def _ask_for_folder(self) -> None:
        home = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.HomeLocation)
        choose_folder(self, "Import chats", home, lambda name: self.read([Path(name)]))

    def _run(self) -> None:
        folder = self._folder.text() if self._into_folder.isChecked() else ""
        self._begin("Importing…", "Stop")
        self._transfers.import_chats(self._paths, folder, self._on_progress, self._on_imported, self._on_failed)

    def _on_progress(self, share: float) -> None:
        self._bar.setValue(round(share * _STEPS))

    def _on_summary(self, summary: Summary) -> None:
        left_out = summary.not_imported()
        if not summary.chats:
            self._arrange("No chats found", _NOTHING, self._choose_files, self._choose_folder, close="Cancel")
        else:
            text = f"{_contents(summary)} What is already here won’t be added again."
            self._arrange(_found(summary.chats), text, self._folder_part, self._import, close="Cancel")
            self._folder.setText(summary.folder() or "Imported chats")
            self._into_folder.setChecked(bool(summary.folder()))
            self._folder.setEnabled(self._into_folder.isChecked())
        show_text(self._left_out, f"Not imported: {'; '.join(left_out)}." if left_out else "")

    def _on_imported(self, imported: Imported) -> None:
        self._imported = imported
        shown = [self._show] if imported.added or imported.restored else []
        heading = "Import finished" if imported.is_complete else "Import stopped"
        self._arrange(heading, imported.sentence(), *shown, close="Close")

    def _on_failed(self, error: KnownError) -> None:
        text = visible(str(error))
        self._arrange("The import didn’t work", text, self._choose_files, self._choose_folder, close="Close")

    def _on_show(self) -> None:
        assert self._imported is not None
        self.shown_requested.emit([*self._imported.added, *self._imported.restored])
        self.accept()

    @Slot()
    def _on_close(self) -> None:
        if self._is_running and self._close.text() == "Stop":
            self._close.setEnabled(False)
            self._transfers.cancel()
        else:
            self.reject()

    def done(self, result: int) -> None:
        self._transfers.leave()
        super().done(result)


def _sources_part() -> QWidget:
    part = QWidget()
    rows = [row((_name(name), 0), (label(text, "quiet", wraps=True), 1), gap=3 * SPACING) for name, text in _SOURCES]
    column(*rows, gap=SPACING, on=part)
    return part


def _name(name: str) -> QWidget:
    found = label(name)
    found.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
    found.setMinimumWidth(theme.px(120))
    return found


def _found(chats: int) -> str:
    return "1 chat found" if chats == 1 else f"{units.number(chats)} chats found"


def _contents(summary: Summary) -> str:
    """Where the chats come from, how many messages they have, and from when they are."""
    messages = "1 message" if summary.messages == 1 else f"{units.number(summary.messages)} messages"
    names = list(summary.sources)
    sources = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    text = f"From {sources}, with {messages}"
    if summary.versions:
        text += f", {units.number(summary.versions)} of them in other versions"
    if summary.first is not None and summary.last is not None:
        first, last = units.date(summary.first), units.date(summary.last)
        text += f", from {first}" if first == last else f", from {first} to {last}"
    return f"{text}."
