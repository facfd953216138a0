"""How likely the target found the tokens of an answer, before sampling, a grammar or a request changed its logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from app.engine.decoding.sampling import Floats, top_candidates
from app.protocol.events import TokenLogprob


def logprobs(
    logits: Floats, tokens: Sequence[int], count: int, piece: Callable[[int], bytes]
) -> list[tuple[TokenLogprob, ...]]:
    """For each of ``tokens``, chosen from the rows of ``logits`` (at least as many, vocabulary): itself, then the
    ``count`` most likely ones. ``piece`` gives the bytes of a token.
    """
    found = []
    for row, token in zip(logits, tokens, strict=False):
        exact = row.astype(np.float64)
        exact -= exact.max()
        exact -= np.log(np.exp(exact).sum())
        likely = top_candidates(row[None, :], count)[0].tolist() if count else []
        found.append(
            tuple(TokenLogprob(id=one, text=piece(one), logprob=float(exact[one])) for one in (token, *likely))
        )
    return found


def biased(logits: Floats, bias: Mapping[int, float]) -> Floats:
    """Rows of ``logits`` with a ``bias`` for some tokens added to each; ``logits`` itself where there is none."""
    if not bias:
        return logits
    changed = logits.copy()
    changed[:, list(bias)] += np.fromiter(bias.values(), np.float32, len(bias))
    return changed
