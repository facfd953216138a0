"""Which turns of a chat go into a prompt, and which leave when it outgrows its context.

They leave when a quarter of the context would not be free for the answer; half of it is then made free at once, so that
the next turns can go on from the KV cache. How many have to leave is estimated from the lengths of their texts, in
proportion to the length of the whole prompt, which is known: a chat may have thousands of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.protocol.messages import Message

LEAST_ANSWER = 16
"""Tokens that must be left for an answer, or the message is refused."""
_REMEMBERED_CHATS = 32
_REMEMBERED_SIZES = 100_000
_AROUND = 8
"""About how many tokens a template writes around a message."""


@dataclass(frozen=True)
class Cut:
    """The turns from ``first`` up to ``end`` leave; all others stay."""

    first: int
    end: int

    def kept(self, turns: Sequence[Message]) -> list[Message]:
        """What stays of ``turns``."""
        return [*turns[: self.first], *turns[self.end :]]


class Sizes:
    """About how many tokens messages take, each for itself. Keeps no text; any thread may ask."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        """By hash of the text."""

    def of(self, messages: Sequence[Message], count: Callable[[str], int]) -> list[int]:
        """For each message; ``count`` tells the tokens of a text."""
        return [self._size(message.content, count) for message in messages]

    def _size(self, text: str, count: Callable[[str], int]) -> int:
        size = self._known.get(key := hash(text))
        if size is None:
            if len(self._known) >= _REMEMBERED_SIZES:
                self._known.clear()
            size = self._known[key] = count(text) + _AROUND
        return size


class Fitting:
    """Chooses what leaves the chats of one loaded target."""

    def __init__(self, context_length: int) -> None:
        """``context_length`` in tokens."""
        self.context_length = context_length
        self._remembered: list[tuple[int, int, int]] = []
        """First and end of what left, and a hash of all turns up to there: of the chat answered last first."""

    @property
    def room(self) -> int:
        """Tokens a prompt may have at most."""
        return self.context_length - LEAST_ANSWER

    def begin(self, turns: Sequence[Message], *, keeps_first: bool) -> Cut:
        """What left the last prompt of this chat, or nothing: only if this one goes on like it, its cache is of use.

        ``keeps_first``: the first turn stays.
        """
        first = _second_question(turns) if keeps_first else 0
        hashes = list(accumulate(turns, lambda before, turn: hash((before, turn.role, turn.content)), initial=0))
        ends = (
            end
            for begun, end, known in self._remembered
            if begun == first and end < len(turns) and hashes[end] == known
        )
        return Cut(first, next(ends, first))

    def shorter(self, turns: Sequence[Message], sizes: Sequence[int], cut: Cut, share: float, most: float) -> Cut:
        """What is to leave so that ``share`` of the tokens that ``cut`` leaves stay: the fewest turns that will do.

        Whole turns leave, so that the roles go on alternating. ``sizes``: of the system prompt, then of each turn.
        Where the first turn is to stay, and more than ``most`` of the tokens with it, it leaves, too.
        """
        behind = [*accumulate(reversed(sizes[1:]), initial=0)][::-1]
        """Tokens from each turn on."""
        fixed, last = sizes[0] + behind[0] - behind[cut.first], len(turns) - 1
        whole = fixed + behind[cut.end]
        ends = [i for i in range(cut.end + 1, last + 1) if turns[i].role == "user" or i == last] or [cut.end]
        end = next((i for i in ends if fixed + behind[i] <= share * whole), ends[-1])
        if cut.first and fixed + behind[end] > most * whole:
            end = next((i for i in ends if sizes[0] + behind[i] <= share * whole), ends[-1])
            return Cut(0, end)
        return Cut(cut.first, end)

    def remember(self, turns: Sequence[Message], cut: Cut) -> None:
        """The next prompt of this chat is to begin like this one."""
        if cut.end > cut.first:
            known = 0
            for turn in turns[: cut.end]:
                known = hash((known, turn.role, turn.content))
            entry = (cut.first, cut.end, known)
            self._remembered = [entry, *(other for other in self._remembered if other != entry)][:_REMEMBERED_CHATS]

    def forget(self) -> None:
        """Forget earlier chats."""
        self._remembered = []


def _second_question(turns: Sequence[Message]) -> int:
    """Where the second turn begins; 0 where there is none."""
    return next((i for i in range(1, len(turns)) if turns[i].role == "user"), 0)
