"""Parts of an answer as rounds, with counters that grow as far as the server says how.

llama-server sends one token at a time, and with it the counters and the decoding time so far, which are the same for
all tokens of a verify pass. So its tokens are put together again into rounds of one pass each.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from app.protocol.events import Piece, Round
from app.remote.figures import ServerFigures
from app.remote.replies import Part
from app.remote.think_marks import ThinkMarks

_NOTHING = ServerFigures(drafted=0, accepted=0, tested=0)


class Rounds:
    """Turns parts into rounds.

    Attributes:
        figures: What the server has said last about the drafting of this answer.
        count: How many rounds there were.
        passes: How many verify passes were seen, of a server that tells them apart.
        are_passes: Whether each round with a draft is one verify pass, so that positions can be counted.
    """

    def __init__(self) -> None:
        self.figures: ServerFigures | None = None
        self.count = self.passes = 0
        self.are_passes = True
        self._marks = ThinkMarks()
        self._tokens = 0
        """Of the answer so far, as the server counts or, where it doesn't, one for each part."""
        self._before = _NOTHING
        """The server's figures when the last round began."""
        self._pass_mark: float | None = None
        self._open: Round | None = None
        """A pass some of whose tokens haven't come."""

    def of(self, parts: list[Part], seconds: float) -> list[Round]:
        """The rounds that are complete with these parts, which came ``seconds`` after the request."""
        return [one for part in parts for one in self._of(part, seconds)]

    def rest(self, seconds: float) -> list[Round]:
        """What was held back: a pass that isn't complete, and what could have been the beginning of a mark."""
        rounds = list(self._close())
        if pieces := _shown(*self._marks.rest(), round_=self.count):
            rounds.append(Round(index=self.count, verify_passes=0, pieces=pieces, time=seconds))
            self.count += 1
        return rounds

    def _of(self, part: Part, seconds: float) -> Iterator[Round]:
        self.figures = part.figures or self.figures
        is_same = part.pass_mark is not None and part.pass_mark == self._pass_mark
        is_new_pass = part.pass_mark is not None and not is_same and self._pass_mark is not None
        self.passes += is_new_pass  # the first token comes from the prompt
        self._pass_mark = self._pass_mark if part.pass_mark is None else part.pass_mark
        if not (part.text or part.thinking or is_new_pass):  # a pass may bring only a token without text
            return
        if not is_same:
            yield from self._close()
        found = self._round(part, seconds, is_same_pass=is_same)
        self._open = found if self._open is None else _joined(self._open, found)
        if part.pass_mark is None or self._open.tokens > self._open.accepted:
            yield from self._close()

    def _close(self) -> Iterator[Round]:
        if self._open is not None:
            yield self._open
            self.count += 1
            self._open = None

    def _round(self, part: Part, seconds: float, *, is_same_pass: bool) -> Round:
        counted = part.usage.completion if part.usage else None
        tokens = 1 if counted is None else max(counted - self._tokens, 0)
        is_first, drafted, tested, accepted, passes = not self._tokens, 0, 0, 0, 0
        self._tokens += tokens
        if part.figures is not None and part.figures.source == "live":
            drafted = max(part.figures.drafted - self._before.drafted, 0)
            tested = max(part.figures.tested - self._before.tested, 0)
            accepted = max(part.figures.accepted - self._before.accepted, 0)
            self._before = part.figures
            passes = 0 if is_same_pass else max(tokens - accepted, 1)
            self.are_passes &= passes <= 1
        thought, answer = self._marks.split(part.text) if part.text else ("", "")
        return Round(
            index=self.count,
            verify_passes=max(passes - is_first, 0),  # the first token comes from the prompt
            pieces=_shown(part.thinking + thought, answer, round_=self.count),
            tokens=tokens,
            drafted=drafted,
            tested=tested,
            accepted=accepted,
            kind="thinking" if part.thinking or thought else "prose",
            time=seconds,
        )


def _shown(thinking: str, answer: str, round_: int) -> list[Piece]:
    pieces = [Piece(text=thinking, thinking=True, round=round_)] if thinking else []
    return [*pieces, *([Piece(text=answer, round=round_)] if answer else [])]


def _joined(first: Round, second: Round) -> Round:
    """Two parts of the same verify pass."""
    return msgspec.structs.replace(
        first,
        pieces=[*first.pieces, *second.pieces],
        tokens=first.tokens + second.tokens,
        drafted=first.drafted + second.drafted,
        tested=first.tested + second.tested,
        accepted=first.accepted + second.accepted,
        time=second.time,
    )
