"""A tool call, as it is stored; apart from `records`, because every chat needs it and few are imported."""

from __future__ import annotations

from typing import Literal

import msgspec

CallState = Literal["asked", "running", "done", "failed", "denied", "stopped"]


class StoredCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call in an answer, and what came of it. Calls with the same ``tokens`` are of one turn of the model: it
    wrote them together, and goes on when all have ended."""

    id: str
    name: str
    """Of the tool, as the model knows it."""
    arguments: str = "{}"
    """A JSON object, as the model wrote it."""
    server: str = ""
    """Whose tool it is, for display; empty: built in."""
    tool: str = ""
    """What that server calls it, if the model knows another name."""
    text: int = 0
    """Characters of the answer's text before it."""
    thinking: int = 0
    """Characters of the answer's thinking before it."""
    tokens: int = 0
    """Tokens of the answer up to the end of the turn that it is part of; the turn's number if tokens aren't known."""
    state: CallState = "asked"
    """``asked``: it waits for the user; ``stopped``: by the user, or because Slipstream ended."""
    result: str = ""
    """What the model gets; of a denied call the user's reason, of a failed one what went wrong."""
    images: tuple[str, ...] = ()
    """Hashes of the message's attachments that are part of the result."""
    seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        return self.state not in ("asked", "running")

    @property
    def ended(self) -> StoredCall:
        """The same where nobody decides about it, or hears of it, any more."""
        return self if self.has_ended else msgspec.structs.replace(self, state="stopped")
