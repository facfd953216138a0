"""How much the loaded model can be asked to think, and how much it did, in words for the window."""

from __future__ import annotations

from app.protocol.events import Figures, KindFigures, PairLoaded
from app.protocol.statistics import acceptance_rate, thinking_and_answer
from app.ui.widgets import units

DEFAULT = "Model's default"
_TITLES = {"xhigh": "Extra high"}


def title(level: str) -> str:
    """What a list shows for a level of `PairLoaded.thinking`; empty stands for the model's default."""
    return _TITLES.get(level, level.replace("_", " ").capitalize()) if level else DEFAULT


def offered(pair: PairLoaded | None, recommended: str = "") -> list[tuple[str, str]]:
    """Levels to choose from and their titles, the default first; empty where the model doesn't think.

    ``recommended``: the level that is used by default, if it isn't left to the model.
    """
    if pair is None or not pair.may_think:
        return []
    default = f"Recommended ({title(recommended).lower()})" if recommended else DEFAULT
    return [("", default), *((level, title(level)) for level in pair.thinking)]


def lines(figures: Figures) -> list[str]:
    """Tokens, seconds and acceptance of the thinking and of the answer; empty without thinking."""
    if not figures.thinking_tokens:
        return []
    thinking, answer = thinking_and_answer(figures.kinds)
    written = max(figures.completion_tokens - figures.thinking_tokens, 0)
    return [
        _part_line("Thinking", figures.thinking_tokens, figures.thinking_seconds, thinking),
        _part_line("Answer", written, answer.seconds, answer),
    ]


def _part_line(name: str, tokens: int, seconds: float, counts: KindFigures) -> str:
    """``Thinking: 812 tokens in 12 s, 120 of 160 draft tokens accepted (75%)``."""
    parts = [f"{units.tokens(tokens)} in {units.seconds(seconds)}" if tokens and seconds else units.tokens(tokens)]
    if counts.tested:
        rate = units.share(acceptance_rate(counts.accepted, counts.tested))
        parts.append(f"{units.number(counts.accepted)} of {units.draft_tokens(counts.tested)} accepted ({rate})")
    return f"{name}: {', '.join(parts)}"
