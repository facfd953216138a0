"""What the models consist of whose shapes `benchmarks.shapes` writes: tensors, metadata, tokenizer.

Names are those of llama.cpp's ``src/models``. A shape is (outputs, inputs), with the number of experts before them.
Where the sizes are from, and how near the published files are (bytes, tokenizer included):

- *Llama 3.2 1B*, *Llama 3.1 8B*: the published configurations. Both files are as large as the published Q4_K_M to
  within 0.001 %.
- *Qwen 3.5 4B*: metadata and numbers of tensors as llama.cpp lists them for published files; with the MTP head inside,
  as in the file that the catalog recommends. That one is 2 % larger: it has a mix of types of its own.
- *Gemma 4 12B*: heads, windows and the missing value matrices as reported by those who have ported it, and the metadata
  of its larger relative in llama.cpp's tree; width, feed-forward width and number of layers **assumed** to be Gemma 3
  12B's. The published Q4_K_M is as large to within 0.01 % if its embedding is in Q4_K; in llama.cpp's mix that is Q6_K.
- *gpt-oss 20B*: metadata as llama.cpp lists it for the published file, and the types of the tensors as there (289 F32,
  98 Q8_0, 72 MXFP4); as large to within 0.1 %.

All tokenizers and templates are those of the family where llama.cpp's tree has them (`Tokens`); Qwen's is an older one
with made-up words up to the right size, gpt-oss's is Llama's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import gguf
import numpy as np
from numpy.typing import NDArray

Quantization = Literal["Q4_K_M", "MXFP4"]
Layer = Callable[[int, str], "Iterator[Tensor]"]
_SHARPNESS = 4.0
"""How far logits are spread: with less, all tokens would be about as likely."""
_LOUD = 8.0
"""By how much feed-forward parts say more than the rest: attention over many random values is about the same behind any
token, and the embedding in the result would make a token its own successor. Then a text would soon go in circles.
"""


@dataclass(frozen=True)
class Tensor:
    """One tensor. ``values`` are for all of its entries, or one after the other; random if there are none, with the
    standard deviation that keeps what goes through it as large as it was, times ``scale``.
    """

    name: str
    shape: tuple[int, ...]
    values: float | NDArray[np.float32] | None = None
    scale: float = 1.0

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Tokens:
    """A tokenizer: that of ``ggml-vocab-<file>.gguf`` in llama.cpp's tree, with made-up words up to ``size``.

    Attributes:
        special: Control tokens that are put into their places, by id.
        ids: What is set besides, by its name in the metadata.
        template: The chat template: a file in that tree's ``models/templates``.
    """

    file: str
    size: int
    pre: str = ""
    special: Mapping[int, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    template: str = ""


@dataclass(frozen=True)
class ModelShape:
    """All that is needed to write a model, but the numbers in its tensors."""

    title: str
    architecture: str
    quantization: Quantization
    layers: int
    tokens: Tokens
    tensors: tuple[Tensor, ...]
    metadata: Callable[[gguf.GGUFWriter], None]


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model with attention in (some of) its layers; ``feed_forward`` of one expert, where there are some."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    context: int = 131_072
    rope_base: float = 500_000.0
    epsilon: float = 1e-5

    def attention(self, block: str) -> Iterator[Tensor]:
        """The four matrices."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        yield matrix(block + "attn_q", queries, self.width)
        yield matrix(block + "attn_k", keys, self.width)
        yield matrix(block + "attn_v", keys, self.width)
        yield matrix(block + "attn_output", self.width, queries)

    def network(self, block: str) -> Iterator[Tensor]:
        """The feed-forward part, without its norm."""
        yield matrix(block + "ffn_gate", self.feed_forward, self.width)
        yield matrix(block + "ffn_up", self.feed_forward, self.width)
        yield matrix(block + "ffn_down", self.width, self.feed_forward, scale=_LOUD)

    def describe(self, writer: gguf.GGUFWriter) -> None:
        """What all architectures have."""
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.width)
        writer.add_block_count(self.layers)
        writer.add_feed_forward_length(self.feed_forward)
        writer.add_head_count(self.heads)
        writer.add_rope_freq_base(self.rope_base)
        writer.add_layer_norm_rms_eps(self.epsilon)
        writer.add_key_length(self.head)
        writer.add_value_length(self.head)


def matrix(name: str, *shape: int, scale: float = 1.0) -> Tensor:
    """Random weights."""
    return Tensor(f"{name}.weight", shape, scale=scale)


def norms(block: str, width: int, *names: str, value: float = 1.0) -> Iterator[Tensor]:
    """Norms, behind which numbers are about as large as ``value``."""
    return (Tensor(f"{block}{name}.weight", (width,), value) for name in names)


def whole(sizes: Sizes, vocabulary: int, layer: Layer, *, is_tied: bool) -> tuple[Tensor, ...]:
    """All tensors of a model, in the order of its layers."""
    shape = (vocabulary, sizes.width)
    tensors = [Tensor("token_embd.weight", shape, scale=_SHARPNESS)]
    if not is_tied:
        tensors.append(Tensor("output.weight", shape, scale=_SHARPNESS))
    tensors += norms("", sizes.width, "output_norm")
    for number in range(sizes.layers):
        tensors += layer(number, f"blk.{number}.")
    return tuple(tensors)


# ---------------------------------------------------------------- llama

_LLAMA_TOKENS = 128_256
_LLAMA_IDS = {"bos_token_id": 128_000, "eos_token_id": 128_009}


def llama(
    title: str,
    sizes: Sizes,
    tokens: Tokens,
    *,
    is_tied: bool,
    rope_factor: float,
    quantization: Quantization = "Q4_K_M",
) -> ModelShape:
    """A model of the architecture ``llama``, with the rotary frequencies of Llama 3 (``rope_factor``)."""

    def layer(_number: int, block: str) -> Iterator[Tensor]:
        yield from norms(block, sizes.width, "attn_norm", "ffn_norm")
        yield from sizes.attention(block)
        yield from sizes.network(block)

    def metadata(writer: gguf.GGUFWriter) -> None:
        sizes.describe(writer)
        writer.add_head_count_kv(sizes.kv_heads)
        writer.add_rope_dimension_count(sizes.head)

    frequencies = _llama3_frequencies(sizes, rope_factor)
    tensors = (*whole(sizes, tokens.size, layer, is_tied=is_tied), frequencies)
    return ModelShape(title, "llama", quantization, sizes.layers, tokens, tensors, metadata)


def _llama3_frequencies(sizes: Sizes, factor: float) -> Tensor:
    """As llama.cpp's ``conversion/llama.py`` computes them; low and high factor 1 and 4, trained on 8,192 tokens."""
    low, high, trained = 1.0, 4.0, 8192
    lengths = 2 * np.pi * sizes.rope_base ** (np.arange(0, sizes.head, 2) / sizes.head)
    smooth = np.clip((trained / lengths - low) / (high - low), 0.0, 1.0)
    values = 1 / ((1 - smooth) / factor + smooth)
    return Tensor("rope_freqs.weight", (sizes.head // 2,), values.astype(np.float32))


def llama_3_2_1b() -> ModelShape:
    sizes = Sizes(width=2048, layers=16, heads=32, kv_heads=8, head=64, feed_forward=8192)
    tokens = Tokens("llama-bpe", _LLAMA_TOKENS, ids=_LLAMA_IDS, template="meta-llama-Llama-3.2-3B-Instruct")
    return llama("Llama 3.2 1B", sizes, tokens, is_tied=True, rope_factor=32)


def llama_3_1_8b() -> ModelShape:
    sizes = Sizes(width=4096, layers=32, heads=32, kv_heads=8, head=128, feed_forward=14_336)
    tokens = Tokens("llama-bpe", _LLAMA_TOKENS, ids=_LLAMA_IDS, template="meta-llama-Llama-3.1-8B-Instruct")
    return llama("Llama 3.1 8B", sizes, tokens, is_tied=False, rope_factor=8)


# ---------------------------------------------------------------- qwen35: gated delta net, every fourth layer attention


@dataclass(frozen=True)
class DeltaNet:
    """Sizes of the layers with a running state."""

    state: int = 128
    key_heads: int = 16
    value_heads: int = 32
    kernel: int = 4

    def tensors(self, block: str, width: int) -> Iterator[Tensor]:
        keys, values = self.key_heads * self.state, self.value_heads * self.state
        yield matrix(block + "attn_qkv", 2 * keys + values, width)
        yield matrix(block + "attn_gate", values, width)
        yield matrix(block + "ssm_conv1d", 2 * keys + values, self.kernel)
        yield Tensor(block + "ssm_dt.bias", (self.value_heads,), 0.0)
        yield Tensor(block + "ssm_a", (self.value_heads,), -0.1)
        yield matrix(block + "ssm_alpha", self.value_heads, width)
        yield matrix(block + "ssm_beta", self.value_heads, width)
        yield from norms(block, self.state, "ssm_norm")
        yield matrix(block + "ssm_out", width, values)

    def describe(self, writer: gguf.GGUFWriter) -> None:
        writer.add_ssm_conv_kernel(self.kernel)
        writer.add_ssm_state_size(self.state)
        writer.add_ssm_group_count(self.key_heads)
        writer.add_ssm_time_step_rank(self.value_heads)
        writer.add_ssm_inner_size(self.value_heads * self.state)


_ATTENTION_EVERY = 4


def qwen35(title: str, sizes: Sizes, net: DeltaNet, tokens: Tokens, *, heads: int) -> ModelShape:
    """``sizes.layers`` include the blocks of ``heads`` MTP heads, which are the last ones."""
    trunk = sizes.layers - heads

    def attention(block: str) -> Iterator[Tensor]:
        for tensor in sizes.attention(block):  # the queries come with the gate
            rows, columns = tensor.shape
            yield matrix(block + "attn_q", 2 * rows, columns) if "attn_q" in tensor.name else tensor
        yield from norms(block, sizes.head, "attn_q_norm", "attn_k_norm")

    def layer(number: int, block: str) -> Iterator[Tensor]:
        yield from norms(block, sizes.width, "attn_norm", "post_attention_norm")
        is_attention = number >= trunk or (number + 1) % _ATTENTION_EVERY == 0
        yield from attention(block) if is_attention else net.tensors(block, sizes.width)
        yield from sizes.network(block)
        if number >= trunk:
            yield matrix(block + "nextn.eh_proj", sizes.width, 2 * sizes.width)
            yield from norms(block, sizes.width, "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm")

    def metadata(writer: gguf.GGUFWriter) -> None:
        sizes.describe(writer)
        net.describe(writer)
        writer.add_head_count_kv(sizes.kv_heads)
        writer.add_full_attention_interval(_ATTENTION_EVERY)
        writer.add_rope_dimension_count(sizes.head // 4)
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        if heads:
            writer.add_nextn_predict_layers(heads)

    tensors = whole(sizes, tokens.size, layer, is_tied=True)
    return ModelShape(title, "qwen35", "Q4_K_M", sizes.layers, tokens, tensors, metadata)


def qwen3_5_4b() -> ModelShape:
    sizes = Sizes(
        width=2560, layers=33, heads=16, kv_heads=4, head=256, feed_forward=9216,
        context=262_144, rope_base=10_000_000.0, epsilon=1e-6,
    )  # fmt: skip
    tokens = Tokens("qwen35", 248_320, ids={"eos_token_id": 151_645}, template="Qwen3.5-4B")
    return qwen35("Qwen 3.5 4B", sizes, DeltaNet(), tokens, heads=1)


# ---------------------------------------------------------------- gemma4: five layers with windows, one without

_WINDOW_EVERY = 6
_ROTATED = 0.25
"""The part of a head that is rotated in layers without windows."""


def gemma4(title: str, sizes: Sizes, tokens: Tokens, *, window: int, wide_head: int, wide_kv_heads: int) -> ModelShape:
    """``sizes`` have the heads of layers with windows; the others have ``wide_head``, and keys that are values, too."""
    is_window = [(number + 1) % _WINDOW_EVERY != 0 for number in range(sizes.layers)]

    def wide(block: str) -> Iterator[Tensor]:
        yield matrix(block + "attn_q", sizes.heads * wide_head, sizes.width)
        yield matrix(block + "attn_k", wide_kv_heads * wide_head, sizes.width)
        yield matrix(block + "attn_output", sizes.width, sizes.heads * wide_head)

    def layer(number: int, block: str) -> Iterator[Tensor]:
        yield from norms(block, sizes.width, "attn_norm", "post_attention_norm", "ffn_norm")
        yield from norms(block, sizes.width, "post_ffw_norm", value=_LOUD**2)  # embeddings are enlarged as well
        yield from sizes.attention(block) if is_window[number] else wide(block)
        yield from norms(block, sizes.head if is_window[number] else wide_head, "attn_q_norm", "attn_k_norm")
        yield from sizes.network(block)
        yield Tensor(block + "layer_output_scale.weight", (1,), 1.0)

    def metadata(writer: gguf.GGUFWriter) -> None:
        sizes.describe(writer)
        writer.kv_data[0].pop("gemma4.attention.key_length")
        writer.kv_data[0].pop("gemma4.attention.value_length")
        writer.add_head_count_kv([sizes.kv_heads if window else wide_kv_heads for window in is_window])
        for narrow, other in ((writer.add_key_length_swa, writer.add_key_length),
                              (writer.add_value_length_swa, writer.add_value_length),
                              (writer.add_rope_dimension_count_swa, writer.add_rope_dimension_count)):  # fmt: skip
            narrow(sizes.head)
            other(wide_head)
        writer.add_rope_freq_base_swa(10_000.0)
        writer.add_sliding_window(window)
        writer.add_sliding_window_pattern(is_window)
        writer.add_shared_kv_layers(0)
        writer.add_embedding_length_per_layer_input(0)
        writer.add_final_logit_softcapping(30.0)

    rotated = int(wide_head * _ROTATED / 2)
    frequencies = np.array([1.0] * rotated + [1e30] * (wide_head // 2 - rotated), np.float32)
    tensors = whole(sizes, tokens.size, layer, is_tied=True)
    tensors += (Tensor("rope_freqs.weight", (wide_head // 2,), frequencies),)
    return ModelShape(title, "gemma4", "Q4_K_M", sizes.layers, tokens, tensors, metadata)


def gemma4_12b() -> ModelShape:
    sizes = Sizes(
        width=3840, layers=48, heads=16, kv_heads=8, head=256, feed_forward=15_360,
        context=262_144, rope_base=1_000_000.0, epsilon=1e-6,
    )  # fmt: skip
    tokens = Tokens("gemma-4", 262_144)
    return gemma4("Gemma 4 12B", sizes, tokens, window=1024, wide_head=512, wide_kv_heads=1)


# ---------------------------------------------------------------- gpt-oss: experts, every second layer with a window


def gpt_oss(title: str, sizes: Sizes, tokens: Tokens, *, experts: int, used: int, window: int) -> ModelShape:
    """``sizes.feed_forward`` is that of one expert."""
    width, hidden = sizes.width, sizes.feed_forward

    def zeros(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, 0.0)

    def layer(_number: int, block: str) -> Iterator[Tensor]:
        yield from norms(block, width, "attn_norm", "post_attention_norm")
        for tensor in sizes.attention(block):
            yield tensor
            yield zeros(tensor.name.replace("weight", "bias"), tensor.shape[0])
        yield zeros(block + "attn_sinks.weight", sizes.heads)
        yield matrix(block + "ffn_gate_inp", experts, width)
        yield zeros(block + "ffn_gate_inp.bias", experts)
        for part, rows, columns in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
            scale = _LOUD if part == "down" else 1.0
            yield matrix(f"{block}ffn_{part}_exps", experts, rows, columns, scale=scale)
            yield zeros(f"{block}ffn_{part}_exps.bias", experts, rows)

    def metadata(writer: gguf.GGUFWriter) -> None:
        sizes.describe(writer)
        writer.add_head_count_kv(sizes.kv_heads)
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)
        writer.add_expert_feed_forward_length(hidden)
        writer.add_sliding_window(window)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(32.0)
        writer.add_rope_scaling_orig_ctx_len(4096)

    tensors = whole(sizes, tokens.size, layer, is_tied=False)
    return ModelShape(title, "gpt-oss", "MXFP4", sizes.layers, tokens, tensors, metadata)


def gpt_oss_20b() -> ModelShape:
    """There is no vocabulary of its family in llama.cpp's tree: Llama's, with its own control tokens."""
    sizes = Sizes(width=2880, layers=24, heads=64, kv_heads=8, head=64, feed_forward=2880, rope_base=150_000.0)
    special = {
        199_998: "<|startoftext|>",
        199_999: "<|endoftext|>",
        200_002: "<|return|>",
        200_003: "<|constrain|>",
        200_005: "<|channel|>",
        200_006: "<|start|>",
        200_007: "<|end|>",
        200_008: "<|message|>",
        200_012: "<|call|>",
    }
    ids = {"bos_token_id": 199_998, "eos_token_id": 200_002, "padding_token_id": 199_999}
    tokens = Tokens("llama-bpe", 201_088, "gpt-4o", special, ids, "openai-gpt-oss-120b")
    return gpt_oss("gpt-oss 20B", sizes, tokens, experts=32, used=4, window=128)


SHAPES: dict[str, Callable[[], ModelShape]] = {
    "llama-3.2-1b": llama_3_2_1b,
    "llama-3.1-8b": llama_3_1_8b,
    "qwen3.5-4b": qwen3_5_4b,
    "gemma4-12b": gemma4_12b,
    "gpt-oss-20b": gpt_oss_20b,
}
