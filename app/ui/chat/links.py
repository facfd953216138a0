"""Ask before an address that a model wrote is opened."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, QUrl
from PySide6.QtWidgets import QMessageBox, QWidget

from app.ui.chat.block_writer import checked_link

_MAX_SHOWN = 300


def confirm_link(parent: QWidget, url: QUrl, accepted: Callable[[QUrl], None]) -> QMessageBox | None:
    """Show where ``url`` leads; call ``accepted`` when the user wants to go there. ``None``: it may not be opened."""
    if not checked_link(url.toString()):
        return None
    box = QMessageBox(parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle("Open link")
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    encoded = QUrl.ComponentFormattingOption.FullyEncoded
    if url.scheme().lower() == "mailto":
        box.setText(f"Write a mail to {url.path(encoded)[:_MAX_SHOWN]}?")
    else:
        # The encoded form tells look-alike letters of other alphabets apart.
        box.setText(f"Open {url.host(encoded)[:_MAX_SHOWN]} in your browser?")
    box.setInformativeText(url.toString(encoded)[:_MAX_SHOWN])
    box.setIcon(QMessageBox.Icon.NoIcon)
    opened = box.addButton("Open", QMessageBox.ButtonRole.AcceptRole)
    cancel = box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
    box.setDefaultButton(cancel)
    box.setEscapeButton(cancel)
    box.buttonClicked.connect(lambda button: accepted(url) if button is opened else None)
    box.open()
    return box
