"""Images in a sequence of tokens. Each cell that an image takes in the KV cache is a number below zero there.

The numbers are made from the image's SHA-256, so that two sequences are only the same as far as their images are: what
compares tokens, such as the caches of earlier chats, needs to know nothing about images. The first number of an image
also says how many *positions* it takes, which may be fewer than cells: under M-RoPE the cells of an image share
positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FIRST = 1 << 30
"""Set in the first cell of an image. The lowest bits of that cell are the number of positions."""
_POSITION_BITS = 16
_HASH = (1 << 30) - 1


@dataclass(frozen=True)
class Span:
    """Where an image stands in a sequence: from the cell ``start`` up to ``end``."""

    start: int
    end: int
    positions: int

    @property
    def saved(self) -> int:
        """How many positions fewer than cells it takes."""
        return self.end - self.start - self.positions


def cells_of(identity: str, cells: int, positions: int) -> list[int]:
    """What stands in a sequence for an image, or a part of one, with this ``identity``. It takes so many ``cells`` and
    ``positions``.
    """
    if not 0 < positions < 1 << _POSITION_BITS:
        raise ValueError(f"an image with {positions} positions")
    words = np.frombuffer(hashlib.shake_128(identity.encode()).digest(4 * cells), "<u4").astype(np.int64)
    values = words & _HASH
    values[0] = _FIRST | (values[0] << _POSITION_BITS & _HASH) | positions
    numbers: list[int] = (-1 - values).tolist()
    return numbers


def spans_of(tokens: Sequence[int] | NDArray[np.int32]) -> list[Span]:
    """The images in ``tokens``, which don't begin within one."""
    array = np.asarray(tokens, np.int64)
    found: list[Span] = []
    if not len(array) or array.min() >= 0:
        return found
    values = -1 - array
    for start in np.flatnonzero((array < 0) & (values & _FIRST != 0)).tolist():
        after = np.flatnonzero((array[start + 1 :] >= 0) | (values[start + 1 :] & _FIRST != 0))
        end = start + 1 + int(after[0]) if len(after) else len(array)
        found.append(Span(start, end, int(values[start]) & ((1 << _POSITION_BITS) - 1)))
    return found


def has_images(tokens: Sequence[int]) -> bool:
    """Whether there is an image in ``tokens``."""
    return min(tokens, default=0) < 0


def text_of(tokens: Sequence[int]) -> list[int]:
    """``tokens`` without images."""
    return [token for token in tokens if token >= 0] if has_images(tokens) else list(tokens)


def piece_end(tokens: Sequence[int], start: int, most: int) -> int:
    """Where the part of ``tokens`` ends that can be processed together from ``start`` on: a whole image, or up to
    ``most`` tokens of text before the next one.
    """
    if tokens[start] >= 0:
        part = tokens[start : start + most]
        return start + next((place for place, token in enumerate(part) if token < 0), len(part))
    end = start + 1
    while end < len(tokens) and tokens[end] < 0 and not (-1 - tokens[end]) & _FIRST:
        end += 1
    return end
