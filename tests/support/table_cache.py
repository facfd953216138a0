"""A KV cache without a model: logits are a function of the tokens before, so that rounding can't change a word."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from app.engine.decoding.sampling import Floats


class TableCache:
    """Its logits depend on all the tokens before; drafts may have branches."""

    chunk = 512
    may_reuse_graphs = False

    def __init__(self, vocabulary: int = 12, length: int = 1 << 20, branches: int = 16) -> None:
        self.tokens: list[int] = []
        self.length = length
        self.branches = branches
        self.vocabulary = vocabulary
        self.passes: list[int] = []
        """The widths of all passes."""
        self.trees = 0
        """How many of them had branches."""

    def _row(self, tokens: Sequence[int]) -> Floats:
        rng = np.random.default_rng(zlib.crc32(np.array(tokens, "<i4").tobytes()))
        return 2.0 * rng.standard_normal(self.vocabulary).astype(np.float32)

    def decode(self, tokens: Sequence[int], outputs: int) -> Floats:
        assert len(self.tokens) + len(tokens) <= self.length
        self.passes.append(len(tokens))
        self.tokens += tokens
        ends = range(len(self.tokens) - outputs + 1, len(self.tokens) + 1)
        return np.array([self._row(self.tokens[:end]) for end in ends])

    def decode_largest(self, tokens: Sequence[int], outputs: int, count: int | None) -> Floats:  # noqa: ARG002
        return self.decode(tokens, outputs)

    def decode_tree(self, tokens: Sequence[int], draft: Sequence[int], parents: Sequence[int]) -> Floats:
        assert len(self.tokens) + len(tokens) + len(draft) <= self.length
        leaves = len(set(range(len(draft))) - set(parents))
        assert leaves - 1 <= self.branches
        self.passes.append(len(tokens) + len(draft))
        self.trees += 1
        self.tokens += tokens
        before, paths = list(self.tokens), list[list[int]]()
        for token, parent in zip(draft, parents, strict=True):
            assert parent < len(paths), "parents come first"
            paths.append([*(paths[parent] if parent >= 0 else before), token])
        end = -1
        for place, parent in enumerate(parents):
            if parent == end:
                self.tokens.append(draft[place])
                end = place
        return np.array([self._row(before), *map(self._row, paths)])

    def roll_back(self, length: int) -> None:
        del self.tokens[length:]

    def hold(self, count: int) -> None:
        pass

    def remember(self) -> None:
        pass

    def graphs_reused(self) -> int:
        return 0

    def aborting(self, _should_stop: Callable[[], bool]) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        pass
