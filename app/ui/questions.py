"""Questions and warnings in a box of their own. The text is never taken for markup."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

_Role = QMessageBox.ButtonRole


def ask(
    parent: QWidget,
    title: str,
    text: str,
    *,
    lossy: Mapping[str, Callable[[], object]],
    safe: Mapping[str, Callable[[], object]] | None = None,
) -> None:
    """Ask, and call what belongs to the button that is pressed; Cancel, which Esc and Enter choose, does nothing.

    ``lossy`` are names of buttons that take something away, and what they do; ``safe`` are others.
    """
    box = _box(QMessageBox.Icon.Question, parent, title, text)
    for choices, role in ((safe or {}, _Role.AcceptRole), (lossy, _Role.DestructiveRole)):
        for name, act in choices.items():
            box.addButton(name, role).clicked.connect(lambda _checked=False, act=act: act())
    box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
    box.open()


def warn(parent: QWidget, title: str, text: str) -> None:
    """Say something that has to be read."""
    _box(QMessageBox.Icon.Warning, parent, title, text).open()


def _box(icon: QMessageBox.Icon, parent: QWidget, title: str, text: str) -> QMessageBox:
    box = QMessageBox(icon, title, text, parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return box
