"""All drafters: a new one is a file beside this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.engine.drafters import Drafter
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.messages import DrafterName


@dataclass(frozen=True)
class LoadedPair:
    """What drafters are made of. ``ends`` tells tokens of the target after which nothing follows."""

    ends: Callable[[int], bool]
    draft: LoadedDraft | None = None


DRAFTERS: Mapping[DrafterName, Callable[[LoadedPair], Drafter | None]] = {
    "ngram": lambda pair: NgramDrafter(pair.ends),
    "model": lambda pair: ModelDrafter(pair.draft) if pair.draft else None,
}
"""What makes each, or ``None`` for a pair without what it takes."""


def drafters_of(pair: LoadedPair) -> list[Drafter]:
    """All that can draft for ``pair``."""
    made = (make(pair) for make in DRAFTERS.values())
    return [drafter for drafter in made if drafter]
