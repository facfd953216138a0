"""Which tools the user has allowed to run without being asked again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from app.storage.json_file import KeyedFile
from app.tools.offered import OfferedTool

FILE_NAME = "allowed-tools.json"
_MOST = 1000


class AllowedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is always allowed, as it was when the user allowed it."""

    server: str
    """Empty: built in."""
    tool: str
    fingerprint: str


class Permissions:
    """What the user has allowed, by `OfferedTool.key`. A tool that has changed since then is no longer allowed.

    Nothing here allows a tool by itself. Not thread-safe, but the file may be written in another thread.
    """

    def __init__(
        self, folder: Path | None, write: Callable[[Callable[[], None]], object] = lambda change: change()
    ) -> None:
        """``write`` is given a function that writes the file and may raise `NotSavedError`. Without a ``folder``,
        nothing is stored."""
        path = folder / FILE_NAME if folder else None
        self._file = KeyedFile(path, AllowedTool, inside="allowed", most=_MOST, what="The list of allowed tools")
        self._always: dict[str, AllowedTool] = self._file.all()
        self._in_chats: dict[tuple[str, str], str] = {}
        """Fingerprints, by chat and key."""
        self._write = write

    def is_allowed(self, tool: OfferedTool, chat_id: str) -> bool:
        """Whether the user has allowed this tool in its current form, always or in this chat."""
        always = self._always.get(tool.key)
        if always is not None and always.fingerprint == tool.fingerprint:
            return True
        return bool(chat_id) and self._in_chats.get((chat_id, tool.key)) == tool.fingerprint

    def has_changed(self, tool: OfferedTool) -> bool:
        """Whether it was allowed before its description, arguments or server changed."""
        known = {one for (_, key), one in self._in_chats.items() if key == tool.key}
        known |= {one.fingerprint for key, one in self._always.items() if key == tool.key}
        return bool(known) and tool.fingerprint not in known

    def allow(self, tool: OfferedTool, chat_id: str = "") -> None:
        """Always allow it or, with a ``chat_id``, allow it in that chat until Slipstream closes."""
        if chat_id:
            self._in_chats[chat_id, tool.key] = tool.fingerprint
            return
        row = AllowedTool(server=tool.server, tool=tool.tool.name, fingerprint=tool.fingerprint)
        self._always[tool.key] = row
        self._write(lambda: self._file.put(tool.key, row))

    def withdraw(self, key: str) -> None:
        """Ask again from now on, in every chat."""
        self._in_chats = {place: one for place, one in self._in_chats.items() if place[1] != key}
        if self._always.pop(key, None) is not None:
            self._write(lambda: self._file.remove(key))

    def all(self) -> dict[str, AllowedTool]:
        """The tools that are always allowed, by key, the latest last."""
        return dict(self._always)
