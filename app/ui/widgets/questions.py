"""Questions and warnings in boxes whose text is never interpreted as markup, and questions for files and folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from app.models.text import printable
from app.storage.files import with_suffix
from app.ui.widgets.tasks import Lane

PATIENCE_MS = 500
"""Milliseconds; a dialog doesn't open on a drive that takes longer to respond."""
_Role = QMessageBox.ButtonRole


def ask(
    parent: QWidget,
    title: str,
    text: str,
    *,
    details: str = "",
    lossy: Mapping[str, Callable[[], object]] | None = None,
    safe: Mapping[str, Callable[[], object]] | None = None,
    icon: QMessageBox.Icon = QMessageBox.Icon.Question,
) -> None:
    """Ask, and call the function of the button that is pressed; Cancel, which Esc and Enter choose, does nothing.

    ``lossy`` are names of buttons that delete something, and what they do; ``safe`` are others.
    """
    box = _box(icon, parent, title, text)
    box.setInformativeText(details)
    for choices, role in ((safe, _Role.AcceptRole), (lossy, _Role.DestructiveRole)):
        for name, act in (choices or {}).items():
            box.addButton(name, role).clicked.connect(lambda _checked=False, act=act: act())
    box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
    box.open()


def ask_where_to_save(parent: QWidget, title: str, proposal: Path, name: str, save: Callable[[Path], object]) -> None:
    """Ask for a file of the format ``name``, and call ``save`` with it.

    It gets the suffix of ``proposal`` if it was typed without one. The dialog doesn't know about a file that this would
    replace, so that is asked here.
    """
    suffix = proposal.suffix
    chosen, _ = QFileDialog.getSaveFileName(parent, title, str(proposal), f"{name} (*{suffix})")
    if not chosen:
        return
    path = with_suffix(Path(chosen), suffix)
    if path != Path(chosen) and path.exists():
        text = f"{printable(path.name)} already exists. Replace it?"
        ask(parent, title, text, lossy={"Replace": lambda: save(path)})
    else:
        save(path)


def choose_folder(parent: QWidget, title: str, folder: str, chosen: Callable[[str], object]) -> None:
    """Ask for a folder, starting in ``folder``, and call ``chosen`` with its path."""
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(chosen)
    open_in_folder(dialog, folder)


def open_in_folder(dialog: QFileDialog, folder: str) -> None:
    """Open ``dialog`` in ``folder`` if that exists and responds in time, otherwise where the system chooses.

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


def warn(parent: QWidget, title: str, text: str) -> None:
    """Show something that must be read."""
    _box(QMessageBox.Icon.Warning, parent, title, text).open()


def _box(icon: QMessageBox.Icon, parent: QWidget, title: str, text: str) -> QMessageBox:
    box = QMessageBox(icon, title, text, parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return box
