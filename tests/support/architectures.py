"""Tiny random models of other architectures than llama: with a running state, sliding windows, MLA, experts.

Names and shapes of the tensors are those of llama.cpp's ``src/models``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

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

Architecture = Literal["mamba", "qwen35", "lfm2", "granitehybrid", "gemma3", "deepseek2", "cogvlm", "gpt2", "llama"]
_CONV = 4
_STATE = 32
EXPERTS, EXPERTS_USED = 4, 2
"""Of a layer with experts, which has a shared one besides."""
_QUERY_RANK, _LATENT, _ROTATED = 48, 32, 16
"""Widths of what deepseek2 keeps of a query, of keys and values, and of the part of a key that is rotated."""
POSITIONS = 300
"""Of gpt2's table: the training context has to be as long."""
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
    _only_on_some_layers(writer)
    mamba2_metadata(writer)


def mamba2_metadata(writer: gguf.GGUFWriter) -> None:
    """What a model with `mamba2` layers needs besides the usual."""
    width = _value(writer, "embedding_length")
    writer.add_ssm_conv_kernel(_CONV)
    writer.add_ssm_inner_size(2 * width)
    writer.add_ssm_state_size(_STATE)
    writer.add_ssm_time_step_rank(2 * width // _STATE)
    writer.add_ssm_group_count(1)


def mamba2(block: str, shape: Shape, random: RandomWeights) -> Tensors:
    """A layer with a running state, with the norm before it."""
    width, inner = shape.width, 2 * shape.width
    heads, conv = inner // _STATE, inner + 2 * _STATE
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


def _granite(shape: Shape, random: RandomWeights) -> Tensors:
    def layer(number: int, block: str) -> Tensors:
        mixer = mamba2(block, shape, random) if _is_recurrent(number) else attention(block, shape, random)
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


# ---------------------------------------------------------------- deepseek2: latent attention (MLA), experts


def experts(block: str, shape: Shape, random: RandomWeights) -> Tensors:
    """The feed-forward part of a layer with experts, without the norm before it."""
    width, hidden = shape.width, shape.feed_forward // 4

    def matrices(rows: int, columns: int) -> NDArray[np.float32]:
        return np.stack([random.matrix(rows, columns, columns**-0.5) for _ in range(EXPERTS)])

    return {
        block + "ffn_gate_inp.weight": random.matrix(EXPERTS, width, width**-0.5),
        block + "exp_probs_b.bias": np.zeros(EXPERTS, np.float32),
        block + "ffn_gate_exps.weight": matrices(hidden, width),
        block + "ffn_up_exps.weight": matrices(hidden, width),
        block + "ffn_down_exps.weight": matrices(width, hidden),
        block + "ffn_gate_shexp.weight": random.matrix(hidden, width, width**-0.5),
        block + "ffn_up_shexp.weight": random.matrix(hidden, width, width**-0.5),
        block + "ffn_down_shexp.weight": random.matrix(width, hidden, hidden**-0.5),
    }


def expert_metadata(writer: gguf.GGUFWriter, dense: int) -> None:
    """What a model needs besides the usual whose layers have `experts`, except for the first ``dense`` ones."""
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_USED)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(_value(writer, "feed_forward_length") // 4)
    writer.add_leading_dense_block_count(dense)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def _deepseek_metadata(writer: gguf.GGUFWriter) -> None:
    width_of_head = _value(writer, "embedding_length") // _value(writer, "attention.head_count")
    for key in ("attention.head_count_kv", "rope.dimension_count"):
        del writer.kv_data[0][f"deepseek2.{key}"]
    expert_metadata(writer, dense=1)
    writer.add_head_count_kv(1)
    writer.add_rope_dimension_count(_ROTATED)
    writer.add_q_lora_rank(_QUERY_RANK)
    writer.add_kv_lora_rank(_LATENT)
    writer.add_key_length(_LATENT + _ROTATED)
    writer.add_value_length(_LATENT)
    writer.add_key_length_mla(width_of_head + _ROTATED)
    writer.add_value_length_mla(width_of_head)


def _deepseek(shape: Shape, random: RandomWeights) -> Tensors:
    width, heads, head = shape.width, shape.heads, shape.width // shape.heads

    def by_head(rows: int, columns: int) -> NDArray[np.float32]:
        return np.stack([random.matrix(rows, columns, columns**-0.5) for _ in range(heads)])

    def layer(number: int, block: str) -> Tensors:
        latent = {
            **_norms(block, width, "attn_norm", "ffn_norm"),
            **_norms(block, _QUERY_RANK, "attn_q_a_norm"),
            **_norms(block, _LATENT, "attn_kv_a_norm"),
            block + "attn_q_a.weight": random.matrix(_QUERY_RANK, width, width**-0.5),
            block + "attn_q_b.weight": random.matrix(heads * (head + _ROTATED), _QUERY_RANK, 2 * _QUERY_RANK**-0.5),
            block + "attn_kv_a_mqa.weight": random.matrix(_LATENT + _ROTATED, width, width**-0.5),
            block + "attn_k_b.weight": by_head(_LATENT, head),
            block + "attn_v_b.weight": by_head(head, _LATENT),
            block + "attn_output.weight": random.matrix(width, width, width**-0.5),
        }
        return latent | (experts(block, shape, random) if number else feed_forward(block, shape, random))

    return _whole(shape, random, layer)


# ---------------------------------------------------------------- cogvlm: llama with weights for images besides


def _cogvlm(shape: Shape, random: RandomWeights) -> Tensors:
    def layer(_number: int, block: str) -> Tensors:
        tensors = attention(block, shape, random) | feed_forward(block, shape, random)
        parts = [tensors.pop(f"{block}attn_{part}.weight") for part in "qkv"]
        tensors[block + "attn_qkv.weight"] = np.concatenate(parts)
        for name in ("attn_qkv", "attn_output"):
            tensors[f"{block}vis_{name}.weight"] = tensors[f"{block}{name}.weight"]
        for name in ("gate", "up", "down"):
            tensors[f"{block}vis_{name}.weight"] = tensors[f"{block}ffn_{name}.weight"]
        return tensors

    return _whole(shape, random, layer)


# ---------------------------------------------------------------- gpt2: a table of positions


def _gpt2_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_layer_norm_eps(1e-5)


def _gpt2(shape: Shape, random: RandomWeights) -> Tensors:
    width = shape.width

    def biased(tensors: Tensors) -> Tensors:
        biases = {
            name.replace(".weight", ".bias"): np.zeros(len(tensor), np.float32) for name, tensor in tensors.items()
        }
        return tensors | biases

    def layer(_number: int, block: str) -> Tensors:
        tensors = attention(block, shape, random) | feed_forward(block, shape, random)
        parts = [tensors.pop(f"{block}attn_{part}.weight") for part in "qkv"]
        del tensors[block + "ffn_gate.weight"]
        return biased(tensors | {block + "attn_qkv.weight": np.concatenate(parts)})

    tensors = _whole(shape, random, layer)
    tensors["output_norm.bias"] = np.zeros(width, np.float32)
    return tensors | {"position_embd.weight": random.matrix(POSITIONS, width, 1.0)}


_KINDS: dict[str, tuple[Callable[[gguf.GGUFWriter], None], Callable[[Shape, RandomWeights], Tensors]]] = {
    "mamba": (_mamba_metadata, _mamba),
    "granitehybrid": (_granite_metadata, _granite),
    "lfm2": (_lfm2_metadata, _lfm2),
    "qwen35": (qwen_metadata, qwen_tensors),
    "gemma3": (_gemma3_metadata, _gemma3),
    "deepseek2": (_deepseek_metadata, _deepseek),
    "gpt2": (_gpt2_metadata, _gpt2),
    "cogvlm": (lambda _: None, _cogvlm),
    "llama": (lambda _: None, llama_weights),
}
