"""Connects the page about the server with the server."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Slot
from PySide6.QtNetwork import QAbstractSocket, QNetworkInterface

from app.settings import Settings
from app.storage.secrets import SecretPlace
from app.ui.server import wording
from app.ui.server.control import ServerControl, needs_key
from app.ui.settings.server_page import ServerPage
from app.ui.widgets.questions import ask

_LOOPBACK = "127.0.0.1"
_PLACES: dict[SecretPlace, str] = {
    "nowhere": "The key is made when it is first needed.",
    "keyring": "The key is stored in the system's keyring.",
    "memory": "This system has no keyring, so Slipstream makes a new key each time it starts.",
}
_ROLES = {"failed": "bad", "off": "quiet"}
_REPLACE = "Programs that use the current key will be refused until you give them the new one."


class ServerPagePresenter(QObject):
    """One for a settings window."""

    def __init__(
        self,
        page: ServerPage,
        control: ServerControl,
        values: Settings,
        save_soon: Callable[[], object],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._page = page
        self._control = control
        self._values = values
        self._save_soon = save_soon
        page.changed.connect(self._on_changed)
        page.replace_key.clicked.connect(self._on_replace)
        control.key_changed.connect(self._show_key)
        control.serving.state_changed.connect(self._show_state)
        control.serving.request_ended.connect(self._show_requests)

    def show(self) -> None:
        """The window is opened."""
        self._page.show_settings(self._values.server, _addresses())
        self._show_state()
        self._show_key()
        self._show_requests()
        if needs_key(self._values.server) and self._values.server.on and not self._control.key:
            self._control.find_key()

    @Slot()
    def _on_changed(self) -> None:
        self._values.server = self._page.values()
        self._control.apply()
        self._show_state()
        self._save_soon()

    @Slot()
    def _on_replace(self) -> None:
        ask(
            self._page.window(),
            "API key",
            f"Replace the API key? {_REPLACE}",
            lossy={"Replace the key": self._control.replace_key},
        )

    @Slot()
    def _show_state(self) -> None:
        state, server = self._control.serving.state, self._values.server
        self._page.show_state(wording.state_sentence(state), _ROLES.get(state.kind, "good"))
        host = _LOOPBACK
        if server.for_others:
            host = server.address or next(iter(_addresses()), _LOOPBACK)
        self._page.show_url(wording.base_url(host, server.port), needs_key=needs_key(server))

    @Slot()
    def _show_key(self) -> None:
        self._page.show_key(self._control.key, _PLACES[self._control.key_place])

    @Slot()
    def _show_requests(self) -> None:
        self._page.requests.show_rows(wording.rows_of(self._control.serving.records))


def _addresses() -> list[str]:
    """Where other computers could reach this one."""
    return [
        address.toString()
        for address in QNetworkInterface.allAddresses()
        if not address.isLoopback()
        and not address.isLinkLocal()
        and address.protocol() is QAbstractSocket.NetworkLayerProtocol.IPv4Protocol
    ]
