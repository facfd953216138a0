"""File dialogs that open in a folder, without waiting for a drive that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QFileDialog, QWidget

from app.ui.widgets.tasks import Lane

PATIENCE_MS = 500


def choose_folder(parent: QWidget, title: str, folder: str, chosen: Callable[[str], object]) -> None:
    """Ask for a folder, beginning in ``folder``, and call ``chosen`` with its path."""
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(chosen)
    open_in_folder(dialog, folder)


def open_in_folder(dialog: QFileDialog, folder: str) -> None:
    """Open ``dialog`` in ``folder`` if that is there and answers in time, otherwise where the system likes.

    The dialog is deleted when it is closed.
    """
    patience = QTimer(dialog, singleShot=True, interval=PATIENCE_MS)

    def open_it(is_there: bool) -> None:
        if not patience.isActive():
            return  # it is open, or was closed
        patience.stop()
        if is_there:
            dialog.setDirectory(folder)
        dialog.open()

    def give_up() -> None:
        patience.start()
        open_it(False)

    patience.timeout.connect(give_up)
    dialog.finished.connect(patience.stop)
    dialog.finished.connect(dialog.deleteLater)
    patience.start()
    Lane(dialog, "folder of a dialog").submit(lambda: bool(folder) and Path(folder).is_dir(), open_it)
