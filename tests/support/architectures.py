"""Tiny random models of architectures whose memory is not an ordinary KV cache: recurrent, hybrid, sliding windows.

Names and shapes of the tensors are those of llama.cpp's ``src/models``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

from tests.support.gguf_files import (
    CHATML_TEMPLATE,
    RandomWeights,
    Shape,
    Tensors,
    attention,
    feed_forward,
    llama_weights,
    make_model,
    output,
    spm_vocabulary,
)

Architecture = Literal["mamba", "qwen35", "lfm2", "granitehybrid", "gemma3", "llama"]
_CONV = 4
_STATE = 32
WINDOW = 32
"""Tokens a sliding-window layer of gemma3 looks back."""


def make(path: Path, architecture: Architecture, **options: Any) -> Path:
    """Write a model of ``architecture`` that never ends an answer; ``options`` as for `make_model`.

    In full precision, so that the two best logits of a random model are seldom closer than rounding: then a difference
    between two texts is a mistake of the memory, and no luck.
    """
    options.setdefault("weights", "F32")
    options.setdefault("layers", 4)
    options.setdefault("chat_template", CHATML_TEMPLATE)
    metadata, tensors = _KINDS[architecture]
    vocabulary = spm_vocabulary()
    ends = [token for token in (vocabulary.eos, vocabulary.eot) if token is not None]

    def endless(shape: Shape, random: RandomWeights) -> Tensors:
        made = tensors(shape, random)
        made["output.weight"][ends] = 0.0  # the best logit of 512 is far above
        return made

    return make_model(path, architecture=architecture, vocabulary=vocabulary, edit=metadata, tensors=endless, **options)


def _is_recurrent(layer: int) -> bool:
    return layer % 2 == 0


def _norms(block: str, width: int, *names: str) -> Tensors:
    return {f"{block}{name}.weight": np.ones(width, np.float32) for name in names}


def _whole(shape: Shape, random: RandomWeights, layer: Callable[[int, str], Tensors]) -> Tensors:
    tensors = {"token_embd.weight": random.matrix(shape.vocabulary, shape.width, 1.0)}
    for number in range(shape.layers):
        tensors |= layer(number, f"blk.{number}.")
    return tensors | output(shape, random)


def _value(writer: gguf.GGUFWriter, key: str) -> Any:
    return writer.kv_data[0][f"{writer.arch}.{key}"].value


def _only_on_some_layers(writer: gguf.GGUFWriter) -> None:
    """Key–value heads layer by layer: none where the layer is recurrent."""
    heads = _value(writer, "attention.head_count_kv")
    del writer.kv_data[0][f"{writer.arch}.attention.head_count_kv"]
    writer.add_head_count_kv([0 if _is_recurrent(i) else heads for i in range(_value(writer, "block_count"))])


# ---------------------------------------------------------------- mamba: recurrent, every layer


def _mamba_metadata(writer: gguf.GGUFWriter) -> None:
    width = _value(writer, "embedding_length")
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(2 * width)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(width // 16)


def _mamba(shape: Shape, random: RandomWeights) -> Tensors:
    width, inner, rank = shape.width, 2 * shape.width, shape.width // 16

    def layer(_number: int, block: str) -> Tensors:
        return {
            **_norms(block, width, "attn_norm"),
            block + "ssm_in.weight": random.matrix(2 * inner, width, width**-0.5),
            block + "ssm_conv1d.weight": random.matrix(inner, _CONV, _CONV**-0.5),
            block + "ssm_conv1d.bias": np.zeros(inner, np.float32),
            block + "ssm_x.weight": random.matrix(rank + 2 * _STATE, inner, inner**-0.5),
            block + "ssm_dt.weight": random.matrix(inner, rank, rank**-0.5),
            block + "ssm_dt.bias": np.zeros(inner, np.float32),
            block + "ssm_a": -np.abs(random.matrix(inner, _STATE, 0.5)),
            block + "ssm_d": np.ones(inner, np.float32),
            block + "ssm_out.weight": random.matrix(width, inner, inner**-0.5),
        }

    return _whole(shape, random, layer)


# ---------------------------------------------------------------- granitehybrid: mamba2 and attention in turn


def _granite_metadata(writer: gguf.GGUFWriter) -> None:
    width = _value(writer, "embedding_length")
    _only_on_some_layers(writer)
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(2 * width)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(2 * width // _STATE)
    writer.add_ssm_group_count(1)


def _granite(shape: Shape, random: RandomWeights) -> Tensors:
    width, inner = shape.width, 2 * shape.width
    heads, conv = inner // _STATE, inner + 2 * _STATE

    def mamba2(block: str) -> Tensors:
        return {
            **_norms(block, width, "attn_norm"),
            block + "ssm_in.weight": random.matrix(2 * inner + 2 * _STATE + heads, width, width**-0.5),
            block + "ssm_conv1d.weight": random.matrix(conv, _CONV, _CONV**-0.5),
            block + "ssm_conv1d.bias": np.zeros(conv, np.float32),
            block + "ssm_dt.bias": np.zeros(heads, np.float32),
            block + "ssm_a": -np.abs(random.matrix(heads, 1, 0.5)),
            block + "ssm_d": np.ones((heads, 1), np.float32),
            block + "ssm_norm.weight": np.ones((1, inner), np.float32),
            block + "ssm_out.weight": random.matrix(width, inner, inner**-0.5),
        }

    def layer(number: int, block: str) -> Tensors:
        mixer = mamba2(block) if _is_recurrent(number) else attention(block, shape, random)
        return mixer | feed_forward(block, shape, random)

    return _whole(shape, random, layer)


# ---------------------------------------------------------------- lfm2: short convolutions and attention in turn


def _lfm2_metadata(writer: gguf.GGUFWriter) -> None:
    _only_on_some_layers(writer)
    writer.add_shortconv_l_cache(_CONV)


def _lfm2(shape: Shape, random: RandomWeights) -> Tensors:
    width = shape.width

    def convolution(block: str) -> Tensors:
        return {
            **_norms(block, width, "attn_norm"),
            block + "shortconv.conv.weight": random.matrix(width, _CONV, _CONV**-0.5),
            block + "shortconv.in_proj.weight": random.matrix(3 * width, width, width**-0.5),
            block + "shortconv.out_proj.weight": random.matrix(width, width, width**-0.5),
        }

    def layer(number: int, block: str) -> Tensors:
        if _is_recurrent(number):
            mixer = convolution(block)
        else:
            head_norms = _norms(block, width // shape.heads, "attn_q_norm", "attn_k_norm")
            mixer = attention(block, shape, random) | head_norms
        return mixer | feed_forward(block, shape, random)

    tensors = _whole(shape, random, layer)
    tensors["token_embd_norm.weight"] = tensors.pop("output_norm.weight")
    return tensors


# ---------------------------------------------------------------- qwen35: gated delta net and attention in turn


def qwen_metadata(writer: gguf.GGUFWriter) -> None:
    """What a qwen35 model needs besides the usual: every second layer has attention."""
    width = _value(writer, "embedding_length")
    writer.add_full_attention_interval(2)
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(2 * width)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(2 * width // _STATE)
    writer.add_ssm_group_count(width // _STATE)
    writer.add_rope_dimension_sections([_value(writer, "rope.dimension_count") // 8] * 4)


def qwen_tensors(shape: Shape, random: RandomWeights, attention_layers: Collection[int] | None = None) -> Tensors:
    """All tensors of a qwen35 model; without ``attention_layers``, every second one has attention."""
    width, key, value = shape.width, shape.width, 2 * shape.width
    value_heads = value // _STATE

    def delta_net(block: str) -> Tensors:
        return {
            **_norms(block, width, "attn_norm"),
            block + "attn_qkv.weight": random.matrix(2 * key + value, width, width**-0.5),
            block + "attn_gate.weight": random.matrix(value, width, width**-0.5),
            block + "ssm_conv1d.weight": random.matrix(2 * key + value, _CONV, _CONV**-0.5),
            block + "ssm_dt.bias": np.zeros(value_heads, np.float32),
            block + "ssm_a": np.full(value_heads, -0.1, np.float32),
            block + "ssm_alpha.weight": random.matrix(value_heads, width, width**-0.5),
            block + "ssm_beta.weight": random.matrix(value_heads, width, width**-0.5),
            **_norms(block, _STATE, "ssm_norm"),
            block + "ssm_out.weight": random.matrix(width, value, value**-0.5),
        }

    def gated_attention(block: str) -> Tensors:
        head_norms = _norms(block, width // shape.heads, "attn_q_norm", "attn_k_norm")
        tensors = attention(block, shape, random) | head_norms
        tensors[block + "attn_q.weight"] = random.matrix(2 * width, width, 2 * width**-0.5)  # with the gate
        return tensors

    def layer(number: int, block: str) -> Tensors:
        is_recurrent = _is_recurrent(number) if attention_layers is None else number not in attention_layers
        mixer = delta_net(block) if is_recurrent else gated_attention(block)
        tensors = mixer | feed_forward(block, shape, random)
        tensors[block + "post_attention_norm.weight"] = tensors.pop(block + "ffn_norm.weight")
        return tensors

    return _whole(shape, random, layer)


# ---------------------------------------------------------------- gemma3: every second layer sees a window


def _gemma3_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern(2)


def _gemma3(shape: Shape, random: RandomWeights) -> Tensors:
    def layer(_number: int, block: str) -> Tensors:
        head_norms = _norms(block, shape.width // shape.heads, "attn_q_norm", "attn_k_norm")
        norms = _norms(block, shape.width, "post_attention_norm", "post_ffw_norm")
        return attention(block, shape, random) | feed_forward(block, shape, random) | head_norms | norms

    return _whole(shape, random, layer)


_KINDS: dict[str, tuple[Callable[[gguf.GGUFWriter], None], Callable[[Shape, RandomWeights], Tensors]]] = {
    "mamba": (_mamba_metadata, _mamba),
    "granitehybrid": (_granite_metadata, _granite),
    "lfm2": (_lfm2_metadata, _lfm2),
    "qwen35": (qwen_metadata, qwen_tensors),
    "gemma3": (_gemma3_metadata, _gemma3),
    "llama": (lambda _: None, llama_weights),
}
