"""MTP heads: a layer of a model that predicts the token after the next one. What a file has is read from its header."""

from __future__ import annotations

import platform
from typing import Protocol

from app.models.gguf import GgufHeader
from app.models.text import printable
from app.protocol.limits import HeadChoice

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


class TargetFacts(Protocol):
    """What decides on the use of a head: a header has it, and so has a `ModelShape`."""

    @property
    def parameters(self) -> int: ...
    @property
    def experts(self) -> int: ...


def has_head(header: GgufHeader) -> bool:
    """Whether the file contains an MTP head, by itself or with a model."""
    return header.mtp_layers > 0 and any(tensor.name.endswith(".nextn.eh_proj.weight") for tensor in header.tensors)


def is_head_only(header: GgufHeader) -> bool:
    """Whether the file contains an MTP head without the model it belongs to."""
    return has_head(header) and all(tensor.name != "blk.0.attn_norm.weight" for tensor in header.tensors)


def pays_off(target: TargetFacts) -> bool:
    """Whether a head inside such a model is expected to save time, before it was measured on this machine."""
    return target.parameters >= _LEAST_PARAMETERS


def is_wanted(choice: HeadChoice, target: TargetFacts, gpu_layers: int) -> bool:
    """Whether the head inside ``target`` is to be loaded, with so many layers of it on the GPU (−1: all).

    Both the memory plan and the engine ask this, so that a plan counts what is loaded.
    """
    if choice != "auto":
        return choice == "on"
    slow_here = platform.system() == "Darwin" and not target.experts and gpu_layers != 0
    return pays_off(target) and not slow_here


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


def mismatch(target: GgufHeader, head: GgufHeader) -> str | None:
    """Why the head in a file of its own can't be used for ``target``, for the user; ``None`` if it can."""
    if problem := head_problem(head):
        return problem
    if (head.architecture, head.width) != (target.architecture, target.width):
        return f"The MTP head in {printable(head.path.name)} belongs to another model."
    return None
