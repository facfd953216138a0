"""Keyrings for tests, which end with the process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import keyring
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

B = TypeVar("B", bound=KeyringBackend)


@contextlib.contextmanager
def in_use(backend: B) -> Iterator[B]:
    """``backend`` as the system's keyring."""
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        yield backend
    finally:
        keyring.set_keyring(before)


class MemoryKeyring(KeyringBackend):
    """A working keyring."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries: dict[tuple[str, str], str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.entries.pop((service, username), None) is None:
            raise PasswordDeleteError(username)
