"""Whether a model fits this machine, in a word or two with a colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FitBadge:
    """``text`` for a column, ``detail`` for its tooltip."""

    text: str
    mood: Literal["quiet", "good", "warning", "bad"] = "quiet"
    detail: str = ""


UNKNOWN_FIT = FitBadge("–", detail="Not known yet.")
