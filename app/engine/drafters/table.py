"""All drafters. To add one, add a file next to this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from app.engine.drafters import Drafter
from app.engine.drafters.eagle3 import Eagle3Drafter
from app.engine.drafters.grammar import GrammarDrafter
from app.engine.drafters.lookahead import LookaheadDrafter
from app.engine.drafters.medusa import MedusaDrafter, MedusaHeads
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.mtp import MtpDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.engine.drafters.tree import TreeDrafter
from app.protocol.options import DrafterName

Ends = Callable[[int], bool]
"""Whether nothing follows a token of the target."""
Loaded = LoadedDraft | MedusaHeads
"""What drafters need that isn't in every target."""
T = TypeVar("T", LoadedDraft, MedusaHeads)


def _with(kind: type[T], make: Callable[[T], Drafter]) -> Callable[[Ends, Loaded | None], Drafter | None]:
    return lambda _ends, loaded: make(loaded) if isinstance(loaded, kind) else None


DRAFTERS: Mapping[DrafterName, Callable[[Ends, Loaded | None], Drafter | None]] = {
    "grammar": lambda _ends, _loaded: GrammarDrafter(),
    "ngram": lambda ends, _loaded: NgramDrafter(ends),
    "lookahead": lambda _ends, _loaded: LookaheadDrafter(),
    "model": _with(LoadedDraft, ModelDrafter),
    "tree": _with(LoadedDraft, TreeDrafter),
    "mtp": _with(LoadedDraft, MtpDrafter),
    "eagle3": _with(LoadedDraft, Eagle3Drafter),
    "medusa": _with(MedusaHeads, MedusaDrafter),
}
"""The function that creates each drafter, from what was loaded for it; it returns ``None`` if that is missing."""


def drafters_of(ends: Ends, loaded: Mapping[DrafterName, Loaded]) -> list[Drafter]:
    """All drafters that can draft for a target, with what was ``loaded`` for some of them."""
    made = (make(ends, loaded.get(name)) for name, make in DRAFTERS.items())
    return [drafter for drafter in made if drafter]
