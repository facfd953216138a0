"""File → Export chat…: as what, and where to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QStandardPaths, Signal, Slot
from PySide6.QtWidgets import QButtonGroup, QDialog, QProgressBar, QPushButton, QRadioButton, QWidget

from app.chats.exporting import file_name
from app.chats.formats.writing import WRITE, WriteFormat
from app.errors import KnownError
from app.models.text import shortened, visible
from app.ui.chat.list.model import UNTITLED, count_text
from app.ui.chat.transfers import ChatTransfers
from app.ui.widgets import theme
from app.ui.widgets.controls import label, show_text
from app.ui.widgets.layouts import DIALOG_MARGINS, column, row
from app.ui.widgets.questions import ask_where_to_save, choose_folder
from app.ui.widgets.theme import SPACING

_WIDTH = 480
_STEPS = 1000
_LONGEST_TITLE = 60


class ExportDialog(QDialog):
    """Exports chats, and stays open until that is done.

    Signals:
        exported: The file or folder that was written.
    """

    exported = Signal(object)

    def __init__(
        self, transfers: ChatTransfers, chats: Sequence[tuple[str, str]], parent: QWidget | None = None
    ) -> None:
        """``chats``: ids and titles."""
        super().__init__(parent)
        self._transfers = transfers
        self._chats = list(chats)
        one = len(chats) == 1
        title = f"“{shortened(visible(chats[0][1] or UNTITLED), _LONGEST_TITLE)}”" if one else count_text(len(chats))
        self.setWindowTitle("Export chat" if one else "Export chats")
        self._group = QButtonGroup(self)
        self._formats = QWidget()
        self._error = label(role="warning", wraps=True)
        self._error.hide()
        self._bar = QProgressBar(textVisible=False, maximum=_STEPS)
        self._bar.setAccessibleName("Progress")
        self._bar.hide()
        self._cancel = QPushButton("Cancel", autoDefault=False)
        self._export = QPushButton("Export…", default=True)
        theme.set_role(self._export, "primary")
        self._cancel.clicked.connect(self.reject)
        self._export.clicked.connect(self._ask)
        column(*(self._format_part(name, wanted) for name, wanted in WRITE.items()), gap=2 * SPACING, on=self._formats)
        column(
            label(f"Export {title} as", wraps=True, bold=True),
            self._formats,
            self._error,
            self._bar,
            None,
            row(None, self._cancel, self._export),
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )
        self._group.buttons()[0].setChecked(True)
        self._group.buttons()[0].setFocus()
        self.resize(theme.px(_WIDTH), self.sizeHint().height())

    def choose(self, name: str) -> None:
        """Select the format of this name."""
        self._group.button(list(WRITE).index(name)).setChecked(True)

    def _format_part(self, name: str, wanted: WriteFormat) -> QWidget:
        part = QWidget()
        button = QRadioButton(f"{wanted.title} ({wanted.suffix})")
        button.setAccessibleDescription(wanted.description)
        self._group.addButton(button, list(WRITE).index(name))
        text = label(wanted.description, "quiet", wraps=True)
        text.setIndent(6 * SPACING)
        column(button, text, gap=0, on=part)
        return part

    def _ask(self) -> None:
        """Ask where to: for a file, or for a folder if each chat needs a file of its own."""
        name = list(WRITE)[self._group.checkedId()]
        wanted, run = WRITE[name], partial(self._run, name)
        documents = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        if len(self._chats) == 1 or wanted.joins:
            title = self._chats[0][1] if len(self._chats) == 1 else "Chats"
            proposal = Path(documents) / file_name(title, wanted.suffix)
            ask_where_to_save(self, self.windowTitle(), proposal, wanted.title, run)
        else:
            choose_folder(self, self.windowTitle(), documents, lambda folder: run(Path(folder)))

    def _run(self, name: str, path: Path) -> None:
        self._formats.setEnabled(False)
        self._export.setEnabled(False)
        self._error.hide()
        self._bar.setVisible(len(self._chats) > 1)
        ids = [chat_id for chat_id, _title in self._chats]
        self._transfers.export(ids, name, path, self._on_progress, self._on_done, self._on_failed)

    def _on_progress(self, share: float) -> None:
        self._bar.setValue(round(share * _STEPS))

    def _on_done(self, path: Path) -> None:
        self.exported.emit(path)
        self.accept()

    @Slot(object)
    def _on_failed(self, error: KnownError) -> None:
        self._formats.setEnabled(True)
        self._export.setEnabled(True)
        self._bar.hide()
        show_text(self._error, visible(str(error)))

    def done(self, result: int) -> None:
        self._transfers.leave()
        super().done(result)
