"""Cases that ``make proof`` runs and ``make test`` leaves out, because it has one of their kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def in_proof(values: Iterable[Any]) -> list[ParameterSet]:
    """Values of a ``parametrize`` that only ``make proof`` tries: ``["llama", *in_proof(["gemma3", "lfm2"])]``.

    A tuple is the values of several names.
    """
    values = list(values)
    return [pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.matrix) for each in values]
