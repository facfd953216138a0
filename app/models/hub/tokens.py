"""The access token for gated repositories: in the system's keyring, never in a file, a log or another process."""

from __future__ import annotations

import os
import re
from typing import Literal

from app.storage.secrets import SERVICE, SecretStore, backend_name

__all__ = ["SERVICE", "TOKEN_VARIABLE", "TokenPlace", "TokenStore", "backend_name"]

TOKEN_VARIABLE = "HF_TOKEN"
TokenPlace = Literal["nowhere", "keyring", "memory", "environment"]


class TokenStore(SecretStore):
    """One access token per hub, such as ``huggingface.co``.

    HF_TOKEN is used if there is no other, and never stored.
    """

    what = "access token"
    _pattern = re.compile(r"[\x21-\x7e]{1,1000}")

    def get(self, name: str) -> str | None:
        """The token for a hub; the keyring is asked once."""
        return super().get(name) or self._from_environment()

    def place(self, host: str) -> TokenPlace:
        """The source of the token that `get` returns."""
        with self._lock:
            token, place = self._own(host)
            return "environment" if token is None and self._from_environment() else place

    def _not_valid(self) -> str:
        return "This isn't an access token. Copy it again from your settings on Hugging Face."

    def _from_environment(self) -> str | None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        return token if self._pattern.fullmatch(token) else None
