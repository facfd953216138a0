"""All drafters. To add one, add a file next to this one, a line in `DRAFTERS` and its name in the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.engine.drafters import Drafter
from app.engine.drafters.grammar import GrammarDrafter
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.engine.drafters.mtp import MtpDrafter
from app.engine.drafters.ngram import NgramDrafter
from app.protocol.options import DrafterName

Ends = Callable[[int], bool]
"""Whether nothing follows a token of the target."""
DRAFTERS: Mapping[DrafterName, Callable[[Ends, LoadedDraft | None, LoadedDraft | None], Drafter | None]] = {
    "grammar": lambda _ends, _draft, _head: GrammarDrafter(),
    "ngram": lambda ends, _draft, _head: NgramDrafter(ends),
    "model": lambda _ends, draft, _head: ModelDrafter(draft) if draft else None,
    "mtp": lambda _ends, _draft, head: MtpDrafter(head) if head else None,
}
"""The function that creates each drafter; it returns ``None`` for a pair that lacks what the drafter needs."""


def drafters_of(ends: Ends, draft: LoadedDraft | None, head: LoadedDraft | None = None) -> list[Drafter]:
    """All drafters that can draft for a pair."""
    made = (make(ends, draft, head) for make in DRAFTERS.values())
    return [drafter for drafter in made if drafter]
