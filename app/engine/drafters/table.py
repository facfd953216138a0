"""All drafters: a new one is a file beside this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.engine.drafters import Drafter
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.messages import DrafterName

Ends = Callable[[int], bool]
"""Says whether nothing follows a token of the target."""
DRAFTERS: Mapping[DrafterName, Callable[[Ends, LoadedDraft | None], Drafter | None]] = {
    "ngram": lambda ends, _draft: NgramDrafter(ends),
    "model": lambda _ends, draft: ModelDrafter(draft) if draft else None,
}
"""What creates each drafter, or ``None`` for a pair that lacks what it needs."""


def drafters_of(ends: Ends, draft: LoadedDraft | None) -> list[Drafter]:
    """All that can draft for a pair."""
    made = (make(ends, draft) for make in DRAFTERS.values())
    return [drafter for drafter in made if drafter]
