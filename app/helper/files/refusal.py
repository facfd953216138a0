"""Why a file isn't read."""

from __future__ import annotations

from app.helper.messages import FileReason


class RefusedError(Exception):
    """A file that can't be read."""

    def __init__(self, reason: FileReason, detail: str = "") -> None:
        super().__init__(reason)
        self.reason: FileReason = reason
        self.detail = detail
