"""Prompt lookup: proposes what followed the last few tokens when they occurred earlier in the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from app.engine.decoding.sequence import Task, TokenSequence, shared_prefix
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod

SHORTEST_MATCH = 3
LONGEST_MATCH = 12
INDEXED = (6, SHORTEST_MATCH)
"""Lengths of the indexed n-grams, longest first. The most recent places of a frequent short one, such as a line end
with its indent, hide older places that match longer; a longer one has few places.
"""
CANDIDATES = 16
"""How many of the most recent earlier places are examined for each length."""


class NgramDrafter(Drafter):
    """Drafts by copying from the conversation so far: needs no model and works with every target.

    The last tokens, from `LONGEST_MATCH` down to `SHORTEST_MATCH` of them, are looked up in everything before. The
    longest match wins. If several are equally long, they vote on each next token (the newest breaks ties) and those
    that are outvoted drop out. A match that reaches the end of the context continues with what it has just proposed, so
    that repetitions go on.

    The confidence of a token is the length its match has once the tokens before it are accepted, so one scale serves
    all places of a draft, times the share of the votes it got, because a fork is where a copy goes wrong. It is between
    0 and `LONGEST_MATCH`. There are no distributions: a draft that follows from the context alone is verified exactly,
    under every accept rule, by comparing it with the target's sample.

    Work and memory are O(1) for each token added, and a draft costs the same at any context length: at most
    `CANDIDATES` places for each of `INDEXED`, compared over at most `LONGEST_MATCH` tokens.
    """

    name: DrafterName = "ngram"
    is_free = True

    def __init__(self, ends: Callable[[int], bool]) -> None:
        """``ends`` says whether nothing follows a token."""
        self._ends = ends
        self.forget()

    def forget(self) -> None:
        self._sequence = TokenSequence()
        self._indexes = [_Index(length) for length in INDEXED]

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        """Only what follows the prefix shared with the last sequence is indexed."""
        self.accepted()  # the end of the last answer, which wasn't reported
        shared = shared_prefix(self._sequence.tokens, sequence.tokens)
        for index in self._indexes:
            index.shrink(self._sequence.tokens, shared)
        self._sequence = sequence
        self.accepted()

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        return self.continue_([], count, worth)

    def continue_(self, draft: list[int], count: int, worth: Worth = always) -> Proposal:
        count = min(count, MAX_DRAFT_LENGTH)
        if count <= 0 or (draft and self._ends(draft[-1])):
            return Proposal()
        length, places = self._longest_matches(draft)
        draft, begun = list(draft), len(draft)
        confidences: list[float] = []
        while places and len(confidences) < count:
            followers = [self._at(place + len(confidences), draft) for place in places]
            votes = Counter(followers)
            token = max(votes, key=votes.__getitem__)  # among equals the first, which is the newest
            confidences.append(min(length + len(confidences), LONGEST_MATCH) * votes[token] / len(places))
            draft.append(token)
            if self._ends(token) or not worth(confidences[-1]):
                break
            places = [place for place, follower in zip(places, followers, strict=True) if follower == token]
        return Proposal(draft[begun:], confidences=confidences)

    def accepted(self) -> None:
        for index in self._indexes:
            index.grow(self._sequence.tokens)

    def _longest_matches(self, draft: list[int]) -> tuple[int, list[int]]:
        """The length of the longest match of the context and ``draft``, and where its continuation begins: one place or
        more, the newest first."""
        tail = [*self._sequence.tokens[-LONGEST_MATCH:], *draft][-LONGEST_MATCH:]
        for index in self._indexes:
            lengths = {place: self._match(place, tail) for place in index.earlier(tail, with_last=bool(draft))}
            longest = max(lengths.values(), default=0)
            if longest >= index.length:  # unless they only have the same hash
                return longest, [place for place, length in lengths.items() if length == longest]
        return 0, []

    def _match(self, place: int, tail: list[int]) -> int:
        """How many tokens before ``place`` are the last ones of ``tail``."""
        tokens = self._sequence.tokens
        limit = min(place, len(tail))
        length = 0
        while length < limit and tokens[place - 1 - length] == tail[-1 - length]:
            length += 1
        return length

    def _at(self, place: int, draft: list[int]) -> int:
        """The token at ``place`` of the context and a ``draft``."""
        beyond = place - len(self._sequence)
        return draft[beyond] if beyond >= 0 else self._sequence.tokens[beyond]


class _Index:
    """The places of each n-gram of one length as a chain, the newest first, as LZ77 compressors keep them.

    The n-gram that begins at token ``i`` has link ``i``: where the same n-gram began before, or -1. Growing adds links
    and shrinking removes the last ones again, which leaves exactly the index of the shorter text. N-grams are
    distinguished by their hash, so two may share a chain: the caller compares the tokens.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self._newest: dict[int, int] = {}
        self._links: list[int] = []

    def grow(self, tokens: list[int]) -> None:
        """Index what was added to ``tokens``."""
        newest, links = self._newest, self._links
        for place in range(len(links), len(tokens) - self.length + 1):
            gram = self._gram(tokens, place)
            links.append(newest.get(gram, -1))
            newest[gram] = place

    def shrink(self, tokens: list[int], count: int) -> None:
        """Forget all but the first ``count`` of ``tokens``, which must still contain the others."""
        while len(self._links) > max(count - self.length + 1, 0):
            earlier = self._links.pop()
            gram = self._gram(tokens, len(self._links))
            if earlier < 0:
                del self._newest[gram]
            else:
                self._newest[gram] = earlier

    def earlier(self, tail: list[int], *, with_last: bool) -> Iterator[int]:
        """Where the continuation of each earlier occurrence of the last n-gram of ``tail`` begins, the newest
        `CANDIDATES`. ``with_last``: also behind the last token."""
        place = self._newest.get(self._gram(tail, len(tail) - self.length), -1) if len(tail) >= self.length else -1
        if not with_last and place >= 0:
            place = self._links[place]
        for _ in range(CANDIDATES):
            if place < 0:
                return
            yield place + self.length
            place = self._links[place]

    def _gram(self, tokens: list[int], place: int) -> int:
        return hash(tuple(tokens[place : place + self.length]))
