"""A target's companions: heads that draft for it (MTP, EAGLE-3), and projectors that let it see images."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from app.models.gguf import ASSISTANTS, EAGLE3, GgufHeader, ModelFacts, ModelFileError, read_header, whole_numbers
from app.models.gguf_parser import text_of
from app.protocol.options import DRAFTER_WORDS, DrafterName, HeadChoice
from app.words import printable

ARCHITECTURES = (
    "bailingmoe3",
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "deepseek4",
    "glm-dsa",
    "glm4moe",
    "hy_v3",
    "mimo2",
    "nemotron_h_moe",
    "qwen35",
    "qwen35moe",
    "qwen3next",
    "step35",
)
"""Architectures whose heads llama.cpp of October 2026 can compute separately (``LLM_GRAPH_TYPE_DECODER_MTP``). For
others it would compute something else, or abort.
"""
CHAINS = ("hy_v3", "mimo2", "step35")
"""Architectures for which it can compute several heads; for others, a second one aborts the process."""
LAYER_INPUTS = (
    *("bailingmoe3", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama", "mimo2"),
    *("minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe"),
    *("qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next"),
)
"""Architectures whose graphs give the inputs of each layer (``t_layer_inp``), which an EAGLE-3 head reads. For others
llama.cpp would end the process.
"""
STATES = (
    *("bailingmoe3", "gemma4", "gpt-oss", "mimo2", "nemotron_h", "nemotron_h_moe"),
    *("qwen35", "qwen35moe", "qwen3next"),
)
"""Those whose graphs give the hidden state after the last layer as well (``t_h_nextn``)."""
LAYERS_READ = 3
"""By an EAGLE-3 head."""
_SHARED_CACHE = ("key_length", "value_length", "key_length_swa", "value_length_swa", "sliding_window")
"""Metadata that has to be the same in a head and its target if both use one cache."""
_LEAST_PARAMETERS = 3_000_000_000
"""Smaller models answer so quickly that others measured a head to cost more than it saves."""
TURNED_OFF = "It is turned off for this model."
DRAFT_INSTEAD = "A draft model was chosen instead."
_SMALL = "Models with fewer than 3 billion parameters usually answer faster without it."
_ON_METAL = "On the GPU of a Mac, models of this kind usually answer faster without it."


class TargetFacts(Protocol):
    """What decides whether to use a head; headers and `ModelShape`s have it."""

    @property
    def parameters(self) -> int: ...
    @property
    def experts(self) -> int: ...


def has_head(header: ModelFacts) -> bool:
    """Whether the file contains a head, by itself or with a model."""
    return header.head != "none"


def head_kind(header: ModelFacts) -> DrafterName | None:
    """The drafter that uses the head in the file; ``None`` without a head."""
    return _drafter(header.architecture) if has_head(header) else None


def head_title(architecture: str) -> str:
    """What to call the heads in files of this architecture."""
    return DRAFTER_WORDS[_drafter(architecture)].title


def _drafter(architecture: str) -> DrafterName:
    return "eagle3" if architecture == EAGLE3 else "mtp"


def _heads(header: GgufHeader) -> list[list[str]]:
    """The tensor names of each head."""
    names = [tensor.name for tensor in header.tensors]
    layers = sorted({name.split("nextn.")[0] for name in names if ".nextn." in name})
    return [[name for name in names if name.startswith(layer)] for layer in layers]


def must_be_loaded(header: GgufHeader) -> bool:
    """Whether llama.cpp refuses to load the model without its head, because it then leaves out its matrices, but not
    their scales.
    """
    # WORKAROUND for https://github.com/ggml-org/llama.cpp/pull/27736
    return header.head == "inside" and any(name.endswith("scale") for names in _heads(header) for name in names)


def is_head_only(header: ModelFacts) -> bool:
    """Whether the file contains a head without its model."""
    return header.head == "alone"


def is_assistant(header: ModelFacts) -> bool:
    """Whether the file contains a head that reads its target's KV cache."""
    return header.architecture in ASSISTANTS


def pays_off(target: TargetFacts) -> bool:
    """Whether a head inside such a model is expected to save time, before measuring it on this machine."""
    return target.parameters >= _LEAST_PARAMETERS


def is_wanted(choice: HeadChoice, target: TargetFacts, gpu_layers: int) -> bool:
    """Whether to load the head inside ``target``, with this many of its layers on the GPU (−1: all).

    Both the memory plan and the engine ask this, so that a plan counts what is loaded.
    """
    return why_unwanted(choice, target, gpu_layers) is None


def why_unwanted(choice: HeadChoice, target: TargetFacts, gpu_layers: int) -> str | None:
    """Why the head inside ``target`` isn't to be loaded, in a sentence for the user; ``None`` if it is."""
    if choice != "auto":
        return None if choice == "on" else TURNED_OFF
    if not pays_off(target):
        return _SMALL
    slow_here = platform.system() == "Darwin" and not target.experts and gpu_layers != 0
    return _ON_METAL if slow_here else None


def head_problem(header: GgufHeader) -> str | None:
    """Why the head in a file can't be used, for the user; ``None`` if it can."""
    name, architecture = printable(header.path.name), printable(header.architecture)
    if not has_head(header):
        return f"{name} has no MTP head."
    if is_assistant(header):
        return None
    if header.architecture == EAGLE3:
        return _eagle3_problem(header)
    if header.architecture not in ARCHITECTURES:
        return f"The MTP head in {name} isn't used, because llama.cpp can't compute heads of {architecture} models."
    heads = _heads(header)
    if header.mtp_layers > 1 and header.architecture not in CHAINS:
        reason = f"llama.cpp can't compute more than one head of {architecture} models"
        return f"The {header.mtp_layers} MTP heads in {name} aren't used, because {reason}."
    if len(heads) < header.mtp_layers:
        return f"The MTP heads in {name} aren't used, because only {len(heads)} of {header.mtp_layers} are in the file."
    if header.architecture == "glm4moe" and "glm4moe.rope.dimension_sections" in header.metadata:
        return f"The MTP head in {name} isn't used, because llama.cpp can't compute heads of models for images."
    if header.architecture == "mimo2" and not all(
        any(name.endswith(".attn_qkv.weight") for name in head) for head in heads
    ):
        return f"The MTP head in {name} isn't used, because llama.cpp expects its attention in one tensor."
    return None


def _eagle3_problem(header: GgufHeader) -> str | None:
    """What llama.cpp would refuse or end the process at."""
    name = printable(header.path.name)
    if header.layers != 1:
        return f"The EAGLE-3 head in {name} isn't used, because llama.cpp computes only heads with one layer."
    if len(layers_read(header)) != LAYERS_READ or len(_own(header, "target_hidden_size")) != 1:
        return f"The EAGLE-3 head in {name} isn't used, because the file doesn't say which layers it reads."
    tensors = {tensor.name: tensor for tensor in header.tensors}
    if (tokens := tensors.get("d2t")) and (tokens.type != "I64" or "output.weight" not in tensors):
        return f"The EAGLE-3 head in {name} isn't used, because llama.cpp can't read its draft vocabulary (d2t)."
    embeddings = tensors.get("token_embd.weight")
    if embeddings and header.tokenizer and embeddings.elements < header.tokenizer.size * header.width:
        return f"The EAGLE-3 head in {name} isn't used, because it lacks embeddings for some tokens of its vocabulary."
    return None


def layers_read(header: GgufHeader) -> list[int]:
    """The layers of its target whose inputs an EAGLE-3 head reads; empty for other files."""
    return _own(header, "target_layers") if header.architecture == EAGLE3 else []


def can_compute(architecture: str) -> bool:
    """Whether heads of this architecture can be used at all; `head_problem` explains a particular one."""
    return architecture in (*ARCHITECTURES, *ASSISTANTS, EAGLE3)


def mismatch(target: GgufHeader, head: GgufHeader) -> str | None:
    """Why a head in a separate file can't be used for ``target``, for the user; ``None`` if it can."""
    if problem := head_problem(head):
        return problem
    title = f"The {head_title(head.architecture)} in {printable(head.path.name)}"
    if head.architecture == EAGLE3:
        if target.architecture not in LAYER_INPUTS:
            kind = printable(target.architecture)
            return f"{title} isn't used, because llama.cpp doesn't output layer inputs of {kind} models."
        belongs = _reads_layers_of(target, head)
    elif is_assistant(head):
        belongs = _shares_cache(target, head)
    else:
        belongs = (head.architecture, head.width) == (target.architecture, target.width)
    first, second = target.tokenizer, head.tokenizer
    if first is not None and second is not None:
        belongs = belongs and (first.kind, first.size) == (second.kind, second.size)
    return None if belongs else f"{title} belongs to another model."


def _reads_layers_of(target: GgufHeader, head: GgufHeader) -> bool:
    """Whether ``target`` has the layers that an EAGLE-3 head reads, and the matrices that the head lacks."""
    layers = target.layers - target.mtp_layers + (target.architecture in STATES)
    own = {tensor.name for tensor in head.tensors} >= {"token_embd.weight", "output.weight"}
    reads = all(0 <= layer < layers for layer in layers_read(head))
    return reads and _own(head, "target_hidden_size") == [target.width] and (own or head.width == target.width)


def _shares_cache(target: GgufHeader, head: GgufHeader) -> bool:
    """Whether the caches of the last two layers of ``target`` have the shape that an assistant reads: the last one sees
    everything, the one before it has a window.
    """
    if target.architecture != ASSISTANTS[head.architecture]:
        return False
    same = all(_own(target, f"attention.{key}") == _own(head, f"attention.{key}") for key in _SHARED_CACHE)
    is_as_wide = _own(head, "embedding_length_out") == [target.width]
    layers = zip(_own(head, "attention.sliding_window_pattern"), _kv_heads(head), strict=False)
    return same and is_as_wide and all(_kv_heads(target)[-2 if window else -1] == heads for window, heads in layers)


def _own(header: GgufHeader, key: str) -> list[int]:
    return whole_numbers(header.metadata.get(f"{header.architecture}.{key}"))


def _kv_heads(header: GgufHeader) -> list[int]:
    """The KV heads of each layer; at least two."""
    heads = _own(header, "attention.head_count_kv") or [header.kv_heads]
    return heads if len(heads) > 1 else heads * max(header.layers, 2)


# Projectors (``mmproj``): finding the file that lets a model see images, and its memory needs.

_NAMED = re.compile(r"(?<![a-z0-9])mmproj(?![a-z0-9])", re.IGNORECASE)
_MOST_FILES = 10_000
"""The most files looked at in a folder."""
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_NO_NAME = {
    *("mmproj", "gguf", "model", "vision", "f", "bf", "q", "k", "m", "s", "l", "xl", "iq", "ud", "it", "instruct"),
    *("16", "32", "8", "4", "5", "6", "0", "1"),
}
"""Words that don't tell which model a file belongs to."""
_FOR: dict[str, tuple[str, ...]] = {
    "gemma3": ("gemma3",),
    "gemma3nv": ("gemma3n",),
    "gemma4v": ("gemma4",),
    "gemma4uv": ("gemma4",),
    "qwen2vl_merger": ("qwen2vl",),
    "qwen2.5vl_merger": ("qwen2vl", "qwen25vl"),
    "qwen3vl_merger": ("qwen3",),
    "llama4": ("llama4",),
    "glm4v": ("glm4",),
    "cogvlm": ("cogvlm",),
    "lfm2": ("lfm2",),
}
"""For projector kinds made for one family: the beginning of its architectures."""
_LONGEST_KIND = 100
_FLOAT = 4
_DYNAMIC = ("_merger", "ling3vl", "gemma4v", "glm4v", "glm5v", "mimovl")
"""Endings of kinds for which an image's size determines the number of patches: up to 16,384, which a photo has, or
10,080 (gemma4v). Qwen's are mergers.
"""
_DYNAMIC_PATCHES = 8464
"""The patches assumed for these: the more patches, the less memory each takes (`benchmarks/notes/images.md`)."""
_ROWS_AT_ONCE = 8
"""Rows as long as an embedding in memory for each patch, besides the two of the feed-forward part."""


def find_projector(target: GgufHeader) -> GgufHeader | None:
    """The projector for ``target`` in its folder; ``None`` if there is none. Reads headers on the disk."""
    candidates: list[GgufHeader] = []
    for path in _named(target.path.parent):
        try:
            header = read_header(path)
        except ModelFileError:
            continue
        if fits(target, header):
            candidates.append(header)
    return max(candidates, key=lambda one: _rank(target, one), default=None)


def fits(target: ModelFacts, projector: GgufHeader) -> bool:
    """Whether ``target`` can use it: the embeddings have the same length, and it isn't for another family."""
    if not projector.is_projector or projector.projection != target.width:
        return False
    families = _FOR.get(_kind(projector))
    return families is None or target.architecture.startswith(families)


def projector_bytes(projector: GgufHeader) -> int:
    """Its memory in bytes: weights, and buffers for one image."""

    def of(key: str) -> int:
        value = projector.metadata.get(f"clip.vision.{key}")
        return value if isinstance(value, int) else 0

    patch = max(of("patch_size"), 1)
    patches = max((of("image_size") // patch) ** 2, _DYNAMIC_PATCHES if _kind(projector).endswith(_DYNAMIC) else 0)
    row = _ROWS_AT_ONCE * of("embedding_length") + 2 * of("feed_forward_length")
    return projector.tensor_bytes + patches * row * _FLOAT


def _kind(projector: GgufHeader) -> str:
    own = text_of(projector.metadata, "clip.vision.projector_type", _LONGEST_KIND)
    return own or text_of(projector.metadata, "clip.projector_type", _LONGEST_KIND)


def _named(folder: Path) -> Iterable[Path]:
    """Files in ``folder`` named like projectors."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if name.lower().endswith(".gguf") and _NAMED.search(name)]


def _rank(target: GgufHeader, projector: GgufHeader) -> tuple[int, bool, int]:
    """Prefers names that share words with the target's, then F16, then the smallest file."""
    words = _words(projector.path)
    shared = len(words & _words(target.path)) - len(words - _words(target.path))
    return shared, projector.quantization in ("F16", "BF16"), -projector.file_size


def _words(path: Path) -> set[str]:
    return set(_WORD.findall(path.stem.lower())) - _NO_NAME
