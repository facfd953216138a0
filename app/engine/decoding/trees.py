"""Drafts with branches: which token follows which, as lists of parents.

The parent of a draft token is the index of the token before it, −1 for the context's last; parents come first. Every
leaf has a sequence of its own in the KV cache, and a token belongs to the sequences of all leaves behind it.
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
    """A tree that grows by whole continuations; those that begin alike share the tokens they have in common."""

    def __init__(self, most: int, branches: int) -> None:
        """It takes at most ``most`` tokens, and as many ``branches`` beside its first chain."""
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._most, self._left = most, branches
        self._places: dict[tuple[int, int], int] = {}
        """By parent and token."""

    def add(self, tokens: Sequence[int], behind: int = -1) -> list[int]:
        """The places of ``tokens``, which come after the one at ``behind``: as many as there is room for."""
        places: list[int] = []
        for token in tokens:
            place = self._places.get((behind, token))
            if place is None and (place := self._added(token, behind)) is None:
                break
            places.append(place)
            behind = place
        return places

    def _added(self, token: int, behind: int) -> int | None:
        forks = behind in self.parents
        if len(self.tokens) == self._most or (forks and not self._left):
            return None
        self._left -= forks
        self._places[behind, token] = place = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(behind)
        return place
