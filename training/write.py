"""Writes trained drafters as files: GGUF for llama.cpp, safetensors for Medusa heads."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from numpy.typing import NDArray

from training.target import Sizes, TargetFile

Weights = Mapping[str, NDArray[np.float32]]


def _head(writer: gguf.GGUFWriter, sizes: Sizes, layers: int, vocabulary: int, name: str) -> None:
    writer.add_name(name)
    writer.add_license("apache-2.0")
    writer.add_block_count(layers)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.width)
    writer.add_feed_forward_length(sizes.feed_forward)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_rope_freq_base(sizes.rope_base)
    writer.add_rope_dimension_count(sizes.head_size)
    writer.add_layer_norm_rms_eps(sizes.epsilon)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_quantization_version(2)


def _tensors(writer: gguf.GGUFWriter, weights: Weights, quantized: bool) -> None:
    q8 = gguf.GGMLQuantizationType.Q8_0
    for name, value in weights.items():
        if value.dtype == np.int64 or value.ndim == 1:
            writer.add_tensor(name, value)
        elif quantized and value.shape[-1] % 32 == 0:
            writer.add_tensor(name, quantize(np.ascontiguousarray(value, np.float32), q8), raw_dtype=q8)
        else:
            writer.add_tensor(name, value.astype(np.float16))


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_eagle3(
    path: Path, target: TargetFile, sizes: Sizes, layers: tuple[int, ...], weights: Weights, *, quantized: bool = True
) -> None:
    """An EAGLE-3 head that takes the inputs of `layers` of the target; `weights` by their names in the file."""
    writer = gguf.GGUFWriter(path, "eagle3")
    _head(writer, sizes, 1, target.sizes.vocabulary, path.stem)
    writer.add_array("eagle3.target_layers", list(layers))
    writer.add_uint32("eagle3.target_hidden_size", target.sizes.width)
    writer.add_bool("eagle3.norm_before_residual", False)
    writer.add_bool("eagle3.norm_before_fc", True)
    target.copy_tokenizer(writer)
    _tensors(writer, weights, quantized)
    _finish(writer)


def write_llama(path: Path, target: TargetFile, sizes: Sizes, weights: Weights, *, quantized: bool = True) -> None:
    """A draft model with the target's tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    _head(writer, sizes, sizes.layers, sizes.vocabulary, path.stem)
    target.copy_tokenizer(writer, template=True)
    _tensors(writer, weights, quantized)
    _finish(writer)


_SAFE = {np.dtype(np.float16): "F16", np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.generic]], notes: Mapping[str, str]) -> None:
    """The format is a length, a header in JSON, and the numbers."""
    header: dict[str, object] = {"__metadata__": dict(notes)}
    offset = 0
    for name, value in tensors.items():
        header[name] = {
            "dtype": _SAFE[value.dtype],
            "shape": value.shape,
            "data_offsets": (offset, offset + value.nbytes),
        }
        offset += value.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())
