"""How long a model thinks before its answer, while it does."""

from __future__ import annotations

import time
from collections.abc import Iterable

from app.protocol.events import Round


class ThinkingClock:
    """Counts as `Figures.thinking_seconds` does: from the first token of the answer to the last of its thinking."""

    def __init__(self, before: float = 0.0) -> None:
        """``before``: seconds that the model had thought for this answer when it was cut."""
        self._before = before
        self._first: tuple[float, float] | None = None
        """When the first token came, by the engine's clock and by ours."""
        self._until = 0.0
        self._is_thinking = False

    def add(self, rounds: Iterable[Round]) -> None:
        """More of the answer."""
        for one in rounds:
            if one.tokens and self._first is None:
                self._first = one.time, time.monotonic()
            if self._first is None or not one.pieces:
                continue
            self._is_thinking = one.pieces[-1].thinking
            if any(piece.thinking for piece in one.pieces):
                self._until = one.time - self._first[0]

    def seconds(self) -> float:
        """So far; goes on between two rounds while the model thinks."""
        if self._is_thinking and self._first is not None:
            return self._before + max(self._until, time.monotonic() - self._first[1])
        return self._before + self._until
