"""A row of the Compare window: which server answers without a draft, where a second one is needed."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QPushButton, QWidget

from app.ui.compare import wording
from app.ui.widgets.controls import ElidedLabel, explain, label, plain_tooltip, show_text
from app.ui.widgets.layouts import column, row
from app.ui.widgets.theme import SPACING


class ServerRow(QWidget):
    """Hidden while the model in use can answer without a draft.

    Attributes:
        button: Chooses the server.
    """

    def __init__(self) -> None:
        super().__init__()
        self._server = ElidedLabel(keeps_end=True)  # servers on one computer differ in their ports
        self._doubts = label("", "warning", wraps=True, scale=0.95)
        self.button = QPushButton("Choose…")
        self.button.setAccessibleName("Choose the server without a draft")
        explain(self.button, wording.SECOND_HELP)
        line = row(label("Server without a draft"), (self._server, 1), self.button, gap=4 * SPACING)
        column(line, self._doubts, gap=SPACING, on=self)
        self.hide()

    def show_server(self, title: str, doubts: Sequence[str] = (), *, is_connecting: bool = False) -> None:
        """``title`` is empty if none was chosen yet; ``doubts``: why the comparison may be unfair."""
        shown = f"{title} · connecting…" if is_connecting else title or "none yet"
        self._server.setText(shown)
        self._server.setToolTip(plain_tooltip(title))
        self._server.setAccessibleName(f"Server without a draft: {shown}")
        self.button.setText("Change…" if title else "Choose…")
        show_text(self._doubts, " ".join(doubts))

    def text(self) -> str:
        """All that is shown."""
        return "\n".join(filter(None, (self._server.text(), self._doubts.text())))
