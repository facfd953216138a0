"""Tiny projectors (``mmproj``) with random weights, and images for them.

Names and shapes are those of ``tools/mtmd/clip.cpp`` in llama.cpp. There are three kinds: *llava* makes embeddings that
are processed like text, *gemma3* those that attend to each other, and *qwen2vl* those with positions in two dimensions
(M-RoPE), whose number depends on the image's size.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from app.protocol.commands import Image
from tests.support.gguf_files import (
    CHATML_TEMPLATE,
    RandomWeights,
    Shape,
    Tensors,
    llama_weights,
    make_model,
    spm_vocabulary,
)

Projector = Literal["llava", "gemma3", "qwen2vl"]
KINDS: tuple[Projector, ...] = ("llava", "gemma3", "qwen2vl")
_TYPES = {"llava": "mlp", "gemma3": "gemma3", "qwen2vl": "qwen2vl_merger"}


@dataclass(frozen=True)
class Encoder:
    """The sizes of what encodes an image. By default, an image of 48 × 48 pixels, to which llava and gemma3 scale, has
    36 patches.
    """

    width: int = 32
    heads: int = 2
    layers: int = 2
    feed_forward: int = 64
    patch: int = 8
    """Pixels, as the next one."""
    size: int = 48
    weights: Literal["F32", "F16"] = "F32"
    """Of its matrices."""


TINY = Encoder()
CELLS = {"llava": 36, "gemma3": 9}
"""How many an image takes; with qwen2vl, one for each 16 × 16 pixels."""


def make_projector(
    path: Path, kind: Projector, *, target_width: int = 64, encoder: Encoder = TINY, seed: int = 7
) -> Path:
    """Write a projector with random weights for models of ``target_width``."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name(path.stem)
    writer.add_file_type(0)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", _TYPES[kind])
    writer.add_bool("clip.use_gelu", True)
    for key, value in {
        "image_size": encoder.size,
        "patch_size": encoder.patch,
        "embedding_length": encoder.width,
        "feed_forward_length": encoder.feed_forward,
        "block_count": encoder.layers,
        "projection_dim": target_width,
        "attention.head_count": encoder.heads,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    if kind == "gemma3":
        writer.add_uint32("clip.vision.projector.scale_factor", 2)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    matrices = np.float16 if encoder.weights == "F16" else np.float32
    for name, array in _weights(kind, target_width, encoder, RandomWeights(seed, 0.0)).items():
        is_matrix = array.ndim > 1 and "position" not in name
        writer.add_tensor(name, np.ascontiguousarray(array, matrices if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _weights(kind: Projector, target_width: int, encoder: Encoder, random: RandomWeights) -> dict[str, NDArray[Any]]:
    width, hidden, patch = encoder.width, encoder.feed_forward, encoder.patch

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return random.matrix(rows, columns, columns**-0.5)

    def patches() -> NDArray[np.float32]:
        return matrix(width, 3 * patch * patch).reshape(width, 3, patch, patch)

    made: dict[str, NDArray[Any]] = {
        "v.patch_embd.weight": patches(),
        "v.post_ln.weight": np.ones(width),
        "v.post_ln.bias": np.zeros(width),
    }
    for layer in range(encoder.layers):
        block = f"v.blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            made |= {f"{block}{name}.weight": matrix(width, width), f"{block}{name}.bias": np.zeros(width)}
        for name in ("ln1", "ln2"):
            made |= {f"{block}{name}.weight": np.ones(width), f"{block}{name}.bias": np.zeros(width)}
        made |= {f"{block}ffn_up.weight": matrix(hidden, width), f"{block}ffn_up.bias": np.zeros(hidden)}
        made |= {f"{block}ffn_down.weight": matrix(width, hidden), f"{block}ffn_down.bias": np.zeros(width)}
    count = (encoder.size // encoder.patch) ** 2
    if kind == "llava":
        made["v.position_embd.weight"] = matrix(count, width)
        made |= {"mm.0.weight": matrix(width, width), "mm.0.bias": np.zeros(width)}
        made |= {"mm.2.weight": 3 * matrix(target_width, width), "mm.2.bias": np.zeros(target_width)}
    elif kind == "gemma3":
        made |= {"v.position_embd.weight": matrix(count, width), "v.patch_embd.bias": np.zeros(width)}
        made["mm.input_projection.weight"] = matrix(width, target_width)
        made["mm.soft_emb_norm.weight"] = np.full(width, 3.0)
    else:
        made["v.patch_embd.weight.1"] = patches()
        made |= {"mm.0.weight": matrix(4 * width, 4 * width), "mm.0.bias": np.zeros(4 * width)}
        made |= {"mm.2.weight": 3 * matrix(target_width, 4 * width), "mm.2.bias": np.zeros(target_width)}
    return made


def make_seeing_model(path: Path, kind: Projector, **options: Any) -> Path:
    """Write a target for a projector of this ``kind`` that never ends an answer: with M-RoPE for qwen2vl."""

    def endless(shape: Shape, random: RandomWeights) -> Tensors:
        made = llama_weights(shape, random)
        made["output.weight"][[token for token in (vocabulary.eos, vocabulary.eot) if token is not None]] = 0.0
        return made

    vocabulary = spm_vocabulary()
    options = {"chat_template": CHATML_TEMPLATE, "weights": "F32", "vocabulary": vocabulary, **options}
    options["tensors"] = endless
    if kind != "qwen2vl":
        return make_model(path, **options)

    def sections(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_dimension_sections([8, 4, 4, 0])

    return make_model(path, architecture="qwen2vl", edit=sections, **options)


def make_image(path: Path, width: int = 64, height: int = 48, *, seed: int = 1) -> Image:
    """Write a PNG of random colors in large squares, and return what a message says of it."""
    colors = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    pixels = colors.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    path.write_bytes(data)
    return Image(sha256=hashlib.sha256(data).hexdigest(), path=str(path))
