"""The accept rules and proposal methods that `benchmarks.accept_rules` compares, and what they are counted by.

All run in the app's own loop. A rule the app does not have is put in the place of the judge for as long as it plays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from app.engine.decoding import loop
from app.engine.decoding.accept_rules import Purpose, Verdict, uniform
from app.engine.decoding.sampling import Distributions, Floats, distributions, penalize_rows
from app.engine.drafters import Proposal
from app.protocol.events import Round
from app.protocol.options import AcceptRule, Propose

Rule = Callable[[Distributions, Proposal, int, int], Verdict]
"""Distributions, proposal, seed and position to a verdict."""


@dataclass(frozen=True)
class Contender:
    """An accept rule with a proposal method. ``rule`` is for one the app does not have."""

    name: str
    accept: AcceptRule
    propose: Propose
    rule: Rule | None = None

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """The loop judges by this rule while the block lasts."""
        if self.rule is None:
            yield
            return
        with patch.object(loop.Decoding, "_judge", _judge_by(self.rule)):
            yield


def _judge_by(rule: Rule) -> Callable[[loop.Decoding, Floats, Proposal], Verdict]:
    def judge(self: loop.Decoding, logits: Floats, proposal: Proposal) -> Verdict:
        task = self._task
        p = distributions(penalize_rows(logits, self._sequence.tokens, proposal.tokens, task.sampling), task.sampling)
        return rule(p, proposal, task.seed, len(self._sequence))

    return judge


def sample_and_match(p: Distributions, proposal: Proposal, seed: int, position: int) -> Verdict:
    """What llama-server does: the target samples at each place with a generator of its own; equal tokens stand."""
    for i, token in enumerate([*proposal.tokens, None]):
        sums = np.cumsum(np.exp(p.log_probs[i]))
        own = int(p.ids[i, np.searchsorted(sums, uniform(seed, position + i, Purpose.ACCEPT) * sums[-1])])
        if own != token:
            return Verdict(i, own)
    raise AssertionError("the last place has no draft token")


SAME_NOISE = Contender("coupled, same noise", "coupled", "coupled")
GREEDY = Contender("coupled, greedy", "coupled", "greedy")
CHOICE = Contender("coupled, choice of both", "coupled", "auto")
MATCH = Contender("sample and match, greedy", "coupled", "greedy", sample_and_match)
REJECTION = Contender("rejection", "rejection", "auto")
BLOCK = Contender("block", "block", "auto")
CONTENDERS = (SAME_NOISE, GREEDY, CHOICE, MATCH, REJECTION, BLOCK)


@dataclass(frozen=True)
class Counts:
    """What one answer, or several together, came to; the first token of each, which costs no pass, is left out."""

    tokens: int = 0
    seconds: float = 0.0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    judged: int = 0
    """Tokens tested up to and including the first rejected one of each draft."""
    passes: int = 0

    @staticmethod
    def of(rounds: Sequence[Round]) -> Counts:
        """The counts of an answer's rounds."""
        first, *rest = [round_ for round_ in rounds if round_.tokens]
        return Counts(
            tokens=sum(r.tokens for r in rest),
            seconds=rest[-1].time - first.time if rest else 0.0,
            drafted=sum(r.drafted for r in rest),
            tested=sum(r.tested for r in rest),
            accepted=sum(r.accepted for r in rest),
            judged=sum(min(r.accepted + 1, r.tested) for r in rest),
            passes=sum(r.verify_passes for r in rest),
        )

    @staticmethod
    def total(counts: Sequence[Counts]) -> Counts:
        """All together."""
        return Counts(*(sum(values) for values in zip(*(vars(c).values() for c in counts), strict=True)))

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def acceptance(self) -> float:
        """Accepted ÷ tested."""
        return self.accepted / self.tested if self.tested else 0.0

    @property
    def of_judged(self) -> float:
        """Accepted ÷ judged."""
        return self.accepted / self.judged if self.judged else 0.0

    @property
    def length(self) -> float:
        """Mean acceptance length."""
        return 1 + self.accepted / self.passes if self.passes else 1.0
