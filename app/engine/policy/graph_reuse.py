"""Where it pays that llama.cpp uses a graph again: measured once per pair, only where a GPU computes.

llama.cpp keeps the graph of the last pass alone. A pass over another number of tokens, or with another number of
outputs, builds and allocates its graph anew, and CUDA records a graph only after two equal passes. So verify passes may
be padded to a few widths, and a draft model may process all tokens one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from app.engine.policy.costs import padded

_DRAFTED = (4, 3, 4, 2, 6, 3, 4, 8)
"""Widths as drafting runs them, one after the other: most of few tokens, some of many."""
_WIDTHS: tuple[tuple[int, ...], ...] = ((), (8,), (4, 8))
"""What passes may be padded to. Beyond 8, they take a GPU longer, and are rare."""
_AFTER_FULL_ACCEPTANCE: Mapping[bool, Sequence[int]] = {False: (2, 1, 1, 1), True: (1, 1, 1, 1, 1)}
"""The widths of the passes of a draft of four tokens, with the two missing ones at once and one by one."""
_TIMES = 3
_GAIN = 0.97
"""The longest time, as a share of what is usual, at which something else is chosen."""

K = TypeVar("K", bound=Hashable)


def quickest_widths(seconds: Callable[[int], float], reused: Callable[[], int]) -> tuple[int, ...]:
    """The `Costs.widths` with which passes of changing widths take the least time.

    ``seconds`` runs a pass over so many tokens; ``reused`` says how many passes have used a graph again so far.
    """
    passes = {widths: [padded(width, widths) for width in _DRAFTED] for widths in _WIDTHS}
    return _quickest(passes, (), seconds, reused)


def is_quicker_one_by_one(seconds: Callable[[int], float], reused: Callable[[], int]) -> bool:
    """See `DraftCosts.one_by_one`. The arguments are those of `quickest_widths`."""
    return _quickest(_AFTER_FULL_ACCEPTANCE, False, seconds, reused)


def _quickest(
    passes: Mapping[K, Sequence[int]], usual: K, seconds: Callable[[int], float], reused: Callable[[], int]
) -> K:
    """Which of several orders of passes takes the least time, taking turns; the ``usual`` one unless another gains from
    graphs that are used again.
    """
    times, counts = dict.fromkeys(passes, float("inf")), dict.fromkeys(passes, 0)
    for _ in range(_TIMES):
        for choice, widths in passes.items():
            before = reused()
            total = sum(seconds(width) for width in widths)
            times[choice] = min(times[choice], total)  # whatever else is running only adds to it
            counts[choice] = reused() - before
    best = min(times, key=times.__getitem__)
    is_better = counts[best] > counts[usual] and times[best] <= _GAIN * times[usual]
    return best if is_better else usual
