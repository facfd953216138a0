"""What a library keeps of a model's header: small, and enough for lists, verdicts and rankings."""

from __future__ import annotations

import hashlib

import msgspec

from app.models.gguf import GgufHeader, ModelFacts
from app.models.memory_shape import ModelShape, shape_of

_MAX_LICENCE = 100


class ModelSummary(ModelFacts, frozen=True, kw_only=True):
    """A model's header without its tensors, tokens and texts."""

    template_sha256: str | None
    """Of its chat template's UTF-8 bytes; ``None`` where it has none."""
    licence: str
    """As the file names it; empty where it does not."""
    split_count: int
    """Files the model is in."""
    shape: ModelShape
    """What it takes in memory, for the plan."""


def summary_of(header: GgufHeader) -> ModelSummary:
    """The part of ``header`` that the index holds."""
    facts = msgspec.convert(header, ModelFacts, from_attributes=True)
    template = header.chat_template
    licence = header.metadata.get("general.license")
    return ModelSummary(
        **msgspec.structs.asdict(facts),
        template_sha256=hashlib.sha256(template.encode()).hexdigest() if template is not None else None,
        licence=licence[:_MAX_LICENCE].decode("utf-8", "replace") if isinstance(licence, bytes) else "",
        split_count=header.split.count if header.split else 1,
        shape=shape_of(header),
    )
