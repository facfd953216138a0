"""Chooses which turns of a chat go into a prompt, and which are left out when it outgrows its context.

Turns are left out when less than a quarter of the context would be free for the answer; then half of it is freed at
once, so that the next turns can continue from the KV cache. Where only the question would stay, an eighth is enough, or
a long document would be gone with the second question about it. How many to leave out is estimated from the lengths of
their texts, in proportion to the length of the whole prompt, which is known: a chat may have thousands of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from app.protocol.commands import Message

LEAST_ANSWER = 16
"""Tokens that must be free for an answer; otherwise, the message is refused."""
_REMEMBERED_CHATS = 32
_REMEMBERED_SIZES = 100_000
_AROUND = 8
"""Approximate number of tokens that a template adds to a message."""


@dataclass(frozen=True)
class Cut:
    """The turns from ``first`` up to ``end`` are left out; all others stay."""

    first: int
    end: int

    def kept(self, turns: Sequence[Message]) -> list[Message]:
        """Those of ``turns`` that stay."""
        return [*turns[: self.first], *turns[self.end :]]


class Sizes:
    """The approximate number of tokens of single messages. Keeps no text; any thread may ask."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        """By hash of the text."""

    def of(self, messages: Sequence[Message], count: Callable[[Message], int]) -> list[int]:
        """For each message; ``count`` returns the tokens of its text and its images."""
        return [self._size(message, count) for message in messages]

    def _size(self, message: Message, count: Callable[[Message], int]) -> int:
        size = self._known.get(key := hash(content_of(message)))
        if size is None:
            if len(self._known) >= _REMEMBERED_SIZES:
                self._known.clear()
            size = self._known[key] = count(message) + _AROUND
        return size


def content_of(message: Message) -> tuple[str, ...]:
    """What a message says and shows, as a key."""
    calls = (f"{call.id} {call.name} {call.arguments}" for call in message.tool_calls)
    return (message.content, *(image.sha256 for image in message.images), *calls)


class Fitting:
    """Chooses what is left out of the chats of one loaded target."""

    def __init__(self, context_length: int) -> None:
        """``context_length`` in tokens."""
        self.context_length = context_length
        self._remembered: list[tuple[int, int, int]] = []
        """First and end of what was left out, and a hash of all turns up to there, for the chat answered most recently.
        """

    @property
    def room(self) -> int:
        """The maximum number of tokens of a prompt."""
        return self.context_length - LEAST_ANSWER

    def begin(self, turns: Sequence[Message], *, keeps_first: bool) -> Cut:
        """What was left out of the last prompt of this chat, or nothing: the cache is only useful if this prompt starts
        the same.

        ``keeps_first``: the first turn stays.
        """
        first = _second_question(turns) if keeps_first else 0
        hashes = list(accumulate(turns, lambda before, turn: hash((before, turn.role, content_of(turn))), initial=0))
        ends = (
            end
            for begun, end, known in self._remembered
            if begun == first and end < len(turns) and hashes[end] == known
        )
        return Cut(first, next(ends, first))

    def shorter(self, turns: Sequence[Message], sizes: Sequence[int], cut: Cut, share: float, most: float) -> Cut:
        """What to leave out so that ``share`` of the tokens that ``cut`` keeps stay: as few turns as possible.

        Whole turns are left out, so that the roles keep alternating. ``sizes``: of the system prompt, then of each
        turn. If the first turn should stay, but more than ``most`` of the tokens would stay with it, it is left out,
        too.
        """
        behind = [*accumulate(reversed(sizes[1:]), initial=0)][::-1]
        """Tokens from each turn to the end."""
        fixed, last = sizes[0] + behind[0] - behind[cut.first], len(turns) - 1
        whole = fixed + behind[cut.end]
        ends = [i for i in range(cut.end + 1, last + 1) if turns[i].role == "user" or i == last] or [cut.end]
        end = next((i for i in ends if fixed + behind[i] <= share * whole), ends[-1])
        if cut.first and fixed + behind[end] > most * whole:
            end = next((i for i in ends if sizes[0] + behind[i] <= share * whole), ends[-1])
            return Cut(0, end)
        return Cut(cut.first, end)

    def remember(self, turns: Sequence[Message], cut: Cut) -> None:
        """The next prompt of this chat should start like this one."""
        if cut.end > cut.first:
            known = 0
            for turn in turns[: cut.end]:
                known = hash((known, turn.role, content_of(turn)))
            entry = (cut.first, cut.end, known)
            self._remembered = [entry, *(other for other in self._remembered if other != entry)][:_REMEMBERED_CHATS]

    def forget(self) -> None:
        """Forget earlier chats."""
        self._remembered = []


def _second_question(turns: Sequence[Message]) -> int:
    """Where the second turn begins; 0 if there is none."""
    return next((i for i in range(1, len(turns)) if turns[i].role == "user"), 0)
