"""The layers of tiny models with an MTP head, or with several, in the architectures that are tested.

Names and shapes of the tensors are those of llama.cpp's ``src/models``; the head's layers are the last ones.
``glm4moe`` has an ordinary KV cache, ``qwen35`` and ``nemotron_h_moe`` a running state. The others can have several
heads, and ``step35`` and ``mimo2`` have sliding windows, in some of their heads as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import gguf
import numpy as np

from tests.support.architectures import (
    expert_metadata,
    experts,
    mamba2,
    mamba2_metadata,
    qwen_metadata,
    qwen_tensors,
)
from tests.support.gguf_files import RandomWeights, Shape, Tensors, attention, feed_forward, output

HeadArchitecture = Literal["glm4moe", "qwen35", "nemotron_h_moe", "hy_v3", "mimo2", "step35"]
WINDOW = 64
"""Tokens a layer with a window looks back."""
LayerTensors = Callable[[Shape, RandomWeights, int], Tensors]
"""Makes all tensors but those of the ``nextn`` group; the number is that of the layers without the heads'."""


def _layers(shape: Shape, random: RandomWeights, layer: Callable[[int, str], Tensors]) -> Tensors:
    tensors = {"token_embd.weight": random.matrix(shape.vocabulary, shape.width, 1.0)}
    for number in range(shape.layers):
        tensors |= layer(number, f"blk.{number}.")
    return tensors | output(shape, random)


def _norm(name: str, width: int) -> Tensors:
    return {f"{name}.weight": np.ones(width, np.float32)}


# ---------------------------------------------------------------- glm4moe: dense layers, experts in the head


def _glm(shape: Shape, random: RandomWeights, trunk: int) -> Tensors:
    def layer(number: int, block: str) -> Tensors:
        tensors = attention(block, shape, random)
        tensors |= feed_forward(block, shape, random) if number < trunk else experts(block, shape, random)
        tensors.pop(block + "ffn_norm.weight", None)
        return tensors | _norm(block + "post_attention_norm", shape.width)

    return _layers(shape, random, layer)


# ---------------------------------------------------------------- qwen35: gated delta net and attention in turn


def _qwen(shape: Shape, random: RandomWeights, trunk: int) -> Tensors:
    return qwen_tensors(shape, random, {*range(1, trunk, 2), *range(trunk, shape.layers)})


# ---------------------------------------------------------------- nemotron_h_moe: mamba2, attention, experts in heads


def _nemotron_metadata(writer: gguf.GGUFWriter, trunk: int, layers: int) -> None:
    expert_metadata(writer, dense=trunk)
    values = {key: writer.kv_data[0].pop(f"nemotron_h_moe.{key}").value for key in _PER_LAYER}
    mamba2_metadata(writer)
    writer.add_layer_norm_eps(1e-5)
    writer.add_expert_shared_feed_forward_length(values["feed_forward_length"] // 4)
    writer.add_head_count_kv([values["attention.head_count_kv"] * (n % 2 or n >= trunk) for n in range(layers)])
    writer.add_feed_forward_length([values["feed_forward_length"] * (n >= trunk) for n in range(layers)])


_PER_LAYER = ("attention.head_count_kv", "feed_forward_length")


def _nemotron(shape: Shape, random: RandomWeights, trunk: int) -> Tensors:
    def head(block: str) -> Tensors:
        network = experts(block, shape, random)
        network = {name: tensor for name, tensor in network.items() if "ffn_gate_exps" not in name}
        network.pop(block + "ffn_gate_shexp.weight")
        norms = _norm(block + "post_attention_norm", shape.width) | _norm(block + "nextn.shared_head_norm", shape.width)
        return attention(block, shape, random) | network | norms

    def layer(number: int, block: str) -> Tensors:
        if number >= trunk:
            return head(block)
        return attention(block, shape, random) if number % 2 else mamba2(block, shape, random)

    return _layers(shape, random, layer)


# ---------------------------------------------------------------- several heads


def _window_metadata(writer: gguf.GGUFWriter, trunk: int, layers: int) -> None:
    """The trunk's first layer has a window, and all heads except for the last of several."""
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern([number in (0, trunk) or trunk < number < layers - 1 for number in range(layers)])
    writer.add_expert_feed_forward_length(WINDOW)


def _hy_metadata(writer: gguf.GGUFWriter, _trunk: int, _layers: int) -> None:
    writer.add_expert_feed_forward_length(WINDOW)


def _step(shape: Shape, random: RandomWeights, _trunk: int) -> Tensors:
    return _layers(shape, random, lambda _, block: attention(block, shape, random) | feed_forward(block, shape, random))


def _hy(shape: Shape, random: RandomWeights, trunk: int) -> Tensors:
    tensors = _step(shape, random, trunk)
    for number in range(shape.layers):
        for name in ("attn_q_norm", "attn_k_norm"):
            tensors |= _norm(f"blk.{number}.{name}", shape.width // shape.heads)
    return tensors


def _mimo(shape: Shape, random: RandomWeights, trunk: int) -> Tensors:
    tensors = _step(shape, random, trunk)
    for number in range(shape.layers):
        parts = [tensors.pop(f"blk.{number}.attn_{part}.weight") for part in "qkv"]
        tensors[f"blk.{number}.attn_qkv.weight"] = np.concatenate(parts)
    return tensors


METADATA: dict[HeadArchitecture, Callable[[gguf.GGUFWriter, int, int], None]] = {
    "glm4moe": lambda writer, trunk, _: expert_metadata(writer, trunk),
    "qwen35": lambda writer, *_: qwen_metadata(writer),
    "nemotron_h_moe": _nemotron_metadata,
    "hy_v3": _hy_metadata,
    "mimo2": _window_metadata,
    "step35": _window_metadata,
}
"""What each adds, given how many layers it has without the heads', and in all."""
TENSORS: dict[HeadArchitecture, LayerTensors] = {
    "glm4moe": _glm,
    "qwen35": _qwen,
    "nemotron_h_moe": _nemotron,
    "hy_v3": _hy,
    "mimo2": _mimo,
    "step35": _step,
}
