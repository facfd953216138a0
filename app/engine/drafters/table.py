"""All drafters. To add one, add a file next to this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.engine.drafters import Drafter
from app.engine.drafters.eagle3 import Eagle3Drafter
from app.engine.drafters.grammar import GrammarDrafter
from app.engine.drafters.lookahead import LookaheadDrafter
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.mtp import MtpDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.engine.drafters.tree import TreeDrafter
from app.protocol.options import DrafterName

Ends = Callable[[int], bool]
"""Whether nothing follows a token of the target."""
DRAFTERS: Mapping[DrafterName, Callable[[Ends, LoadedDraft | None], Drafter | None]] = {
    "grammar": lambda _ends, _loaded: GrammarDrafter(),
    "ngram": lambda ends, _loaded: NgramDrafter(ends),
    "lookahead": lambda _ends, _loaded: LookaheadDrafter(),
    "model": lambda _ends, loaded: ModelDrafter(loaded) if loaded else None,
    "tree": lambda _ends, loaded: TreeDrafter(loaded) if loaded else None,
    "mtp": lambda _ends, loaded: MtpDrafter(loaded) if loaded else None,
    "eagle3": lambda _ends, loaded: Eagle3Drafter(loaded) if loaded else None,
}
"""The function that creates each drafter, from what was loaded for it; it returns ``None`` if that is missing."""


def drafters_of(ends: Ends, loaded: Mapping[DrafterName, LoadedDraft]) -> list[Drafter]:
    """All drafters that can draft for a target, with what was ``loaded`` for some of them."""
    made = (make(ends, loaded.get(name)) for name, make in DRAFTERS.items())
    return [drafter for drafter in made if drafter]
