"""Questions and warnings in a box of their own. The text is never taken for markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from app.models.text import printable
from app.storage.files import with_suffix

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
    """Ask, and call what belongs to the button that is pressed; Cancel, which Esc and Enter choose, does nothing.

    ``lossy`` are names of buttons that take something away, and what they do; ``safe`` are others.
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

    It gets the suffix of ``proposal`` if it was typed without. Of a file that is replaced by that the dialog knows
    nothing, so it is asked about here.
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


def warn(parent: QWidget, title: str, text: str) -> None:
    """Say something that has to be read."""
    _box(QMessageBox.Icon.Warning, parent, title, text).open()


def _box(icon: QMessageBox.Icon, parent: QWidget, title: str, text: str) -> QMessageBox:
    box = QMessageBox(icon, title, text, parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return box
