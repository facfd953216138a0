"""What the architecture of a model allows, according to llama.cpp of October 2026 (its ``src/llama-arch.cpp``).

Only exceptions are listed: any other architecture is treated as an ordinary text model, and llama.cpp itself reports an
error if it doesn't know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from app.protocol.limits import MAX_CONTEXT_LENGTH

RECURRENT = ("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7")
"""Models without a KV cache: their recurrent state can't be cut back to an earlier token."""

KEEPS_STATES = (
    "bailingmoe3",
    "deepseek4",
    "glm5-next",
    "kimi-k3",
    "lfm2",
    "lfm2moe",
    "nemotron_h",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen4exp",
)
"""Hybrids for which llama.cpp can keep snapshots of the recurrent state (``llm_arch_supports_rs_rollback``)."""

HYBRID = (*KEEPS_STATES, "falcon-h1", "granitehybrid", "jamba", "kimi-linear", "minimax-01", "plamo2", "qwen3next")
"""Models in which some layers have a recurrent state instead of a KV cache."""

KEEPS_FLASH_ATTENTION = ("qwen3next", "qwen35", "qwen35moe")
"""Hybrids in which llama.cpp computes attention where the KV cache is, wherever they are split between CPU and GPU.

Tried with qwen35; the others have the same graph."""

LARGE_GRAPHS = (
    "bailingmoe3",
    "deepseek4",
    "hy_v4",
    "kimi-linear",
    "minimax-01",
    "minimax-m3",
    "nanbeige",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "qwen4exp",
)
"""Architectures whose graphs grow with the batch (``llama_context::graph_max_nodes``)."""

_LEARNED_POSITIONS = ("gpt2", "mpt", "starcoder")
"""Models with a table of positions: llama.cpp ends the process at the first token beyond the training context."""

_STATE_KEYS = ("ssm.", "wkv.", "shortconv.", "kda.")
"""Metadata that only models with a recurrent state have; for architectures newer than the lists above."""

_ENCODERS = (
    "bert",
    "eurobert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v3",
    "llama-embed",
    "modern-bert",
    "neo-bert",
    "nomic-bert",
    "nomic-bert-moe",
)
ASSISTANTS = {"gemma4-assistant": "gemma4"}
"""Architectures of MTP heads that read the KV cache of their target, with the target's. They are always in a file of
their own.
"""
_HEAD_TENSORS = (".nextn.eh_proj.weight", "nextn.pre_projection.weight")
_FIRST_LAYER = "blk.0.attn_norm.weight"

HeadPlace = Literal["none", "inside", "alone"]
"""Whether a file has an MTP head, and if so, with the model it belongs to or without."""

_HEADS = ("dflash", "eagle3", "gemma4_assistant", "dspark")
_DIFFUSION = ("dream", "llada", "llada-moe", "rnd1")

PROJECTOR = "clip"
"""The architecture of files with which models see images, or hear."""

_REFUSALS = {
    PROJECTOR: "is the vision or audio part of a model (mmproj), not a language model. Open the model itself.",
    "controlvector": "is a control vector, not a model.",
    "imatrix": "is an importance matrix for quantizing, not a model.",
    "t5": "is an encoder–decoder model (t5), which Slipstream can't run.",
    "t5encoder": "is a text encoder (t5encoder), which can't write text.",
    "wavtokenizer-dec": "is a speech decoder, not a language model.",
    "qwen3tts": "is a speech model, not a language model.",
    **{name: f"is an embedding model ({name}), which can't write text." for name in _ENCODERS},
    **{name: f"contains only drafting heads ({name}), which this version of Slipstream can't use." for name in _HEADS},
    "gemma4-assistant": "is the MTP head of a Gemma 4 model. Open that model, with this file as its draft model.",
    **{name: f"is a diffusion language model ({name}), which Slipstream can't run." for name in _DIFFUSION},
}

_TYPE_REFUSALS = {
    "adapter": "is an adapter (LoRA), not a complete model. Open the model it was made for.",
    "mmproj": _REFUSALS[PROJECTOR],
    "imatrix": _REFUSALS["imatrix"],
    "controlvector": _REFUSALS["controlvector"],
}


def refusal(architecture: str, general_type: str) -> str | None:
    """Why a file of this kind isn't a text model, as the rest of a sentence that begins with its name."""
    return _TYPE_REFUSALS.get(general_type.lower()) or _REFUSALS.get(architecture.lower())


def head_place(architecture: str, mtp_layers: int, tensors: Iterable[str]) -> HeadPlace:
    """Whether a file with tensors of these names has an MTP head: it must say so, and contain it."""
    names = list(tensors)
    if mtp_layers <= 0 or not any(name.endswith(_HEAD_TENSORS) for name in names):
        return "none"
    return "alone" if architecture in ASSISTANTS or _FIRST_LAYER not in names else "inside"


def longest_context(architecture: str, training_context: int) -> int:
    """How many tokens a model can compute at most. Both the memory plan and the engine ask this."""
    has_table = architecture in _LEARNED_POSITIONS and training_context > 0
    return min(training_context, MAX_CONTEXT_LENGTH) if has_table else MAX_CONTEXT_LENGTH


def is_part_of_model(architecture: str, general_type: str) -> bool:
    """Whether a file is only part of a model that is in another file, such as a vision part or an adapter."""
    return general_type.lower() in _TYPE_REFUSALS or architecture.lower() in (PROJECTOR, "controlvector", "imatrix")


def running_state(architecture: str, keys: Iterable[str] = ()) -> str | None:
    """``recurrent`` or ``hybrid`` if the model has a running state, otherwise ``None``.

    ``keys`` are the keys of the model's metadata.
    """
    if architecture in RECURRENT:
        return "recurrent"
    prefixes = tuple(f"{architecture}.{key}" for key in _STATE_KEYS)
    if architecture in HYBRID or any(key.startswith(prefixes) for key in keys):
        return "hybrid"
    return None
