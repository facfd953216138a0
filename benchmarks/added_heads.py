"""Gives a model of llama.cpp's generator an MTP head: a copy of its blocks, with the tensors that make it a head.

The generator writes no heads. The copy gets the embedding of a token and a little of the hidden state, so it is right
now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

_NO_LAYERS = ("rope.dimension_sections", "deepstack_mapping", "classifier.output_labels")
"""Lists that have no entry for each layer, however long they are."""
_NOT_IN_HEAD = {
    "deepseek4": ("attn_compressor",),
    "glm5-next": ("hc_",),
    "mimo2": ("attn_q.", "attn_k.", "attn_v."),
}
"""How the names of tensors begin that a head has not."""
_LITTLE = 0.2


def add_head(source: Path, path: Path) -> Path:
    """Write the model in ``source`` with a head to ``path``."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    layers = reader.fields[f"{architecture}.block_count"].contents()
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}
    writer = gguf.GGUFWriter(path, architecture)
    attention = _last_block(tensors, layers, "attn_output.weight", "attn_output_a.weight")
    left_out = ("general.architecture", f"{architecture}.nextn_predict_layers", "glm4moe.rope.dimension_sections")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in left_out:
            _add_field(writer, name, field, architecture, layers, attention)
    writer.add_nextn_predict_layers(1)
    for name, data in [*tensors.items(), *_head(architecture, tensors, attention, layers)]:
        writer.add_tensor(name, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _last_block(tensors: Iterable[str], layers: int, *wanted: str) -> int:
    """The last block with any of these tensors and without a running state."""
    return max(
        layer
        for layer in range(layers)
        if any(f"blk.{layer}.{name}" in tensors for name in wanted)
        and not any(name.startswith((f"blk.{layer}.ssm_", f"blk.{layer}.shortconv")) for name in tensors)
    )


def _add_field(writer: gguf.GGUFWriter, name: str, field: Any, architecture: str, layers: int, copied: int) -> None:
    value, kinds = field.contents(), field.types
    key = name.removeprefix(f"{architecture}.")
    if key == "block_count":
        value += 1
    elif kinds[0] == gguf.GGUFValueType.ARRAY:
        if name.startswith(architecture) and key not in _NO_LAYERS and len(value) == layers:
            value = [*value, 0 if key == "attention.compress_ratios" else value[copied]]
        if value:
            writer.add_key_value(name, value, gguf.GGUFValueType.ARRAY, kinds[-1])
        return
    writer.add_key_value(name, value, kinds[0])


def _head(
    architecture: str, tensors: dict[str, NDArray[Any]], copied: int, block: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The tensors of the head in ``block``."""
    new = f"blk.{block}."
    experts = max((layer for layer in range(block) if f"blk.{layer}.ffn_gate_inp.weight" in tensors), default=copied)
    for name, data in tensors.items():
        kind = name.split(".", 2)[-1]
        is_network = kind.startswith(("ffn_", "exp_probs_b")) and kind != "ffn_norm.weight"
        if kind.startswith(_NOT_IN_HEAD.get(architecture, ())) or kind.endswith("scale"):
            continue
        if name == f"blk.{experts if is_network else copied}.{kind}":
            yield new + kind, data
    if architecture == "mimo2":
        for kind in ("weight", "bias"):
            parts = [tensors[f"blk.{copied}.attn_{part}.{kind}"] for part in "qkv"]
            yield f"{new}attn_qkv.{kind}", np.concatenate(parts)
    width = tensors["output_norm.weight"].shape[0]
    random = np.random.default_rng(7)
    hidden = _LITTLE * random.normal(0, width**-0.5, (width, width))
    yield new + "nextn.eh_proj.weight", np.hstack([np.eye(width), hidden]).astype(np.float32)
    final = "layer_output_norm" if architecture == "bailingmoe3" else "nextn.shared_head_norm"
    for norm in ("nextn.enorm", "nextn.hnorm", final):
        yield f"{new}{norm}.weight", np.ones(width, np.float32)
