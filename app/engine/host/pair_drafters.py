"""The drafters of a loaded pair."""

from __future__ import annotations

from collections.abc import Callable

from app.engine.drafters import Drafter
from app.engine.drafters.model import LoadedDraft
from app.engine.drafters.mtp import LoadedHead
from app.engine.drafters.table import drafters_of
from app.engine.host.heads import head_draft_length
from app.engine.host.loading import LoadedModel, Target
from app.engine.host.recommended import default_draft_length
from app.engine.policy.costs import Costs
from app.protocol.limits import DEFAULT_DRAFT_LENGTH


def pair_drafters(
    target: Target, draft: LoadedModel | None, costs: Costs | None, should_stop: Callable[[], bool]
) -> list[Drafter]:
    """All that can draft for ``target``, with or without a ``draft`` model; ``costs`` are those measured, if they were.

    ``should_stop`` is asked while they decode.
    """
    model = head = None
    if draft:
        vocabulary = min(draft.model.vocabulary_size, target.model.vocabulary_size)
        known = costs.drafts.get("model") if costs else None
        one_by_one = known is not None and known.one_by_one
        model = LoadedDraft(draft.context, vocabulary, draft.model.is_end, should_stop, draft.switcher, one_by_one)
    if target.head:
        cache = target.head.cache
        vocabulary = min(cache.model.vocabulary_size, target.model.vocabulary_size)
        head = LoadedHead(cache, vocabulary, target.model.is_end, should_stop, cache.longest_draft)
    return drafters_of(target.model.is_end, model, head)


def usual_draft_length(target: Target, draft: LoadedModel | None) -> int:
    """The fixed draft length that is proposed for a pair."""
    if draft:
        return default_draft_length(draft.model)
    if not target.head:
        return DEFAULT_DRAFT_LENGTH
    return min(head_draft_length(target.info.gpu_layers), target.head.cache.longest_draft)
