"""How much the loaded model can be asked to think, in words for the window."""

from __future__ import annotations

from app.protocol.messages import PairLoaded

DEFAULT = "Model's default"
_TITLES = {"xhigh": "Extra high"}


def title(level: str) -> str:
    """What a list shows for a level of `PairLoaded.thinking`; empty stands for the model's default."""
    return _TITLES.get(level, level.replace("_", " ").capitalize()) if level else DEFAULT


def offered(pair: PairLoaded | None) -> list[tuple[str, str]]:
    """Levels to choose from and their titles; empty where the model has no choice."""
    return [(level, title(level)) for level in ["", *pair.thinking]] if pair is not None and pair.thinking else []


def usable(level: str, pair: PairLoaded | None) -> str:
    """``level``, or the model's default where this model doesn't have it."""
    return level if pair is not None and level in pair.thinking else ""
