"""All drafters: a new one is a file beside this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.engine.drafters import Drafter
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.messages import DrafterName

Ends = Callable[[int], bool]
"""Tells tokens of the target after which nothing follows."""
DRAFTERS: Mapping[DrafterName, Callable[[Ends, LoadedDraft | None], Drafter | None]] = {
    "ngram": lambda ends, _draft: NgramDrafter(ends),
    "model": lambda _ends, draft: ModelDrafter(draft) if draft else None,
}
"""What makes each, or ``None`` for a pair without what it takes."""


def drafters_of(ends: Ends, draft: LoadedDraft | None) -> list[Drafter]:
    """All that can draft for a pair."""
    made = (make(ends, draft) for make in DRAFTERS.values())
    return [drafter for drafter in made if drafter]
