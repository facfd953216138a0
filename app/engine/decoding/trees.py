"""Draft trees as lists of parents (`Proposal.parents`).

Every leaf has a sequence of its own in the KV cache, and a token belongs to the sequences of all leaves after it.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_chain(parents: Sequence[int]) -> list[int]:
    """The tokens reached from the context by always taking the first of several. They stay in the KV cache."""
    chain = [-1]
    for token, parent in enumerate(parents):
        if parent == chain[-1]:
            chain.append(token)
    return chain[1:]


def sequences(parents: Sequence[int]) -> list[list[int]]:
    """For each token its sequences, in order; 0 is that of the first chain, the others begin with the first leaf."""
    numbers: list[list[int]] = [[] for _ in parents]
    last = first_chain(parents)[-1:]
    leaves = sorted(set(range(len(parents))) - set(parents) - set(last))
    for number, leaf in enumerate([*last, *leaves]):
        token = leaf
        while token >= 0:
            numbers[token].append(number)
            token = parents[token]
    return numbers


class Trie:
    """A tree that grows by whole continuations, which share the tokens with which they begin."""

    def __init__(self, most: int, branches: int) -> None:
        """At most ``most`` tokens, and so many ``branches`` beside its first chain."""
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._most, self._left = most, branches
        self._places: dict[tuple[int, int], int] = {}
        """By parent and token."""

    def add(self, tokens: Sequence[int], parent: int = -1) -> list[int]:
        """The places of ``tokens`` after the one at ``parent``, as far as there is room."""
        places: list[int] = []
        for token in tokens:
            place = self._places.get((parent, token))
            if place is None and (place := self._added(token, parent)) is None:
                break
            places.append(place)
            parent = place
        return places

    def _added(self, token: int, parent: int) -> int | None:
        forks = parent in self.parents
        if len(self.tokens) == self._most or (forks and not self._left):
            return None
        self._left -= forks
        self._places[parent, token] = place = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        return place
