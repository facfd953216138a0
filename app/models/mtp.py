"""MTP heads: a layer of a model that predicts the token after the next one. What a file has is read from its header."""

from __future__ import annotations

from app.models.gguf import GgufHeader
from app.models.text import printable

ARCHITECTURES = (
    "bailingmoe3",
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "deepseek4",
    "glm-dsa",
    "glm4moe",
    "glm5-next",
    "hy_v3",
    "mimo2",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "step35",
)
"""Those for which llama.cpp of October 2026 can compute a head by itself (``LLM_GRAPH_TYPE_DECODER_MTP``). For others
it would compute something else, or stop the process.
"""
_LEAST_PARAMETERS = 3_000_000_000
"""A smaller model answers so quickly that its head was measured to cost more than it brings (`docs/mtp.md`)."""


def can_compute(architecture: str) -> bool:
    """Whether heads of this architecture can be used at all; `head_problem` says why a certain one can't."""
    return architecture in ARCHITECTURES


def has_head(header: GgufHeader) -> bool:
    """Whether the file contains an MTP head, by itself or with a model."""
    return header.mtp_layers > 0 and any(tensor.name.endswith(".nextn.eh_proj.weight") for tensor in header.tensors)


def is_head_only(header: GgufHeader) -> bool:
    """Whether the file contains an MTP head without the model it belongs to."""
    return has_head(header) and all(tensor.name != "blk.0.attn_norm.weight" for tensor in header.tensors)


def pays_off(header: GgufHeader) -> bool:
    """Whether a head inside such a model is expected to save time, before it was measured on this machine."""
    return header.parameters >= _LEAST_PARAMETERS


def head_problem(header: GgufHeader) -> str | None:
    """Why the head in a file can't be used, for the user; ``None`` if it can."""
    name, architecture = printable(header.path.name), printable(header.architecture)
    if not has_head(header):
        return f"{name} has no MTP head."
    if header.architecture not in ARCHITECTURES:
        return f"The MTP head in {name} isn't used, because llama.cpp can't compute heads of {architecture} models."
    if header.mtp_layers > 1:
        return f"The {header.mtp_layers} MTP heads in {name} aren't used, because only single ones are supported."
    if header.architecture == "glm4moe" and "glm4moe.rope.dimension_sections" in header.metadata:
        return f"The MTP head in {name} isn't used, because llama.cpp can't compute heads of models for images."
    return None
