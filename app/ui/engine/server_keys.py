"""The keys of servers, asked for beside the window's thread: a keyring may ask the user for its password."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject

from app.errors import KnownError
from app.storage.secrets import SecretPlace, SecretStore, backend_name
from app.ui.widgets.tasks import Lane


class ServerKeys:
    """One for a main window. A key belongs to an address, as `app.protocol.remote.Server.address` has it."""

    def __init__(self, owner: QObject) -> None:
        self._store = SecretStore()
        self._lane = Lane(owner, "server keys")

    def get(self, address: str, done: Callable[[str, SecretPlace], None]) -> None:
        """``done`` gets the key, empty if there is none, and where it is stored."""
        store = self._store
        self._lane.submit(lambda: (store.get(address) or "", store.where(address)), lambda found: done(*found))

    def has_keyring(self, done: Callable[[bool], None]) -> None:
        """Whether this system can store keys."""
        self._lane.submit(lambda: backend_name() is not None, done)

    def put(self, address: str, key: str, done: Callable[[], None], failed: Callable[[KnownError], None]) -> None:
        """Store a key in place of an earlier one; an empty one deletes that."""

        def put() -> None:
            if key:
                self._store.set(address, key)
            elif self._store.get(address):
                self._store.delete(address)

        self._lane.submit(put, lambda _: done(), failed)

    def close(self) -> None:
        """Answer nothing any more."""
        self._lane.close()
