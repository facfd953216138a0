"""A chi-square test without SciPy."""

from __future__ import annotations

import math

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
