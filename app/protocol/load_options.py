"""The options of a load that most people never change."""

from __future__ import annotations

from typing import Any

import msgspec

from app.protocol.messages import LoadSettings

SPECIAL_OPTIONS = (
    "batch_threads",
    "main_gpu",
    "split_mode",
    "tensor_split",
    "draft_device",
    "expert_layers_on_cpu",
    "flash_attention",
    "draft_context_length",
    "draft_kv_type",
)
"""The first versions did not have these: what they measured was measured with the defaults."""


def chosen_options(settings: LoadSettings) -> dict[str, Any]:
    """Those of `SPECIAL_OPTIONS` that are not as by default."""
    values, defaults = msgspec.to_builtins(settings), msgspec.to_builtins(LoadSettings())
    return {name: values[name] for name in SPECIAL_OPTIONS if values[name] != defaults[name]}
