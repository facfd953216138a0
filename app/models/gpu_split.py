"""Which GPU each layer of a model goes on, as llama.cpp decides it (``llama_model_base::load_tensors``)."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class GpuSplit:
    """How a pair is spread over the GPUs in use. A tuple has one item for each of them, in llama.cpp's order."""

    free: tuple[int, ...] = (1,)
    """Bytes. llama.cpp spreads layers by it if no shares are given."""
    total: tuple[int, ...] = (1,)
    """Bytes. CUDA spreads rows by it if no shares are given."""
    shares: tuple[float, ...] = ()
    """Of the target, and of a second model without a GPU of its own, in any unit; empty: none are given."""
    draft_gpu: int | None = None
    """The index of the GPU that a draft model has for itself."""
    by_rows: bool = False
    """The rows of each matrix are spread, and not only whole layers."""

    def target(self) -> tuple[float, ...]:
        """The shares of the target."""
        return self.shares or self.free

    def second(self, taken: Sequence[int]) -> tuple[float, ...]:
        """The shares of a model without a GPU of its own that is loaded when the target has ``taken`` so many bytes."""
        if self.shares:
            return self.shares
        return tuple(max(free - used, 0) for free, used in zip(self.free, taken, strict=True))

    def draft(self, taken: Sequence[int]) -> tuple[float, ...]:
        """The same for a draft model, which may have one."""
        if self.draft_gpu is None:
            return self.second(taken)
        return tuple(float(number == self.draft_gpu) for number in range(len(self.free)))

    def rows(self) -> tuple[float, ...]:
        """How much of each matrix is on each GPU; the sum is 1."""
        shares = self.shares or self.total
        return tuple(share / (sum(shares) or 1) for share in shares)


ONE_GPU = GpuSplit()


def first_gpu(shares: Sequence[float]) -> int:
    """The index of the first GPU that gets a part of a model."""
    return next((number for number, share in enumerate(shares) if share), 0)


def gpus_of_layers(shares: Sequence[float], count: int) -> list[int]:
    """The GPU of each of ``count`` layers that follow one another, the last of which is the output."""
    ends = list(accumulate(shares))
    whole = ends[-1] if ends else 0.0
    if not whole:
        return [0] * count  # llama.cpp would have nothing to go by
    ends = [end / whole for end in ends]
    return [min(bisect(ends, layer / count), len(ends) - 1) for layer in range(count)]


def filled(layers: Sequence[int], spaces: Sequence[int]) -> tuple[float, ...]:
    """How many of these ``layers`` (bytes, the output last) to give to each GPU, so that none takes more than its
    space if that is possible. GPUs are filled from the last to the first; the first gets the rest.
    """
    left = list(layers)
    counts = [0] * len(spaces)
    for number in range(len(spaces) - 1, 0, -1):
        space = spaces[number]
        while left and left[-1] <= space:
            space -= left.pop()
            counts[number] += 1
    counts[0] += len(left)
    return tuple(map(float, counts))
