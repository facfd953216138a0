"""Which turns of a chat go into a prompt, and which leave when it outgrows its context.

They leave when a quarter of the context would not be free for the answer; half of it is then made free at once, so that
the next turns can go on from the KV cache. How long they are is estimated turn by turn: a chat may have thousands, and
both whoever sends one and whoever only counts its tokens must come to the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.errors import KnownError
from app.protocol.messages import Message

LEAST_ANSWER = 16
"""Tokens that must be left for an answer, or the message is refused."""
_REMEMBERED_CHATS = 32
_REMEMBERED_SIZES = 100_000
_FRAME, _TURN = 16, 8
"""Tokens that a template is taken to write around a chat, and around each message, where it does not show them."""
_SHORT_CHAT = (Message(role="user", content="a"), Message(role="assistant", content="b"))


@dataclass(frozen=True)
class Cut:
    """The turns from ``first`` up to ``end`` leave; all others stay. ``tokens``: about how many these are."""

    first: int
    end: int
    tokens: int

    def kept(self, turns: Sequence[Message]) -> list[Message]:
        """What stays of ``turns``."""
        return [*turns[: self.first], *turns[self.end :]]


class Sizes:
    """About how many tokens messages take in a prompt, each for itself. Keeps no text; any thread may ask."""

    def __init__(self) -> None:
        self._contents: dict[int, int] = {}
        """By hash."""
        self._template: tuple[int, int] | None = None

    def of(self, messages: Sequence[Message], count: Callable[[str], int]) -> list[int]:
        """For each message without what the template adds; ``count`` tells the tokens of a text."""
        return [self._content(message.content, count) for message in messages]

    def _content(self, text: str, count: Callable[[str], int]) -> int:
        size = self._contents.get(key := hash(text))
        if size is None:
            if len(self._contents) >= _REMEMBERED_SIZES:
                self._contents.clear()
            size = self._contents[key] = count(text)
        return size

    def template(
        self, tokens: Callable[[Sequence[Message]], list[int]], count: Callable[[str], int]
    ) -> tuple[int, int]:
        """What the template adds to a chat and to each of its messages; ``tokens`` are those of a rendered chat."""
        if self._template is None:
            last = Message(role="user", content="c")
            try:
                alone, longer = len(tokens([last])), len(tokens([*_SHORT_CHAT, last]))
            except KnownError:
                return _FRAME, _TURN
            sizes = self.of([*_SHORT_CHAT, last], count)
            turn = max(math.ceil((longer - alone - sum(sizes[:2])) / 2), 0)
            self._template = max(alone - sizes[2] - turn, 0), turn
        return self._template


class Fitting:
    """Chooses what leaves the chats of one loaded target."""

    def __init__(self, context_length: int) -> None:
        """``context_length`` in tokens."""
        self.context_length = context_length
        self._remembered: list[tuple[int, int, int]] = []
        """First and end of what left, and a hash of all turns up to there: of the chat answered last first."""

    @property
    def room(self) -> int:
        """Tokens a prompt may have."""
        return self.context_length - LEAST_ANSWER

    def choose(
        self,
        turns: Sequence[Message],
        sizes: Sequence[int],
        fixed: int,
        most: int | None = None,
        room: int | None = None,
        *,
        keeps_first: bool,
    ) -> Cut:
        """What leaves, the fewest turns that will do; whole turns, so that the roles go on alternating.

        ``sizes``: tokens of each of the turns; ``fixed``: of what is in the prompt besides them. With ``most`` turns
        leave in any case, until what stays has no more tokens. ``keeps_first``: the first turn stays, unless the rest
        cannot be brought within ``room`` then. Nothing changes by choosing: `remember` makes the next prompt of this
        chat begin like this one.
        """
        hashes = list(accumulate(turns, lambda before, turn: hash((before, turn.role, turn.content)), initial=0))
        behind = [*accumulate(reversed(sizes), initial=0)][::-1]
        """Tokens from each turn on."""
        first = _second_question(turns) if keeps_first else 0
        cut = self._cut(turns, hashes, behind, fixed, first, most)
        if first and cut.tokens > (self.room if room is None else room):
            cut = self._cut(turns, hashes, behind, fixed, 0, most)
        return cut

    def _cut(
        self,
        turns: Sequence[Message],
        hashes: Sequence[int],
        behind: Sequence[int],
        fixed: int,
        first: int,
        most: int | None,
    ) -> Cut:
        fixed += behind[0] - behind[first]
        end, last = self._last_end(hashes, first), len(turns) - 1
        if most is not None or fixed + behind[end] > self.context_length * 3 // 4:
            most = self.context_length // 2 if most is None else most
            ends = [i for i in range(end + 1, last + 1) if turns[i].role == "user" or i == last] or [end]
            end = next((i for i in ends if fixed + behind[i] <= most), ends[-1])
        return Cut(first, end, fixed + behind[end])

    def _last_end(self, hashes: Sequence[int], first: int) -> int:
        """Where the last prompt of this chat went on: only if this one does, too, its KV cache is of use."""
        last = len(hashes) - 2
        ends = (
            end for begun, end, known in self._remembered if begun == first and end <= last and hashes[end] == known
        )
        return next(ends, first)

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
