"""What to generate, for the loop and the drafters alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.protocol.messages import AcceptRule, Sampling


@dataclass(frozen=True)
class Task:
    """How to choose the tokens of one answer, and where it ends.

    ``max_tokens`` of ``None``: when the context is full. ``stops``: texts that end it and are not shown.
    """

    sampling: Sampling
    seed: int
    max_tokens: int | None = None
    stops: list[str] = field(default_factory=list)
    accept: AcceptRule = "coupled"
