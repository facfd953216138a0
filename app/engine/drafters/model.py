"""The drafter that uses a small model with the same vocabulary."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.accept_rules import Purpose, are_few, block_seed, draw, lead_of, noisy_candidates, with_noise
from app.engine.decoding.sampling import (
    Distributions,
    Logits,
    TopLogits,
    candidates,
    check_finite,
    distributions,
    has_penalties,
    masked,
    penalize_rows,
    stack,
)
from app.engine.decoding.sequence import MeasurableCache, Task, TokenSequence, shared_prefix
from app.engine.drafters import Drafter, Proposal, Worth, always
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName, ProposalMethod, Sampling
from app.system import Canceled, KnownError

_AFTER_FULL_ACCEPTANCE = 2
"""The tokens missing then: the last one drafted, and the target's own."""


class CachedChats(Protocol):
    """Switches a draft model's cache between chats (`app.engine.host.chat_cache.ChatSwitcher`)."""

    def usable(self, tokens: Sequence[int]) -> int:
        """How many tokens `begin` would leave in the cache; changes nothing."""

    def begin(self, tokens: Sequence[int], *, private: bool = False) -> int:
        """Make the cache contain a beginning of ``tokens``, and nothing else; returns its length."""

    def processed(self, count: int, seconds: float) -> None:
        """Report that ``count`` tokens were processed in ``seconds``."""


@dataclass(frozen=True)
class LoadedDraft:
    """A draft model or a head in memory, alongside its target."""

    cache: MeasurableCache
    vocabulary: int
    """The number of token ids that both models have."""
    ends: Callable[[int], bool]
    """Whether nothing follows a token."""
    should_stop: Callable[[], bool]
    """Asked while the context is processed."""
    chats: CachedChats | None = None
    """``None`` for a head, whose cache follows its target's to other chats."""
    longest: int = MAX_DRAFT_LENGTH
    """The most tokens it can draft at once."""


class ModelDrafter(Drafter):
    """Drafts with a draft model and keeps its KV cache for what was accepted.

    Under ``coupled`` it proposes either with the target's own noise, so that the two agree as often as their
    distributions do, or always its most likely token; under the other rules it samples with its own noise and returns
    the distributions.
    """

    name: DrafterName = "model"

    def __init__(self, draft: LoadedDraft) -> None:
        self._draft = draft
        self.cache = self._cache = draft.cache
        self.longest = draft.longest
        self.forget()

    def forget(self) -> None:
        self.begin(TokenSequence(), Task(sampling=Sampling(), seed=0))

    def begin(self, sequence: TokenSequence, task: Task) -> None:
        self._sequence, self._task = sequence, task
        needed = task.needed
        self._needed = None if needed is None else max(needed, 2)  # a lead is over the second
        self._drafted_from: int | None = None
        """The position of the last draft's first token, until it is known how much of the draft was accepted."""
        self._is_prepared = False
        """Whether the cache contains the beginning of this sequence, and nothing else."""
        self._check(sequence.tokens)

    def is_full(self) -> bool:
        return len(self._sequence) >= self._cache.length  # which may be shorter than the target's

    def missing(self) -> int:
        """The last token doesn't count: it is processed with the first proposal."""
        held = len(self._cache.tokens)
        if not self._is_prepared:
            tokens, chats = self._sequence.tokens[:-1], self._draft.chats
            held = chats.usable(tokens) if chats else shared_prefix(self._cache.tokens, tokens)
        return max(len(self._sequence) - 1 - held, 0)

    def catch_up(self, count: int) -> None:
        self._prepare()
        begun, before = time.perf_counter(), len(self._cache.tokens)
        self._process(min(before + count, len(self._sequence) - 1))
        if self._draft.chats:
            self._draft.chats.processed(len(self._cache.tokens) - before, time.perf_counter() - begun)

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        count = min(count, self._cache.length - len(self._sequence))
        if count <= 0:
            return Proposal()
        self._prepare()
        row = self._caught_up()
        self._cache.hold(count)
        self._drafted_from = len(self._sequence)
        tokens: list[int] = []
        choices: list[Choice] = []
        # Along the answer's grammar, where one is in force: what it refuses isn't proposed.
        grammar = self._task.grammar
        with grammar.ahead() if grammar and grammar.in_force else nullcontext() as ahead:
            while True:
                if ahead:
                    allowed = ahead.allowed()[: self._draft.vocabulary]
                    if not allowed.any():  # only tokens that the draft model doesn't have
                        break
                choice = self._choose(row, tokens, method, allowed if ahead else None)
                choices.append(choice)
                tokens.append(choice.token)
                if len(choices) == count or self._draft.ends(choice.token) or not worth(choice.lead):
                    break
                if ahead:
                    ahead.take(choice.token)
                row = self._cache.decode_largest([choice.token], 1, self._needed)
        rows = [choice.distribution for choice in choices if choice.distribution is not None]
        others = [choice.other for choice in choices if choice.other is not None]
        leads = [choice.lead for choice in choices]
        return Proposal(tokens, stack(rows) if rows else None, leads, others)

    def accepted(self) -> None:
        start, self._drafted_from = self._drafted_from, None
        if start is None:  # for example during a pause, where every microsecond counts against decoding without a draft
            return
        length = start + shared_prefix(self._cache.tokens[start:], self._sequence.tokens[start:])
        self._cache.roll_back(min(length, len(self._sequence) - 1))

    def _prepare(self) -> None:
        """Switch the cache to this chat when it is first needed. Raises `KnownError`."""
        if self._is_prepared:
            return
        tokens = self._sequence.tokens[:-1]
        if self._draft.chats:
            self._draft.chats.begin(tokens, private=self._task.private)
        else:
            self._cache.roll_back(shared_prefix(self._cache.tokens, tokens))
        self._is_prepared = True

    def _caught_up(self) -> Logits:
        """The logits after the sequence, one row; other drafters may have written much of it. Raises `KnownError`."""
        held, end = len(self._cache.tokens), len(self._sequence)
        if end - held > self._cache.chunk or held < self._sequence.prompt_length < end:
            self._process(end - 1)
        elif self.one_by_one and end - held == _AFTER_FULL_ACCEPTANCE:
            self._feed(end - 1)
        return self._feed(end)

    def _process(self, end: int) -> None:
        """Process the sequence up to ``end``. The place in the prompt that later turns go back to is marked."""
        cache, shared = self._cache, self._sequence.shared_length
        with cache.aborting(self._draft.should_stop):
            while (held := len(cache.tokens)) < end:
                if self._draft.should_stop():
                    raise Canceled
                stop = shared if held < shared < end else end
                self._feed(min(stop, held + cache.chunk))
                if len(cache.tokens) == shared:
                    cache.remember()

    def _feed(self, end: int) -> Logits:
        """Decode what the cache lacks of the sequence up to ``end``; the logits after it, one row."""
        tokens = self._sequence.tokens[len(self._cache.tokens) : end]
        self._check(tokens)
        # Without logits llama.cpp returns before a GPU has finished, and this would look cheaper than it is.
        return self._cache.decode_largest(tokens, 1, self._needed)

    def _check(self, tokens: Sequence[int]) -> None:
        if max(tokens, default=0) >= self._draft.vocabulary:
            raise KnownError("This chat has tokens that the draft model doesn't know.")

    def _prepared(self, row: Logits, draft: list[int], allowed: NDArray[np.bool_] | None) -> Logits:
        """``row`` cut to the target's vocabulary, with penalties and the grammar's mask."""
        sampling = self._task.sampling
        row = _shared(row, self._draft.vocabulary)
        if has_penalties(sampling) and sampling.penalty_window:
            history = [*self._sequence.tokens[-sampling.penalty_window :], *draft]
            row = penalize_rows(row, history, [], sampling)
        if allowed is not None:
            assert not isinstance(row, TopLogits)
            row = masked(row, allowed)
        return row

    def _position(self, draft: list[int]) -> int:
        """Of the token after ``draft``, in the target's sequence."""
        return len(self._sequence) + self._sequence.left_out + len(draft)

    def _choose(
        self, row: Logits, draft: list[int], method: ProposalMethod, allowed: NDArray[np.bool_] | None
    ) -> Choice:
        task, sampling = self._task, self._task.sampling
        row, position = self._prepared(row, draft, allowed), self._position(draft)
        if task.accept != "coupled":
            seed = block_seed(task.seed, position - len(draft)) if task.accept == "block" else task.seed
            q = distributions(row, sampling)
            is_cut = sampling.temperature > 0 and not q.whole
            lead = lead_of(q.log_probs[0], 0) if is_cut else _best(row)[1] / (sampling.temperature or 1.0)
            return Choice(draw(q, seed, [position], Purpose.DRAFT)[0], lead, distribution=q)
        if sampling.temperature == 0:
            return Choice(*_best(row))
        if are_few(sampling):
            tokens, log_probs, noisy_few = noisy_candidates(row, sampling, task.seed, position)
            best = noisy_few.index(max(noisy_few))
            if method == "greedy":
                return Choice(tokens[0], lead_of(log_probs, 0), other=tokens[best])
            return Choice(tokens[best], lead_of(noisy_few, best), other=tokens[0])
        p = candidates(row, sampling)
        ids, noisy = with_noise(p, task.seed, position)
        best, scores = int(noisy.argmax()), p.log_probs[0]
        coupled, likeliest = int(ids[best]), int(scores.argmax())
        if method == "greedy":
            return Choice(int(p.ids[0, likeliest]), lead_of(scores, likeliest), other=coupled)
        return Choice(coupled, lead_of(noisy, best), other=int(p.ids[0, likeliest]))


@dataclass(frozen=True)
class Choice:
    """What a draft model chose for one position."""

    token: int
    lead: float
    """Nats between the best and the second-best score. When sampling, those of the distribution, not of the token drawn
    from it: the length of the draft must not depend on a token that hasn't been tested yet.
    """
    other: int | None = None
    distribution: Distributions | None = None


def _shared(row: Logits, vocabulary: int) -> Logits:
    """``row`` without tokens that the target doesn't have: the first ``vocabulary`` are those of both models."""
    if not isinstance(row, TopLogits):
        return row[:, :vocabulary]
    known = row.ids < vocabulary
    return row if known.all() else TopLogits.sorted(row.ids, np.where(known, row.values, np.float32(-np.inf)))


def _best(row: Logits) -> tuple[int, float]:
    """The most likely token and its lead, without sorting the row."""
    if isinstance(row, TopLogits):
        check_finite(row.values.max())
        return int(row.ids[0, 0]), lead_of(row.values[0], 0)
    token = int(np.argmax(row[0]))  # NaN if there is one
    check_finite(row[0, token])
    return token, lead_of(row[0], token)
