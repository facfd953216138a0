"""How each model of a pair is loaded: what `LoadSettings` say about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import msgspec

from app.engine.llama.kernels import IS_X86, REPACKED, REPACKED_UNLIKE
from app.engine.llama.placement import ON_THE_CPU, WHERE_IT_FITS, Placement
from app.errors import KnownError
from app.models.gguf import GgufHeader
from app.protocol.options import SPECIAL_OPTIONS, LoadSettings, chosen_options

_FEW = 0.25
"""As a share of a file's bytes."""


@dataclass(frozen=True)
class ModelOptions:
    """How one model of a pair is loaded."""

    stage: Literal["target", "draft"]
    settings: LoadSettings
    """With the model's own context length and KV type."""
    gpu_layers: int
    placement: Placement

    @classmethod
    def of_target(cls, settings: LoadSettings) -> ModelOptions:
        """Raises `KnownError` for what can't be combined."""
        _check(settings)
        return cls("target", settings, settings.target_gpu_layers, Placement.of_target(settings))

    @classmethod
    def of_draft(cls, settings: LoadSettings, target_length: int) -> ModelOptions:
        """For a draft of a target whose context has ``target_length`` tokens. Raises `KnownError`."""
        own = msgspec.structs.replace(
            settings,
            context_length=min(settings.draft_context_length or target_length, target_length),
            kv_type=settings.kv_type if settings.draft_kv_type == "auto" else settings.draft_kv_type,
        )
        _check(own)
        return cls("draft", own, settings.draft_gpu_layers, Placement.of_draft(settings))

    @property
    def own_placement(self) -> Placement:
        """``placement`` of a model that shares nothing with another: without layers on a GPU, it needs none."""
        return self.placement if self.gpu_layers else ON_THE_CPU

    def memory_facts(self) -> dict[str, object]:
        """What its memory depends on besides its context; options are left out where they are as they always were."""
        facts: dict[str, object] = {"gpu_layers": self.gpu_layers}
        if self.placement != WHERE_IT_FITS:
            facts["placement"] = repr(self.placement)
        if self.settings.flash_attention != "auto":
            facts["flash_attention"] = self.settings.flash_attention
        return facts


def cost_facts(settings: LoadSettings) -> dict[str, object]:
    """The settings that costs depend on; options are left out where they are as they always were."""
    values = msgspec.to_builtins(settings)
    usual = {name: value for name, value in values.items() if name not in SPECIAL_OPTIONS}
    return usual | chosen_options(settings)


def repacks(header: GgufHeader, settings: LoadSettings) -> bool:
    """Whether the target's weights are written anew for quicker verify passes, which then round differently.

    Not where few of them are of such types, so that it costs little, nor for the accept rule ``exact``. In a file that
    is nearly all Q4_K, passes over four tokens take 1.4 times as long without it, and prompts 0.8 times
    (``benchmarks/notes/real-models.md``). On Arm, where nothing was measured, more types are repacked.
    """
    sizes: Counter[str] = Counter()
    for tensor in header.tensors:
        sizes[tensor.type] += tensor.size
    unlike = sum(sizes[kind] for kind in REPACKED_UNLIKE)
    alike = sum(sizes[kind] for kind in REPACKED - REPACKED_UNLIKE)
    if not IS_X86 or not unlike or alike > unlike:
        return True
    return not settings.exact and unlike + alike > _FEW * sum(sizes.values())


def _check(settings: LoadSettings) -> None:
    if settings.flash_attention == "off" and settings.kv_type != "f16":
        raise KnownError(
            f"A KV cache of type {settings.kv_type} needs flash attention, which is turned off. Turn it on, or choose "
            "f16."
        )
