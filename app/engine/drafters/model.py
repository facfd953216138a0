"""A small model of the same vocabulary as drafter."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.accept_rules import Purpose, best_of_all, block_seed, draw, gumbel, lead_of
from app.engine.decoding.cache import Cache, cut_to, shared_prefix
from app.engine.decoding.sampling import (
    Distributions,
    Floats,
    check_finite,
    distributions,
    has_penalties,
    keeps_all,
    penalise,
    stack,
    survivors,
    top_candidates,
)
from app.engine.drafters import Proposal, Worth, always
from app.engine.host.chat_cache import ChatSwitcher
from app.errors import Cancelled, KnownError
from app.protocol.messages import AcceptRule, DrafterName, Sampling, Way

_LEAD = 3.0
"""A lead up to which it is exact where nothing is cut; to be sure of a larger one more tokens would be looked at."""
_UNKNOWN_TOKENS = "This chat has tokens that the draft model does not know."


class ModelDrafter:
    """Drafts with a draft model and keeps its KV cache for what was accepted.

    Under ``coupled`` it proposes either with the target's own noise, so that the two agree as often as their
    distributions do, or always its likeliest token; under the other rules it samples with noise of its own and hands
    out the distributions.
    """

    name: DrafterName = "model"

    def __init__(
        self,
        cache: Cache,
        vocabulary: int,
        ends: Callable[[int], bool],
        should_stop: Callable[[], bool],
        switcher: ChatSwitcher | None = None,
    ) -> None:
        """``vocabulary`` is the number of ids both models know; ``ends`` tells tokens after which nothing follows.

        ``should_stop`` is asked while the context is processed. Without a ``switcher`` of the cache only the chat that
        was answered last is in it.
        """
        self._cache = cache
        self._switcher = switcher
        self._should_stop = should_stop
        self._vocabulary = vocabulary
        self._ends = ends
        self._context: list[int] = []
        self._proposed: list[int] = []
        self._prompt_length = 0
        self._is_prepared = False
        """Whether the cache holds the beginning of this context, and nothing else."""
        self._noise = 0
        """The seed of what is drawn for the draft."""
        self.configure(Sampling(), "coupled", 0)

    def configure(self, sampling: Sampling, accept: AcceptRule, seed: int) -> None:
        """Set how to propose in the next generation."""
        self._sampling, self._accept, self._seed = sampling, accept, seed
        self._samples = accept != "coupled"

    def begin(self, tokens: Sequence[int]) -> None:
        """Take over a prompt; the model sees nothing of it before `catch_up` or `propose`. See `Drafter.begin`."""
        self._context = list(tokens)
        self._proposed = []
        self._prompt_length = len(tokens)
        self._is_prepared = False
        if not self._knows(tokens):
            raise KnownError(_UNKNOWN_TOKENS)

    def missing(self) -> int:
        """See `Drafter.missing`. The last token does not count: it is fed with the first proposal."""
        held = len(self._cache.tokens) if self._is_prepared else self._usable()
        return max(len(self._context) - 1 - held, 0)

    def catch_up(self, count: int) -> None:
        """See `Drafter.catch_up`."""
        self._prepare()
        begun, before = time.perf_counter(), len(self._cache.tokens)
        self._process(min(before + count, len(self._context) - 1))
        if self._switcher:
            self._switcher.processed(len(self._cache.tokens) - before, time.perf_counter() - begun)

    def propose(self, count: int, way: Way = "coupled", worth: Worth = always) -> Proposal:
        """See `Drafter.propose`."""
        self._proposed = []
        count = min(count, self._cache.length - len(self._context))
        if count <= 0:
            return Proposal()
        self._prepare()
        row = self._caught_up()
        self._noise = block_seed(self._seed, len(self._context)) if self._accept == "block" else self._seed
        self._cache.hold(count)
        choices: list[_Choice] = []
        while True:
            choice = self._choose(row, self._proposed, way)
            choices.append(choice)
            self._proposed.append(choice.token)
            if len(choices) == count or self._ends(choice.token) or not worth(choice.lead):
                break
            row = self._cache.decode([choice.token], 1)[0]
        rows = [choice.distribution for choice in choices if choice.distribution is not None]
        others = [choice.other for choice in choices if choice.other is not None]
        leads = [choice.lead for choice in choices]
        return Proposal(list(self._proposed), stack(rows) if rows else None, leads, others)

    def accepted(self, tokens: Sequence[int]) -> None:
        """See `Drafter.accepted`."""
        if not self._proposed:  # as in a pause, where every microsecond counts against plain decoding
            self._context += tokens
            return
        keep = len(self._context) + shared_prefix(self._proposed, tokens)
        self._context += tokens
        self._proposed = []
        self._cache.roll_back(min(len(self._cache.tokens), keep, len(self._context) - 1))

    def forget(self) -> None:
        """Forget what the last chat said. Its cache is cleared by whoever made it."""
        self._context, self._proposed = [], []
        self._prompt_length, self._is_prepared = 0, False

    def close(self) -> None:
        """See `Drafter.close`."""
        self._cache.close()

    def _usable(self) -> int:
        """How much of the context the cache will hold once it is prepared."""
        wanted = self._context[:-1]
        return self._switcher.usable(wanted) if self._switcher else shared_prefix(self._cache.tokens, wanted)

    def _prepare(self) -> None:
        """Go from the chat the cache is at to this one, when it is first needed. Raises `KnownError`."""
        if not self._is_prepared:
            wanted = self._context[:-1]
            if self._switcher:
                self._switcher.begin(wanted)
            else:
                cut_to(self._cache, wanted)
            self._is_prepared = True
        if not self._knows(self._context[len(self._cache.tokens) :]):
            raise KnownError(_UNKNOWN_TOKENS)

    def _caught_up(self) -> Floats:
        """The logits after the context; other drafters may have written much of it."""
        held, end = len(self._cache.tokens), len(self._context)
        if end - held > self._cache.chunk or held < self._prompt_length < end:
            self._process(end - 1)
        return np.asarray(self._cache.decode(self._context[len(self._cache.tokens) :], 1)[0])

    def _knows(self, tokens: Sequence[int]) -> bool:
        return all(token < self._vocabulary for token in tokens)

    def _process(self, end: int) -> None:
        """Process the context up to ``end`` tokens. The end of the prompt, to which later turns go back, is marked."""
        with self._cache.aborting(self._should_stop):
            while (held := len(self._cache.tokens)) < end:
                if self._should_stop():
                    raise Cancelled
                stop = self._prompt_length if held < self._prompt_length < end else end
                # Without logits llama.cpp returns before a GPU is done, and this would look cheaper than it is.
                self._cache.decode(self._context[held:stop][: self._cache.chunk], 1)
                if len(self._cache.tokens) == self._prompt_length:
                    self._cache.remember()

    def _choose(self, row: Floats, draft: list[int], way: Way) -> _Choice:
        row = row[: self._vocabulary]
        sampling = self._sampling
        if has_penalties(sampling):
            recent = self._context[-sampling.penalty_window :] if sampling.penalty_window else []
            row = penalise(row, [*recent, *draft], sampling)
        if sampling.temperature == 0:
            token, lead = _best(row)
            certain = Distributions(np.array([[token]]), np.zeros((1, 1)))
            return _Choice(token, lead, distribution=certain if self._samples else None)
        position = len(self._context) + len(draft)
        if self._samples:
            q = distributions(row[None, :], sampling)
            token = draw(q, self._noise, [position], Purpose.DRAFT)[0]
            sure = _best(row)[1] / sampling.temperature if q.whole else lead_of(q.log_probs[0], 0)
            return _Choice(token, sure, distribution=q)
        if keeps_all(sampling):
            return self._choose_from_all(row, position, way)
        ids, scores = _likely(row, sampling)
        noisy = scores + gumbel(self._seed, [position], ids[None, :])[0]
        coupled = int(noisy.argmax())
        if way == "greedy":
            return _Choice(int(ids[0]), lead_of(scores, 0), other=int(ids[coupled]))
        return _Choice(int(ids[coupled]), lead_of(noisy, coupled), other=int(ids[0]))

    def _choose_from_all(self, row: Floats, position: int, way: Way) -> _Choice:
        temperature = np.float32(self._sampling.temperature)
        coupled, coupled_lead = best_of_all(row / temperature, self._seed, position, margin=_LEAD)
        if way == "coupled":
            return _Choice(coupled, coupled_lead, other=int(np.argmax(row)))
        likeliest, likeliest_lead = _best(row)
        return _Choice(likeliest, likeliest_lead / float(temperature), other=coupled)


@dataclass(frozen=True)
class _Choice:
    token: int
    lead: float
    """Nats between the best and the second-best score. Where it samples of the distribution, not of the token
    drawn from it: what is drafted further must not depend on a token that is not yet tested."""
    other: int | None = None
    distribution: Distributions | None = None


def _best(row: Floats) -> tuple[int, float]:
    """The likeliest token and its lead, without sorting the row."""
    token = int(np.argmax(row))  # a NaN where there is one
    check_finite(row[token])
    return token, lead_of(row, token)


def _likely(row: Floats, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Candidates the target's sampler would leave over, were ``row`` its own, likeliest first; and their scores."""
    if not sampling.top_k:
        p = distributions(row[None, :], sampling)
        left = np.isfinite(p.log_probs[0])
        return p.ids[0, left], np.asarray(p.log_probs[0, left], np.float64)
    ids = top_candidates(row[None, :], sampling.top_k)[0]
    scores = row[ids].astype(np.float64) / sampling.temperature
    scores -= scores[0]
    if sampling.top_p < 1.0:
        scores -= math.log(float(np.exp(scores).sum()))
    left = survivors(scores, sampling)
    return ids[left], scores[left]
