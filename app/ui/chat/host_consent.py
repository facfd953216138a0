"""Which chats may go to which servers: the user is asked before messages leave this computer for the first time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from app.chats.model import StoredMessage
from app.protocol.remote import RemoteModel


class HostConsent:
    """One for a window. Servers on this computer need no consent.

    What was allowed lasts until Slipstream ends. After that the chat itself tells: each answer is stored with the
    address of the server that wrote it, so everything up to the last answer has been there if that wrote it.
    """

    def __init__(self, remote: Callable[[], RemoteModel | None]) -> None:
        """``remote``: the server's model in use, if it is one."""
        self._remote = remote
        self._allowed: set[tuple[str, str]] = set()
        """Chats and hosts."""

    def host(self) -> str:
        """The computer of the server in use; empty if it is this computer."""
        remote = self._remote()
        return "" if remote is None or remote.server.is_loopback else _host(remote.server.address)

    def allow(self, chat_id: str) -> None:
        """This chat may go to the server in use."""
        if host := self.host():
            self._allowed.add((chat_id, host))

    def is_needed(self, chat_id: str, branch: Sequence[StoredMessage]) -> bool:
        """Whether the user has to be asked before these messages of a chat go to the server in use."""
        host = self.host()
        if not host or not branch or (chat_id, host) in self._allowed:
            return False
        last = next((message for message in reversed(branch) if message.role == "assistant"), None)
        return last is None or _host_of(last) != host


def _host_of(message: StoredMessage) -> str:
    """The computer that wrote an answer; empty if it was this one."""
    if '"server"' not in message.settings_json:
        return ""
    address = message.settings.get("server")
    return _host(address) if isinstance(address, str) else ""


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
