"""Keeps the server as the settings have it, with its key from the system's keyring."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from PySide6.QtCore import QObject, Signal, Slot

from app.protocol.serving import Serve
from app.settings import ServerSettings
from app.storage.secrets import SecretPlace, SecretStore
from app.ui.server.serving import Serving
from app.ui.widgets.tasks import Lane

KEY_NAME = "API server"
_KEY_BYTES = 32


def needs_key(settings: ServerSettings) -> bool:
    """Whether programs have to show the key."""
    return settings.needs_key or settings.for_others


class ServerControl(QObject):
    """One for a window.

    Attributes:
        serving: The server.
        key: What programs have to show; empty until it is known.
        key_place: Where it is stored.

    Signals:
        key_changed: `key` is another one.
    """

    key_changed = Signal()

    def __init__(self, serving: Serving, settings: Callable[[], ServerSettings], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.serving = serving
        self.key = ""
        self.key_place: SecretPlace = "nowhere"
        self._settings = settings
        self._store = SecretStore()
        self._lane = Lane(self, "server key")
        self._in_use: Serve | None = None

    @Slot()
    def apply(self) -> None:
        """The settings may have changed: serve like this, or not at all."""
        settings = self._settings()
        if not settings.on:
            self._in_use = None
            self.serving.stop()
        elif needs_key(settings) and not self.key:
            self.find_key(self.apply)
        else:
            self._serve(settings)

    def find_key(self, done: Callable[[], object] = lambda: None) -> None:
        """Read the key, or make one if there is none; ``done`` is called when it is known."""

        def find() -> tuple[str, SecretPlace]:
            if not self._store.get(KEY_NAME):
                self._store.set(KEY_NAME, secrets.token_urlsafe(_KEY_BYTES), replace=False)
            return self._store.get(KEY_NAME) or "", self._store.where(KEY_NAME)

        self._find(find, done)

    @Slot()
    def replace_key(self) -> None:
        """Make another key: programs that have the one before need it from now on."""

        def replace() -> tuple[str, SecretPlace]:
            self._store.set(KEY_NAME, secrets.token_urlsafe(_KEY_BYTES))
            return self._store.get(KEY_NAME) or "", self._store.where(KEY_NAME)

        self._find(replace, self.apply)

    def close(self) -> None:
        """The window is closed; returns when the server's process is gone."""
        self._lane.close()
        self.serving.close()

    def _find(self, find: Callable[[], tuple[str, SecretPlace]], done: Callable[[], object]) -> None:
        def found(result: tuple[str, SecretPlace]) -> None:
            self.key, self.key_place = result
            self.key_changed.emit()
            done()

        self._lane.submit(find, found)

    def _serve(self, settings: ServerSettings) -> None:
        wanted = Serve(
            host=settings.address if settings.for_others else None,
            port=settings.port,
            key=self.key if needs_key(settings) else None,
            hosts=[name.lower() for name in settings.hosts],
            origins=[origin.lower().rstrip("/") for origin in settings.origins],
        )
        if wanted != self._in_use or self.serving.state.kind == "failed":
            self._in_use = wanted
            self.serving.start(wanted)
