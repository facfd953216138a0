"""Lookahead decoding (arXiv 2402.02057): the target itself writes n-grams ahead of the text, in its verify passes."""

from __future__ import annotations

import random
from collections import deque

from app.engine.decoding.sequence import Task, TokenSequence
from app.engine.decoding.trees import Trie
from app.engine.drafters import Drafter, Needs, Proposal, Worth, always
from app.protocol.options import DrafterName, ProposalMethod

WINDOW, NGRAM, POOL = 4, 3, 4
"""Columns of the window, the length of its n-grams, and how many of them are tested at once. Each column and n-gram
takes `NGRAM` − 1 tokens of a draft: 16 altogether, in `BRANCHES` branches."""


class LookaheadDrafter(Drafter):
    """Needs no model, but a target that can test draft trees.

    The window has `NGRAM` − 1 rows of guesses for the next positions, one from each of the last passes. Its first row
    follows the context as a chain; each of its tokens is followed by those of the other rows in its column. What the
    target finds most likely after a column is a token of the next row (Jacobi iteration), and the column with it is an
    n-gram for the pool. n-grams of the pool that begin with the context's last token are tested beside the window.
    """

    name: DrafterName = "lookahead"
    needs: Needs = "logits"
    is_automatic = False

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._sequence = TokenSequence()
        self._pool: dict[int, deque[tuple[int, ...]]] = {}
        """What may follow a token, the newest last."""
        self._rows: list[list[int]] = []
        self._columns: list[int] = []
        """Where the last token of each column is in the draft that is being tested."""
        self._length = 0
        """Of the sequence when the window was last moved."""

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        """The window starts with tokens of the context, drawn at random."""
        self.forget()
        self._sequence, self._length, self._random = sequence, len(sequence), random.Random(0)
        self._rows = [self._guesses(WINDOW) for _ in range(NGRAM - 1)]

    def _guesses(self, count: int) -> list[int]:
        return self._random.choices(self._sequence.tokens, k=count)

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        """n-grams of the pool come first: what is accepted of the first one stays in the KV cache."""
        window = WINDOW * (NGRAM - 1)
        has_window = count >= window and self.branches >= WINDOW
        trie = Trie(count, self.branches)
        fitting = min((count - window * has_window) // (NGRAM - 1), self.branches + 1 - WINDOW * has_window)
        for ngram in [*reversed(self._pool.get(self._sequence.tokens[-1], ()))][:fitting]:
            trie.add(ngram)
        first, *others = self._rows
        self._columns = [
            trie.add([row[column] for row in others], parent=place)[-1]
            for column, place in enumerate(trie.add(first) if has_window else ())
        ]
        return Proposal(trie.tokens, confidences=[1.0] * len(trie.tokens), parents=trie.parents)

    def seen(self, tokens: list[int]) -> None:
        if not self._columns or len(tokens) <= max(self._columns) + 1:
            return
        new = [tokens[place + 1] for place in self._columns]
        for column, last in enumerate(new):
            first, *others = (row[column] for row in self._rows)
            known = self._pool.setdefault(first, deque(maxlen=POOL))
            ngram = (*others, last)
            if ngram in known:
                known.remove(ngram)
            known.append(ngram)
        self._rows = [*self._rows[1:], new]
        self._length += 1  # the rows are those for one position further

    def accepted(self) -> None:
        """The window moves with the text."""
        moved = min(max(len(self._sequence) - self._length, 0), WINDOW)
        self._rows = [[*row[moved:], *self._guesses(moved)] for row in self._rows]
        self._length = len(self._sequence)
