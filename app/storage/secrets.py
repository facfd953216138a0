"""Secrets such as servers' keys: in the system's keyring, never in a file, a log or the environment."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Literal

from app.system import KnownError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "Slipstream"
SecretPlace = Literal["nowhere", "keyring", "memory"]
_NOT_SAFE = ("keyrings.alt", "keyring.backends.fail", "keyring.backends.null")
"""Backends that store secrets in plain files, or nowhere."""

_log = logging.getLogger(__name__)


class SecretStore:
    """Secrets by name. Thread-safe, but not for the window's thread: a keyring may ask the user for its password first.

    Without a keyring, a secret stays in memory until Slipstream ends.
    """

    what = "key"
    """The secrets' name, for the user."""
    _pattern = re.compile(r"[\x21-\x7e]{1,8000}")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, tuple[str | None, SecretPlace]] = {}
        self._unread: set[str] = set()
        """Names that the keyring failed to look up: it may have a secret for them."""

    def get(self, name: str) -> str | None:
        """The secret, if there is one. Asks the keyring only once."""
        with self._lock:
            return self._own(name)[0]

    def where(self, name: str) -> SecretPlace:
        """Where the secret is stored."""
        with self._lock:
            return self._own(name)[1]

    def set(self, name: str, secret: str, *, replace: bool = True) -> None:
        """Store a secret. Raises `KnownError` if it isn't valid.

        Without ``replace``, a secret that the keyring may have but failed to return stays there, and this one is only
        used until Slipstream ends.
        """
        secret = secret.strip()
        if not self._pattern.fullmatch(secret):
            raise KnownError(self._not_valid())
        with self._lock:
            self._secrets[name] = secret, "memory"
            if name in self._unread and not replace:
                return
            try:
                _keyring().set_password(SERVICE, name, secret)
                self._secrets[name] = secret, "keyring"
            except Exception as error:
                self._failed(error)

    def delete(self, name: str) -> None:
        """Raises `KnownError` if the keyring fails to delete it."""
        with self._lock:
            _, place = self._own(name)
            self._secrets[name] = None, "nowhere"
            try:
                _keyring().delete_password(SERVICE, name)
            except Exception as error:
                if place == "keyring":
                    self._failed(error)
                    raise KnownError(
                        f"The {self.what} couldn't be removed from the system's keyring. Remove the entry {SERVICE}"
                        " there yourself."
                    ) from None

    def _not_valid(self) -> str:
        return f"This isn't a {self.what}: it has spaces or characters that a {self.what} can't have."

    def _own(self, name: str) -> tuple[str | None, SecretPlace]:
        if name not in self._secrets:
            try:
                found = _keyring().get_password(SERVICE, name)
            except Exception as error:
                self._failed(error)
                self._unread.add(name)
                found = None  # asking again might prompt the user each time
            is_one = bool(found and self._pattern.fullmatch(found))
            self._secrets[name] = (found, "keyring") if is_one else (None, "nowhere")
        return self._secrets[name]

    def _failed(self, error: Exception) -> None:
        # Backends raise all kinds of errors, whose texts may contain secrets.
        _log.info("no keyring: %s", type(error).__name__)


def backend_name() -> str | None:
    """The keyring's name, for reports; ``None`` without one. Reads no secret and doesn't prompt the user.

    Not for the window's thread: it looks for system services.
    """
    from keyring.errors import NoKeyringError

    try:
        return str(_keyring().name)
    except NoKeyringError:
        return None


def _keyring() -> KeyringBackend:
    """The system's keyring. May raise any exception if there is none."""
    import keyring
    from keyring.errors import NoKeyringError

    chosen = keyring.get_keyring()
    for backend in getattr(chosen, "backends", None) or [chosen]:
        if not type(backend).__module__.startswith(_NOT_SAFE):
            return backend  # type: ignore[no-any-return]
    raise NoKeyringError
