"""A chi-square test without SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def chi_square_p_value(counts: ArrayLike, probabilities: ArrayLike) -> float:
    """How likely counts at least this far from ``probabilities`` are (Wilson–Hilferty approximation).

    Outcomes expected fewer than 5 times are put together; an outcome of probability zero that occurred gives 0.
    """
    observed, expected = np.asarray(counts, float), np.asarray(probabilities, float) * np.sum(counts)
    if observed[expected == 0].any():
        return 0.0
    rare = expected < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(expected) - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


def interval(values: Sequence[float], draws: int = 4000) -> tuple[float, float]:
    """The bootstrap interval of 95 % for the median of ``values``; always the same for the same values."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(np.asarray(values), (draws, len(values))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)
