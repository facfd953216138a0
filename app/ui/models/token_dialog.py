"""Asks for the access token of Hugging Face."""

from __future__ import annotations

from PySide6.QtCore import QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLineEdit, QPushButton, QWidget

from app.ui.widgets.controls import label
from app.ui.widgets.layouts import DIALOG_MARGINS, column
from app.ui.widgets.theme import SPACING

_TEXT = (
    "Some repositories are gated: their terms must be accepted on their page, and a download needs an access token of "
    "your account. A token that may only read is enough."
)
_WHERE_IT_GOES = (
    "It is kept in the system's keyring, or where there is none in memory until Slipstream ends. It is never written "
    "to a file, and is sent to {host} only."
)
_WIDTH = 440


class TokenDialog(QDialog):
    """After `accept`, `token` is what was typed."""

    def __init__(self, endpoint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Access token")
        self._endpoint = endpoint
        self._token = QLineEdit()
        self._token.setEchoMode(QLineEdit.EchoMode.Password)
        self._token.setAccessibleName("Access token")
        self._token.setPlaceholderText("hf_…")
        make = QPushButton("Make a token on its page")
        make.setAutoDefault(False)
        make.clicked.connect(self._on_make)
        box = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self._keep = box.button(QDialogButtonBox.StandardButton.Ok)
        self._keep.setText("Keep")
        self._keep.setEnabled(False)
        box.button(QDialogButtonBox.StandardButton.Cancel).setText("Cancel")
        box.addButton(make, QDialogButtonBox.ButtonRole.HelpRole)
        box.accepted.connect(self.accept)
        box.rejected.connect(self.reject)
        self._token.textChanged.connect(self._on_typed)
        column(
            label(_TEXT, wraps=True),
            self._token,
            label(_WHERE_IT_GOES.format(host=QUrl(endpoint).host()), "quiet", wraps=True),
            box,
            gap=3 * SPACING,
            margins=DIALOG_MARGINS,
            on=self,
        )
        self.setMinimumWidth(_WIDTH)

    def token(self) -> str:
        return self._token.text().strip()

    @Slot(str)
    def _on_typed(self) -> None:
        self._keep.setEnabled(bool(self.token()))

    @Slot()
    def _on_make(self) -> None:
        QDesktopServices.openUrl(QUrl(f"{self._endpoint}/settings/tokens"))
