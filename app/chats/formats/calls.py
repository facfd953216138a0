"""A stored tool call. Separate from `records`, because every chat needs it but few are imported."""

from __future__ import annotations

from typing import Literal

import msgspec

CallState = Literal["asked", "running", "done", "failed", "denied", "stopped"]


class StoredCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call in an answer, with its result. Calls with the same ``tokens`` belong to one turn: the model wrote
    them together, and goes on when all have ended."""

    id: str
    name: str
    """The tool's name as the model knows it."""
    arguments: str = "{}"
    """A JSON object, as the model wrote it."""
    server: str = ""
    """The tool's server, for display; empty if it is built in."""
    tool: str = ""
    """The tool's name on its server, if the model knows it by another."""
    text: int = 0
    """Characters of the answer's text before it."""
    thinking: int = 0
    """Characters of the answer's thinking before it."""
    tokens: int = 0
    """Tokens of the answer up to the end of this call's turn; if tokens aren't known, the turn's number."""
    state: CallState = "asked"
    """``asked``: waits for the user; ``stopped``: by the user, or because Slipstream closed."""
    result: str = ""
    """What the model gets; for a denied call the user's reason, for a failed call what went wrong."""
    images: tuple[str, ...] = ()
    """Hashes of those attachments of the message that belong to the result."""
    seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        return self.state not in ("asked", "running")

    @property
    def ended(self) -> StoredCall:
        """The same call once nobody can decide about it or wait for it any more."""
        return self if self.has_ended else msgspec.structs.replace(self, state="stopped")
