"""Settings → Network: what may go over it, how, and what did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize, Signal, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QHBoxLayout,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.models.text import printable, size_text
from app.settings import Settings
from app.ui.widgets.controls import explain, label
from app.ui.widgets.number_fields import FieldTable, Whole
from app.ui.widgets.table import RIGHT, Table
from app.ui.widgets.theme import SPACING

PURPOSES = (
    ("Search", "sends the words you typed and the sort order"),
    ("Model page", "sends the name of a repository, to list its files, sizes and licence"),
    ("Model header", "sends the name of a file and reads its beginning, to compare vocabularies before a download"),
    ("Download", "sends the names of the files"),
)
"""All there is, named as the list of the traffic names it, and what is sent for it."""
_TOKEN_SENT = (
    "If you entered an access token, it goes to Hugging Face with these; to a mirror only if you allow it above."
)
_MB = 1_000_000
_LIMIT_MB = 10_000


@dataclass(frozen=True)
class NetworkChoice:
    """What the page sets; fields as in `Settings`."""

    offline: bool
    hub_endpoint: str
    token_to_mirror: bool
    parallel_downloads: int
    download_limit: int | None


@dataclass(frozen=True)
class TrafficRow:
    """One thing that was asked of the network."""

    time: str
    host: str
    purpose: str
    received: int
    """Bytes."""


class NetworkPage(QWidget):
    """Shows the settings of the network and what happened on it.

    Signals:
        choice_changed: The `NetworkChoice` set now.
        token_requested: The user wants to enter an access token.
        token_removed: The access token shall be forgotten.
    """

    choice_changed = Signal(object)
    token_requested = Signal()
    token_removed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._shows = False
        self._offline = QCheckBox("Work offline")
        explain(self._offline, "Slipstream uses no network at all: no search and no downloads. Chats never need it.")
        self._endpoint = QLineEdit()
        self._endpoint.setPlaceholderText("https://huggingface.co")
        self._endpoint_problem = label(role="bad", wraps=True)
        self._to_mirror = QCheckBox("Send the access token to this mirror too")
        self._token = label(wraps=True)
        self._set_token = QPushButton("Enter a token…")
        self._token_problem = label(role="bad", wraps=True)
        self._forget_token = QPushButton("Remove")
        self._forget_token.setAccessibleName("Remove the access token")
        for button in (self._set_token, self._forget_token):
            button.setAutoDefault(False)
        self._parallel = Whole(1, 8)
        self._limit = Whole(0, _LIMIT_MB, 1, "no limit")
        self._limit.setSuffix(" MB/s")
        self._traffic = _TrafficTable()
        self._lay_out()
        self._connect()
        self.show_endpoint_problem("")
        self.show_token(False, "")

    # ------------------------------------------------------------ what is shown

    def show_settings(self, values: Settings) -> None:
        self._shows = True
        self._offline.setChecked(values.offline)
        self._endpoint.setText(values.hub_endpoint)
        self._to_mirror.setChecked(values.token_to_mirror)
        self._parallel.setValue(values.parallel_downloads)
        self._limit.setValue(0 if values.download_limit is None else max(1, round(values.download_limit / _MB)))
        self._shows = False
        self._refresh()

    def show_token(self, is_set: bool, where: str) -> None:
        """``where`` says in a sentence where it is kept, or that there is none."""
        self._token.setText(where)
        self._set_token.setText("Replace…" if is_set else "Enter a token…")
        self._forget_token.setVisible(is_set)
        self.show_token_problem("")

    def show_token_problem(self, text: str) -> None:
        """Why the token could not be kept or removed; empty where it could."""
        self._token_problem.setText(text)
        self._token_problem.setVisible(bool(text))

    def show_endpoint_problem(self, text: str) -> None:
        """Why the address cannot be used; empty where it can."""
        self._endpoint_problem.setText(text)
        self._endpoint_problem.setVisible(bool(text))

    def show_traffic(self, rows: Sequence[TrafficRow]) -> None:
        """What was asked of the network since the start, newest first."""
        self._traffic.show_rows(rows)

    # ------------------------------------------------------------ inside

    def _lay_out(self) -> None:
        fields = FieldTable()
        fields.layout().setContentsMargins(0, 0, 0, 0)  # type: ignore[union-attr]
        fields.add("At the same time", self._parallel, "Files that are downloaded beside each other.")
        fields.add("Limit", self._limit, "For all downloads together. 0 is no limit.")
        token = QHBoxLayout()
        token.setSpacing(2 * SPACING)
        token.addWidget(self._token, 1)
        token.addWidget(self._set_token)
        token.addWidget(self._forget_token)
        address = label("Address of Hugging Face or a mirror", "heading")
        address.setBuddy(self._endpoint)
        self._endpoint.setAccessibleName("Address of Hugging Face or a mirror")
        column = QVBoxLayout(self)
        column.setContentsMargins(5 * SPACING, 5 * SPACING, 5 * SPACING, 5 * SPACING)
        column.setSpacing(2 * SPACING)
        column.addWidget(self._offline)
        column.addWidget(_help("No network at all. Chats and loaded models never need it."))
        column.addSpacing(2 * SPACING)
        column.addWidget(address)
        column.addWidget(self._endpoint)
        column.addWidget(self._endpoint_problem)
        column.addWidget(self._to_mirror)
        column.addSpacing(2 * SPACING)
        column.addWidget(label("Access token for gated models", "heading"))
        column.addLayout(token)
        column.addWidget(self._token_problem)
        column.addSpacing(2 * SPACING)
        column.addWidget(label("Downloads", "heading"))
        column.addWidget(fields)
        column.addSpacing(2 * SPACING)
        column.addWidget(label("What goes over the network", "heading"))
        column.addWidget(_help("Only what you start, and only this. Nothing you write in a chat leaves this computer."))
        for name, sent in PURPOSES:
            column.addWidget(label(f"{name}: {sent}.", wraps=True))
        column.addWidget(_help(_TOKEN_SENT))
        column.addSpacing(SPACING)
        column.addWidget(self._traffic, 1)

    def _connect(self) -> None:
        for box in (self._offline, self._to_mirror):
            box.toggled.connect(self._on_changed)
        for field in (self._parallel, self._limit):
            field.valueChanged.connect(self._on_changed)
        self._endpoint.editingFinished.connect(self._on_changed)
        self._endpoint.textChanged.connect(self._refresh)
        self._set_token.clicked.connect(self.token_requested)
        self._forget_token.clicked.connect(self.token_removed)

    def choice(self) -> NetworkChoice:
        """What is set now."""
        limit = self._limit.value()
        return NetworkChoice(
            offline=self._offline.isChecked(),
            hub_endpoint=self._endpoint.text().strip(),
            token_to_mirror=self._to_mirror.isChecked(),
            parallel_downloads=self._parallel.value(),
            download_limit=limit * _MB if limit else None,
        )

    @Slot()
    def _refresh(self) -> None:
        self._to_mirror.setEnabled(bool(self._endpoint.text().strip()))

    @Slot()
    def _on_changed(self) -> None:
        self._refresh()
        if not self._shows:
            self.choice_changed.emit(self.choice())


class _TrafficTable(Table):
    """Time, host, purpose and bytes of each request."""

    def __init__(self) -> None:
        super().__init__("Network traffic since the start", ["Time", "Host", "What for", "Received"], stretched=2)
        self._rows: list[TrafficRow] | None = None
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setMinimumHeight(120)

    def show_rows(self, rows: Sequence[TrafficRow]) -> None:
        if list(rows) == self._rows:
            return
        self._rows = list(rows)
        self.clear()
        for row in rows or [TrafficRow("–", "", "Nothing since Slipstream was started", 0)]:
            received = size_text(row.received) if row.received else ""
            item = self.add([row.time, printable(row.host), printable(row.purpose, 120), received])
            item.setTextAlignment(3, RIGHT)

    def sizeHint(self) -> QSize:
        return QSize(400, 160)


def _help(text: str) -> QWidget:
    return label(text, "quiet", wraps=True)
