"""Block verification (Sun et al., arXiv 2403.10444, algorithm 2): an accept rule the app does not have.

Where `app.engine.verification.rejection` stops at the first token it rejects, this rule looks at the whole draft and
keeps the longest prefix that its own coin accepts. It is exact, and for one draft no exact rule accepts more tokens.
`tests.benchmarks.accept_rules` measures what that brings.

What it accepts depends on draft tokens *behind* those it accepts. Noise that is a function of seed and position alone,
as the app's is, would then be used twice: once in a draft whose tokens it rejected because of it, and once more for
the same position in the next draft, where it would be biased. So every block has a seed of its own: `block_seed`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.engine.sampling import Distributions
from app.engine.verification import Purpose, Verdict, draw, uniform


def block_seed(seed: int, position: int) -> int:
    """The seed of the block whose first token stands at ``position`` of an answer with ``seed``."""
    return int(uniform(seed, position, Purpose.DRAFT) * 2**53)


def block(p: Distributions, q: Distributions | None, draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Keep the longest accepted prefix of ``draft``, then a token of the residual distribution behind it.

    ``p`` has len(draft) + 1 rows; ``q`` holds the len(draft) distributions the draft tokens were drawn from, with
    `block_seed` of ``position``; it may be ``None`` for an empty draft.
    """
    own_seed = block_seed(seed, position)
    kept, kept_share, share = 0, 1.0, 1.0
    for i, token in enumerate(draft):
        assert q is not None
        share = min(share * p.probability(i, token) / q.probability(i, token), 1.0)
        chance = share
        if i + 1 < len(draft):
            left = float(_residual(p, q, i + 1, share).sum())
            chance = left / (left + (1.0 - share)) if left > 0.0 else 0.0
        if uniform(own_seed, position + i, Purpose.ACCEPT) <= chance:
            kept, kept_share = i + 1, share
    row = Distributions(p.ids[kept : kept + 1], p.log_probs[kept : kept + 1])
    if kept == len(draft) or q is None:
        return Verdict(kept, draw(row, own_seed, [position + kept])[0])
    rest = _residual(p, q, kept, kept_share)
    if rest.sum() <= 0.0:  # p = q up to rounding: a rejection here has probability zero, p itself is right
        rest = np.exp(row.log_probs[0])
    with np.errstate(divide="ignore"):
        weights = Distributions(row.ids, np.log(rest / rest.sum())[None, :])
    return Verdict(kept, draw(weights, own_seed, [position + kept], Purpose.RESIDUAL)[0])


def _residual(p: Distributions, q: Distributions, row: int, share: float) -> NDArray[np.float64]:
    """max(``share`` · p − q, 0) for the candidates of ``p`` in ``row``."""
    size = max(int(p.ids[row].max()), int(q.ids[row].max())) + 1
    return np.asarray(np.maximum(share * np.exp(p.log_probs[row]) - q.dense(row, size)[p.ids[row]], 0.0))
