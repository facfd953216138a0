"""N-grams: proposes what followed the last few tokens when they occurred earlier in the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from app.engine.decoding.sequence import Task, TokenSequence, shared_prefix
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.engine.drafters.copying import Changes, Copy
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod

LONGEST_MATCH = 12
INDEXED = (4, 1)
"""Lengths of the indexed n-grams, longest first. The most recent places of a frequent short one, such as a line end
with its indent, hide older places that match longer; a longer one has few places.
"""
CANDIDATES = 16
"""How many of the most recent earlier places are examined for each length."""
AGREED = 2
"""Agreement of several places counts as so many more tokens of match."""
LEAST_CONFIDENCE = 2
"""A draft that begins with less hardly ever pays, and would only take the policy's time."""
_LEAST_COPY = 3
"""The shortest match that begins a copy."""

Told = Iterator[tuple[int, float]]
"""Tokens with confidences. Whoever iterates appends each token to the draft."""


class NgramDrafter(Drafter):
    """Drafts by copying from the conversation so far: needs no model and works with every target.

    The last tokens, up to `LONGEST_MATCH` of them, are looked up in everything before. The longest match wins. If
    several are equally long, they vote on each next token (the newest breaks ties) and those that are outvoted drop
    out. A match that reaches the end of the context continues with what it has just proposed, so that repetitions go
    on. A copy also goes on after a change, and repeats changes that were made before, such as a renamed variable.

    The confidence of a token is the length its match has once the tokens before it are accepted, so one scale serves
    all places of a draft. Where matches differ, it is multiplied by the share of the votes; where they agree, `AGREED`
    is added. It is between 0 and `LONGEST_MATCH`. There are no distributions: a draft that follows from the context
    alone is verified exactly, under every accept rule, by comparing it with the target's sample.

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
        self._copy: Copy | None = None
        self._changes = Changes()
        self._followed = 0
        """How much of the sequence the copy knows."""

    def begin(self, sequence: TokenSequence, task: Task) -> None:  # noqa: ARG002
        """Only what follows the prefix shared with the last sequence is indexed."""
        self.accepted()  # the end of the last answer, which wasn't reported
        shared = shared_prefix(self._sequence.tokens, sequence.tokens)
        for index in self._indexes:
            index.shrink(self._sequence.tokens, shared)
        self._sequence, self._copy, self._changes = sequence, None, Changes()
        self.accepted()

    def accepted(self) -> None:
        tokens = self._sequence.tokens
        for index in self._indexes:
            index.grow(tokens)
        for end in range(self._followed, len(tokens)) if self._copy else ():
            if self._copy and not self._copy.take(tokens, end, self._changes):
                self._copy = None
        self._followed = len(tokens)

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:  # noqa: ARG002
        return self.continue_([], count, worth)

    def continue_(self, draft: list[int], count: int, worth: Worth = always) -> Proposal:
        count = min(count, MAX_DRAFT_LENGTH)
        if count <= 0 or (draft and self._ends(draft[-1])):
            return Proposal()
        draft, begun = list(draft), len(draft)
        confidences: list[float] = []
        for token, confidence in self._following(draft):
            if confidence < LEAST_CONFIDENCE and not confidences:
                break
            draft.append(token)
            confidences.append(min(confidence, LONGEST_MATCH))
            if len(confidences) == count or self._ends(token) or not worth(confidences[-1]):
                break
        return Proposal(draft[begun:], confidences=confidences)

    def _following(self, draft: list[int]) -> Told:
        """What follows the context and ``draft``: of a copy or of the longest matches, whichever is more certain."""
        length, places = self._longest_matches(draft)
        voted = self._voted(length, places, draft)
        first, copy = next(voted, None), self._copy
        if first and not draft and length >= _LEAST_COPY:
            place = next(place for place in places if self._at(place, draft) == first[0])
            if copy is None or copy.written or (copy.place not in places and copy.confidence < length):
                copy = self._copy = Copy(place, length)
        copied = self._copied(copy, draft) if copy else iter(())
        begin = next(copied, None)
        if copy and begin:
            place, is_short = copy.place + len(draft), copy.since <= LONGEST_MATCH
            is_one_of_several = place in places and len(places) > 1 and is_short and not copy.before
            if not first or (place in places and not is_short) or (begin[1] >= first[1] and not is_one_of_several):
                yield begin
                yield from copied
                return
        if first:
            yield first
            yield from voted

    def _voted(self, length: int, places: list[int], draft: list[int]) -> Told:
        """What matches of one ``length`` agree on, or most of them."""
        for i in range(MAX_DRAFT_LENGTH if places else 0):
            followers = [self._at(place + i, draft) for place in places]
            votes = Counter(followers)
            token = max(votes, key=votes.__getitem__)  # among equals the first, which is the newest
            agreed = AGREED if votes[token] == len(places) > 1 else 0
            yield token, (length + i) * votes[token] / len(places) + agreed
            places = [place for place, follower in zip(places, followers, strict=True) if follower == token]

    def _copied(self, copy: Copy, draft: list[int]) -> Told:
        """How a copy goes on, with changes that were made before."""
        tokens, place, written = self._sequence.tokens, copy.place, copy.written
        if draft and (written or tokens[place : place + len(draft)] != draft):
            return
        place, confidence = place + len(draft), copy.confidence + len(draft)
        for _ in range(2 * MAX_DRAFT_LENGTH):
            known = (change for change in self._changes.at(tokens, place) if change.score > 0)
            change = next((change for change in known if change.new[: len(written)] == written), None)
            if place >= len(tokens) + len(draft) or (written and not change):
                return
            new = change.new[len(written) :] if change else [self._at(place, draft)]
            place, written = place + (len(change.old) if change else 1), []
            for token in new:
                yield token, confidence
                confidence += 1

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
        tokens = self._sequence.tokens
        return tokens[place] if place < len(tokens) else draft[place - len(tokens)]


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
        `CANDIDATES`. ``with_last``: also after the last token."""
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
