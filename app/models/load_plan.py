"""What is wished for when a pair is loaded, and the plan that comes of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from app.models.memory_estimate import MemoryEstimate
from app.protocol.limits import DEFAULT_BATCH_SIZE, KvType

LEAST_CONTEXT = 1024
"""Tokens; no plan of its own accord goes below."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asks for; what is not set is chosen."""

    context_length: int | None = None
    """Tokens."""
    kv_type: KvType | None = None
    target_gpu_layers: int | None = None
    """As llama.cpp counts them; `ALL_LAYERS` is all."""
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """Rather no plan than one without the draft."""
    batch_size: int = DEFAULT_BATCH_SIZE
    """`LoadSettings.micro_batch_size`."""


class LoadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to load a pair. The first fields are those of `app.protocol.messages.LoadSettings`."""

    context_length: int
    """Tokens."""
    kv_type: KvType
    target_gpu_layers: int
    draft_gpu_layers: int
    with_draft: bool
    estimate: MemoryEstimate
    fits: bool
    system_space: int = msgspec.field(name="system_room")
    """Bytes of system memory a pair may take on this machine, the margin left out."""
    gpu_space: int = msgspec.field(name="gpu_room")
    """The same for all GPUs together."""
    sentence: str
    """Why it is so, or how it differs from what was asked for."""

    @property
    def needed(self) -> int:
        """Bytes, system and GPUs together."""
        return self.estimate.system.total + self.estimate.gpu.total


class Options(NamedTuple):
    """What a plan can give up."""

    draft: bool
    kv_type: KvType
    context: int
    """Tokens."""
    target_layers: int | None = None
    """``None``: as many as fit."""
