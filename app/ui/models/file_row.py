"""The row of the Open models dialog that names one model file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, QTimer, Signal, Slot
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QFileDialog, QLineEdit, QPushButton, QToolButton, QWidget

from app.models.text import visible
from app.ui.models.picker import ModelPicker
from app.ui.widgets import icons
from app.ui.widgets.controls import explain, label
from app.ui.widgets.layouts import column, row
from app.ui.widgets.questions import open_in_folder
from app.ui.widgets.theme import SPACING

FILE_FILTER = "GGUF models (*.gguf)"
_TYPING_MS = 300


def dropped_files(data: QMimeData) -> list[str]:
    """Paths of the GGUF files that are dragged."""
    paths = [url.toLocalFile() for url in data.urls() if url.isLocalFile()]
    return [path for path in paths if path.lower().endswith(".gguf")]


class FileRow(QWidget):
    """A path one can type, choose or drop, and below it what the file is."""

    path_changed = Signal()
    """Not at every key: when the typing pauses."""

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
        self._edit = QLineEdit()
        self._edit.setAccessibleName(title)
        self._edit.setPlaceholderText("None" if can_be_empty else "A .gguf file: choose it or drop it here")
        self._choose = QPushButton("Choose…")
        self._choose.setAutoDefault(False)
        self._choose.setAccessibleName(f"Choose {title.lower()}")
        self.picker = ModelPicker(picker, f"{title} from the library")
        self.picker.chosen.connect(self.set_path)
        self._clear = QToolButton()
        icons.set_icon(self._clear, "close")
        self._clear.setAccessibleName(f"No {title.lower()}")
        self._clear.setToolTip(f"No {title.lower()}")
        self._clear.setVisible(can_be_empty)
        self._info = label(role="quiet", wraps=True)
        self._info.setMinimumHeight(self._info.fontMetrics().height())
        self._pause = QTimer(self, singleShot=True, interval=_TYPING_MS)
        self._lay_out(help_text)
        self.setAcceptDrops(True)
        self._edit.setAcceptDrops(False)  # it would put the URL in as text
        self._edit.textEdited.connect(self._pause.start)
        self._edit.editingFinished.connect(self._on_editing_finished)
        self._pause.timeout.connect(self._on_changed)
        self._choose.clicked.connect(self._on_choose)
        self._clear.clicked.connect(lambda: self.set_path(""))

    def path(self) -> str:
        """The path as typed, without blanks around it; empty for none."""
        return self._edit.text().strip()

    def set_path(self, path: str) -> None:
        """Tells `path_changed` where it is another one."""
        if path == self.path():
            return
        self._edit.setText(path)
        self._on_changed()

    def set_info(self, text: str) -> None:
        """What the file is."""
        self._info.setText(visible(text))

    def _lay_out(self, help_text: str) -> None:
        title = label(self._title, "heading")
        title.setBuddy(self._edit)
        for part in (title, self._edit):
            explain(part, help_text)
        column(
            title,
            row((self._edit, 1), self._clear, self.picker, self._choose),
            self._info,
            gap=SPACING,
            on=self,
        )

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
        dialog = QFileDialog(self, f"Choose {self._title.lower()}")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilter(FILE_FILTER)
        folder = str(Path(self.path()).parent) if self.path() else self._start_folder
        dialog.fileSelected.connect(self.set_path)
        open_in_folder(dialog, folder)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        event.setAccepted(len(dropped_files(event.mimeData())) == 1)

    def dropEvent(self, event: QDropEvent) -> None:
        self.set_path(dropped_files(event.mimeData())[0])
        event.acceptProposedAction()
