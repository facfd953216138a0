"""Copies that go on after a change, for n-grams."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

_WINDOW, _MOST_WRITTEN = 12, 8
"""How far after a change, and after how many other tokens, a copy finds its place again."""
_LEAST_BEFORE, _MOST_BEFORE, _BEFORE = 6, 32, 8
"""Changes of a shorter copy than ``_LEAST_BEFORE`` are chance. Of what was copied before a change, at most
``_MOST_BEFORE`` tokens count, and each ``_BEFORE`` of them as one."""
_MOST_CHANGES = 8
"""How many changes that begin with one token are remembered."""


@dataclass(slots=True)
class Change:
    """``new`` was written for ``old``, ``score`` times more often than not."""

    old: list[int]
    new: list[int]
    score: int = 1


class Changes:
    """What was replaced, or left out, in copies."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[Change]] = defaultdict(list)

    def learn(self, old: list[int], new: list[int]) -> None:
        """``new`` was written for ``old``."""
        known = self._by_first[old[0]]
        for change in known:
            if change.old == old and change.new == new:
                change.score += 1
                return
        known.append(Change(old, new))
        del known[:-_MOST_CHANGES]

    def at(self, tokens: list[int], place: int) -> list[Change]:
        """Those that can be made at ``place``, the newest first."""
        known = self._by_first.get(tokens[place], []) if self._by_first and place < len(tokens) else []
        return [change for change in reversed(known) if tokens[place : place + len(change.old)] == change.old]


@dataclass(slots=True)
class Copy:
    """Where the text is being copied from. A few tokens may be replaced, left out or inserted on the way."""

    place: int
    """What comes next, or where a change began that hasn't ended."""
    since: int
    """Tokens copied since the last change."""
    before: int = 0
    """Tokens copied before it."""
    written: list[int] = field(default_factory=list)
    """The new tokens of a change that hasn't ended."""
    guess: tuple[int, list[int]] | None = None
    """Where the last change began, and its new tokens, while it may not have ended after all."""

    @property
    def confidence(self) -> float:
        """As the length of a match."""
        return self.since + min(self.before, _MOST_BEFORE) / _BEFORE

    def take(self, tokens: list[int], end: int, changes: Changes) -> bool:
        """Follow ``tokens[end]``; returns whether this is still a copy."""
        token = tokens[end]
        if not self.written:
            if self.place < end and tokens[self.place] == token:
                self._go_on(tokens, changes)
                return True
            if self.guess:  # the change hadn't ended
                self.place, self.written = self.guess[0], [*self.guess[1], *tokens[end - self.since : end]]
            else:
                self.before += self.since
        self.written.append(token)
        for change in changes.at(tokens, self.place):
            if change.new == self.written:
                change.score += 1
                self._resume(self.place + len(change.old), None)
                return True
        for place in range(self.place, min(self.place + _WINDOW, end)):
            if tokens[place] == token:
                self._resume(place + 1, (self.place, self.written[:-1]))
                return True
        return len(self.written) <= _MOST_WRITTEN

    def _resume(self, place: int, guess: tuple[int, list[int]] | None) -> None:
        self.place, self.since, self.guess, self.written = place, 1, guess, []

    def _go_on(self, tokens: list[int], changes: Changes) -> None:
        if self.since > 1:
            for change in changes.at(tokens, self.place):
                change.score -= 1  # it could have been made here
        if self.guess:
            (start, new), self.guess = self.guess, None
            if self.before >= _LEAST_BEFORE and (old := tokens[start : self.place - self.since]):
                changes.learn(old, new)
        self.place += 1
        self.since += 1
