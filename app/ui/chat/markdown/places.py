"""Which characters of a document show which ones of its source, as noted while they were written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec


class Run(msgspec.Struct, gc=False):
    """Document positions ``start`` to ``end`` show the source from ``source`` to ``source_end``: each a character, or,
    where these are not as many, together one thing, such as a formula or an emoji."""

    start: int
    end: int
    source: int
    source_end: int
    is_one: bool = False
    """Not to be joined with what stands beside it."""

    @property
    def is_linear(self) -> bool:
        return self.end - self.start == self.source_end - self.source

    def shown(self, start: int, end: int) -> tuple[int, int] | None:
        """The document positions that show these characters of the source."""
        first, last = max(start, self.source), min(end, self.source_end)
        if first >= last:
            return None
        if not self.is_linear:
            return self.start, self.end
        shift = self.start - self.source
        return first + shift, last + shift


def add_run(runs: list[Run], run: Run) -> None:
    """Add what was written last, joined with what stands before it where that is one stretch in both."""
    last = runs[-1] if runs else run
    is_joined = last.end == run.start and last.source_end == run.source and last.is_linear and run.is_linear
    if is_joined and not last.is_one and not run.is_one:
        last.end, last.source_end = run.end, run.source_end
    else:
        runs.append(run)


class Span(msgspec.Struct, frozen=True, gc=False):
    """Document positions ``start`` to ``end`` came with piece number ``piece``."""

    start: int
    end: int
    piece: int


def spans(runs: Sequence[Run], starts: Sequence[int]) -> list[Span]:
    """The pieces under these runs; ``starts``: where each piece begins in the source. What is one thing belongs to the
    piece that began it."""
    result: list[Span] = []
    for run in runs if starts else ():
        index = max(bisect_right(starts, run.source) - 1, 0)
        if not run.is_linear:
            result.append(Span(run.start, run.end, index))
            continue
        while index < len(starts) and starts[index] < run.source_end:
            piece_end = starts[index + 1] if index + 1 < len(starts) else run.source_end
            shown = run.shown(starts[index], piece_end)
            if shown is not None:
                result.append(Span(*shown, index))
            index += 1
    return result
