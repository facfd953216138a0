"""The access token for gated repositories: in the system's keyring, never in a file, a log or another process."""

from __future__ import annotations

import logging
import os
import re
import threading
from typing import TYPE_CHECKING, Literal

from app.errors import KnownError

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "Slipstream"
TOKEN_VARIABLE = "HF_TOKEN"
TokenPlace = Literal["nowhere", "keyring", "memory", "environment"]
_TOKEN = re.compile(r"[\x21-\x7e]{1,1000}")
_NOT_SAFE = ("keyrings.alt", "keyring.backends.fail", "keyring.backends.null")
"""Backends that store secrets in plain files, or nowhere."""

_log = logging.getLogger(__name__)


class TokenStore:
    """One access token per hub. Safe from any thread.

    Not for the window's thread: a keyring may ask the user for its password before it answers. Without a keyring, a
    token is kept in memory until Slipstream ends. HF_TOKEN is used if there is no other, and never stored.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[str | None, TokenPlace]] = {}

    def get(self, host: str) -> str | None:
        """The token for a hub, such as ``huggingface.co``; the keyring is asked once."""
        with self._lock:
            return self._own(host)[0] or _from_environment()

    def place(self, host: str) -> TokenPlace:
        """The source of the token that `get` returns."""
        with self._lock:
            token, place = self._own(host)
            return "environment" if token is None and _from_environment() else place

    def set(self, host: str, token: str) -> None:
        """Store a token, replacing an earlier one. Raises `KnownError` if it can't be a token."""
        token = token.strip()
        if not _TOKEN.fullmatch(token):
            raise KnownError("This isn't an access token. Copy it again from your settings on Hugging Face.")
        with self._lock:
            self._tokens[host] = token, "memory"
            try:
                _keyring().set_password(SERVICE, host, token)
                self._tokens[host] = token, "keyring"
            except Exception as error:
                self._failed(error)

    def delete(self, host: str) -> None:
        """Delete a token. Raises `KnownError` if the keyring keeps it; HF_TOKEN stays in the environment."""
        with self._lock:
            _, place = self._own(host)
            self._tokens[host] = None, "nowhere"
            try:
                _keyring().delete_password(SERVICE, host)
            except Exception as error:
                if place == "keyring":
                    self._failed(error)
                    raise KnownError(
                        f"The access token couldn't be removed from the system's keyring. Remove the entry {SERVICE}"
                        " there yourself."
                    ) from None

    def _own(self, host: str) -> tuple[str | None, TokenPlace]:
        if host not in self._tokens:
            self._tokens[host] = None, "nowhere"
            try:
                found = _keyring().get_password(SERVICE, host)
                if found and _TOKEN.fullmatch(found):
                    self._tokens[host] = found, "keyring"
            except Exception as error:
                self._failed(error)
        return self._tokens[host]

    def _failed(self, error: Exception) -> None:
        # Backends raise whatever their system's services raise. Their texts aren't logged, because they may contain
        # secrets.
        _log.info("no keyring: %s", type(error).__name__)


def backend_name() -> str | None:
    """What stores tokens on this system, for reports; ``None`` if nothing does. Reads no secret, asks no user.

    Not for the window's thread, because it looks for the system's services.
    """
    from keyring.errors import NoKeyringError

    try:
        return str(_keyring().name)
    except NoKeyringError:
        return None


def _keyring() -> KeyringBackend:
    """The system's keyring; raises anything if there is none."""
    import keyring
    from keyring.errors import NoKeyringError

    chosen = keyring.get_keyring()
    for backend in getattr(chosen, "backends", None) or [chosen]:
        if not type(backend).__module__.startswith(_NOT_SAFE):
            return backend  # type: ignore[no-any-return]
    raise NoKeyringError


def _from_environment() -> str | None:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    return token if _TOKEN.fullmatch(token) else None
