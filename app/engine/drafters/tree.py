"""A draft model or head that drafts a tree: beside its chain, the second-best tokens where it is in doubt."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.accept_rules import are_few, noisy_candidates, with_noise
from app.engine.decoding.sampling import Logits, candidates, largest
from app.engine.drafters import Proposal, Worth, always
from app.engine.drafters.model import Choice, LoadedDraft, ModelDrafter
from app.protocol.options import DrafterName, ProposalMethod, Sampling

Ranked = tuple[list[int], list[float]]
"""The best tokens of one position and their scores, in order."""
_RANKED = 4
"""How many these are."""


class TreeDrafter(ModelDrafter):
    """Up to half of a draft are alternatives to tokens of the chain, which nothing follows: the likeliest by the draft,
    ranked with the target's own noise, because a tree is always tested by what the target itself draws.
    """

    name: DrafterName = "tree"
    is_automatic = False

    def __init__(self, draft: LoadedDraft) -> None:
        super().__init__(draft)
        self.cache = None  # another drafter has it, too, and measures it
        self._ranked: list[Ranked] = []
        """For each token of the chain."""

    def propose(self, count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        self._ranked = []
        if not self.branches:  # there are images, which heads can't read
            return Proposal()
        others = min(self.branches, count // 2)
        chain = super().propose(min(count - others, self.longest), method, worth)
        found, doubt = list[tuple[float, int, int, float]](), 0.0
        for position, (tokens, scores) in enumerate(self._ranked):
            for token, score in zip(tokens[1:], scores[1:], strict=True):
                found.append((doubt + scores[0] - score, position, token, score - scores[0]))
            doubt += math.log1p(math.exp(-chain.confidences[position]))
        best = sorted(found)[:others]
        return Proposal(
            [*chain.tokens, *(token for _, _, token, _ in best)],
            confidences=[*chain.confidences, *(lead for _, _, _, lead in best)],
            parents=[*range(-1, len(chain.tokens) - 1), *(position - 1 for _, position, _, _ in best)],
        )

    def _choose(
        self, row: Logits, draft: list[int], method: ProposalMethod, allowed: NDArray[np.bool_] | None
    ) -> Choice:
        row, task = self._prepared(row, draft, allowed), self._task
        tokens, scores = ranked(row, task.sampling, task.seed, self._position(draft), method)
        self._ranked.append((tokens, scores))
        return Choice(tokens[0], scores[0] - scores[1] if len(scores) > 1 else math.inf)


def ranked(row: Logits, sampling: Sampling, seed: int, position: int, method: ProposalMethod) -> Ranked:
    """The best tokens of the only ``row``: with the target's own noise, unless ``method`` is ``greedy``."""
    if sampling.temperature == 0:
        tokens, values = map(np.array, largest(row, _RANKED))
    elif are_few(sampling):
        ids, scores, noisy = noisy_candidates(row, sampling, seed, position)
        values = np.array(scores if method == "greedy" else noisy)
        tokens = np.array(ids[: len(values)])
    else:
        p = candidates(row, sampling)
        tokens, values = (p.ids[0], p.log_probs[0]) if method == "greedy" else with_noise(p, seed, position)
    order = np.argsort(-values, kind="stable")[: min(_RANKED, np.isfinite(values).sum())]
    return tokens[order].tolist(), values[order].tolist()
