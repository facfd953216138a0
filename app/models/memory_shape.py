"""The part of a model's header that determines its memory, small enough to store or send.

Follows llama.cpp of October 2026 (``src/llama-hparams.cpp``, ``llama_model::create_memory`` and the
``load_arch_hparams`` of its ``src/models``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from app.models.gguf import ASSISTANTS, EAGLE3, MAX_DIMENSION, MAX_LAYERS, GgufHeader, longest_context, whole_numbers
from app.models.gguf_parser import Array, Tensor, Value
from app.models.heads import head_problem, is_head_only, must_be_loaded
from app.protocol.options import default_context_length

_FLOAT_BYTES = 4
_BLOCK_NAME = re.compile(r"^blk\.(\d{1,4})\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch)?exps\.")
"""llama.cpp's pattern for the tensors that ``--n-cpu-moe`` leaves in system memory."""
_STATE_TENSORS = ("ssm_", "shortconv", "time_mix", "kda_")
_ATTENTION_TENSORS = ("attn_k", "attn_v", "attn_q", "self_attn")
_STATE_AND_KV = "falcon-h1"
"""The one architecture in which every layer has both."""
_INPUT_TENSORS = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
_INDEXER = "attention.indexer.key_length"


class _Windows(NamedTuple):
    """An architecture's sliding windows, if its files don't specify them."""

    every: int
    """One layer in this many sees the whole context."""
    first: bool = False
    """It is the first of them, not the last."""
    size: int = 0
    """In tokens, if the file doesn't say."""
    fixed: bool = False
    """``size`` overrides the file."""


_WINDOWS = {
    "afmoe": _Windows(4),
    "cohere2": _Windows(4),
    "cohere2moe": _Windows(4, first=True),
    "exaone-moe": _Windows(4),
    "gemma2": _Windows(2, size=4096),
    "gemma3": _Windows(6),
    "gemma3n": _Windows(5),
    "gpt-oss": _Windows(2),
    "laguna": _Windows(4, first=True),
    "llama4": _Windows(4, size=8192, fixed=True),
    "mellum": _Windows(4),
    "muse-glimmer": _Windows(4),
    "olmo2": _Windows(4),
    "plamo3": _Windows(8),
    "smallthinker": _Windows(4, first=True, size=4096, fixed=True),
    **{name: _Windows(1) for name in ("dots3note", "gemma4", "granite-swa", "maple", "mimo2", "spark2-5", "step35")},
}
"""For other architectures llama.cpp ignores a window in the file, and keeps the whole context for all layers."""

_EXAONE_LAYERS = 64
"""exaone4 has windows only in the model with this many layers."""
_GEMMA3N_OWN_KV = 20
"""The layers of gemma3n after these share the cache of earlier ones."""


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """A repeating layer, stored as a row of numbers in JSON."""

    weights: int
    """In bytes; 0 for a layer that llama.cpp can leave in the file (MTP)."""
    keys: int = 0
    """Numbers stored per token of context; 0 without a KV cache of its own."""
    values: int = 0
    window: int = 0
    """The most tokens it keeps (plus a batch); 0 keeps all."""
    state: int = 0
    """Bytes of a recurrent state, independent of the context length."""
    experts: int = 0
    """Bytes of ``weights`` in experts, of which a token uses only a few."""


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model's memory-related properties. In bytes, unless stated otherwise."""

    architecture: str
    parameters: int = 0
    layers: list[Layer]
    input_weights: int
    """Token embeddings, which always stay in system memory."""
    output_weights: int
    """The weights after the last layer."""
    tied_weights: int = 0
    """The token embeddings if they are also the output matrix: copied to a GPU, not duplicated in system memory."""
    skipped: int = 0
    """In the file, but only loaded with an MTP head."""
    head: Layer | None = None
    """What a usable head adds, with all its layers as one; ``None`` without one."""
    head_feed_forward: int = 0
    """Like ``feed_forward``, for the head's layers."""
    is_head_only: bool = False
    """The file has a head without its model."""
    largest_experts: int = 0
    """Of the tensors that hold the experts of a layer."""
    largest_matrix: int = 0
    """Of all tensors in the layers."""
    tensors: int = 0
    vocabulary: int = 0
    """Tokens."""
    merges: int = 0
    """Of a BPE tokenizer."""
    training_context: int = 0
    """Tokens; 0 if the file doesn't specify it."""
    width: int = 0
    heads: int = 0
    key_length: int = 0
    value_length: int = 0
    feed_forward: int = 0
    """Of the widest layer, with all experts that one token uses."""
    experts: int = 0
    experts_used: int = 0
    inner: int = 0
    """Width inside recurrent layers."""
    running_state: str | None = msgspec.field(name="kept_state", default=None)
    """As in `GgufHeader`."""

    @property
    def weights(self) -> int:
        """All weights, each counted once."""
        return sum(layer.weights for layer in self.layers) + self.input_weights + self.output_weights

    @property
    def gpu_slots(self) -> int:
        """The number of layers a GPU can take, as llama.cpp counts: the repeating ones and the output."""
        return len(self.layers) + 1

    @property
    def expert_layers(self) -> int:
        """The number of layers up to the last one with experts."""
        return max((number for number, layer in enumerate(self.layers, 1) if layer.experts), default=0)

    @property
    def longest_context(self) -> int:
        """The most tokens that it can compute."""
        return longest_context(self.architecture, self.training_context)

    @property
    def default_context(self) -> int:
        """The context length in tokens if none is requested."""
        return default_context_length(self.training_context)


def shape_of(header: GgufHeader) -> ModelShape:
    """The shape of a model. The header's numbers aren't trusted; the result is only reliable for loadable models."""
    facts = _Facts(header)
    names = _by_layer(header.tensors)
    layers = [_layer(facts, number, names.get(number, [])) for number in range(facts.layers)]
    outside = names.get(None, [])
    embeddings = sum(tensor.size for tensor in outside if tensor.name.startswith("token_embd."))
    inputs = sum(tensor.size for tensor in outside if tensor.name.startswith(_INPUT_TENSORS))
    tied = not any(tensor.name == "output.weight" for tensor in outside)
    merges = header.metadata.get("tokenizer.ggml.merges")
    loaded = [tensor for number in range(facts.loaded) for tensor in names.get(number, [])]
    return ModelShape(
        architecture=header.architecture,
        parameters=header.parameters,
        layers=layers,
        input_weights=inputs,
        output_weights=sum(tensor.size for tensor in outside) - inputs,
        tied_weights=embeddings if tied else 0,
        skipped=sum(tensor.size for number in range(facts.loaded, facts.layers) for tensor in names.get(number, [])),
        head=_head(facts, names) if head_problem(header) is None else None,
        head_feed_forward=_head_feed_forward(facts, names),
        is_head_only=is_head_only(header),
        largest_experts=max((tensor.size for tensor in loaded if _EXPERTS.search(tensor.name)), default=0),
        largest_matrix=max((tensor.size for tensor in loaded), default=0),
        tensors=len(header.tensors),
        vocabulary=_vocabulary(header, outside),
        merges=merges.count if isinstance(merges, Array) else 0,
        training_context=header.training_context,
        width=min(header.width, MAX_DIMENSION),
        heads=max(map(facts.heads, range(facts.layers)), default=0),
        key_length=facts.number("attention.key_length", facts.head_size),
        value_length=facts.number("attention.value_length", facts.head_size),
        feed_forward=facts.feed_forward(),
        experts=min(header.experts, MAX_DIMENSION),
        experts_used=min(header.experts_used, MAX_DIMENSION),
        inner=facts.number("ssm.inner_size"),
        running_state=header.running_state,
    )


class _Facts:
    """The numbers of a header, each limited, with llama.cpp's defaults."""

    def __init__(self, header: GgufHeader) -> None:
        self.architecture = header.architecture
        self._values: Mapping[str, Value] = header.metadata
        self.layers = min(header.layers, MAX_LAYERS)
        self.trunk = 0 if header.architecture == EAGLE3 else max(self.layers - header.mtp_layers, 0)
        """The number of layers without those that predict further tokens."""
        self.loaded = self.layers if must_be_loaded(header) else self.trunk
        """The number of layers that are loaded even if the head isn't used."""
        self.width = min(header.width, MAX_DIMENSION)
        self._head_counts = self.per_layer("attention.head_count")
        self._kv_head_counts = self.per_layer("attention.head_count_kv") or self._head_counts
        self.head_size = self.width // max(self.heads(0), 1)
        self.window, self._windowed = self._windows()
        if self.architecture == "gemma3n":
            self.own_kv = min(_GEMMA3N_OWN_KV, self.trunk)
        else:
            self.own_kv = max(self.trunk - self.number("attention.shared_kv_layers"), 0)

    def number(self, key: str, default: int = 0) -> int:
        """A dimension; for a list the largest."""
        found = [value for value in whole_numbers(self._values.get(f"{self.architecture}.{key}")) if value >= 0]
        return min(max(found), MAX_DIMENSION) if found else default

    def per_layer(self, key: str) -> list[int]:
        """A number for each layer; empty if unspecified."""
        found = [
            min(max(value, 0), MAX_DIMENSION) for value in whole_numbers(self._values.get(f"{self.architecture}.{key}"))
        ]
        return found * self.layers if len(found) == 1 else found

    def heads(self, layer: int) -> int:
        return self._head_counts[layer] if layer < len(self._head_counts) else 0

    def kv_heads(self, layer: int) -> int:
        return self._kv_head_counts[layer] if layer < len(self._kv_head_counts) else 0

    def window_of(self, layer: int) -> int:
        return self.window if layer < len(self._windowed) and self._windowed[layer] else 0

    def feed_forward(self) -> int:
        dense = self.number("feed_forward_length")
        expert = self.number("expert_feed_forward_length", dense)
        return max(dense, min(expert * self.number("expert_used_count"), MAX_DIMENSION))

    def kv(self, layer: int) -> tuple[int, int]:
        """The numbers of keys and of values per token."""
        suffix = "_swa" if self.window_of(layer) else ""
        keys, values = (
            self.number(f"attention.{kind}_length{suffix}", self.number(f"attention.{kind}_length", self.head_size))
            for kind in ("key", "value")
        )
        latent = self.number("attention.key_length_mla") and self.number("attention.value_length_mla")
        heads = self.kv_heads(layer)
        indexer = self.number(_INDEXER)
        return heads * keys + indexer, 0 if latent else heads * values

    def state(self) -> int:
        """Bytes of a layer's recurrent state."""
        convolution = max(self.number("ssm.conv_kernel", 1) - 1, 0)
        if head := self.number("wkv.head_size"):
            numbers = self.width * (self.number("token_shift_count", 2) + head)
        elif cache := self.number("shortconv.l_cache"):
            numbers = self.width * (cache - 1)
        elif head := self.number("kda.head_dim"):
            numbers = head * self.heads(0) * (3 * (convolution or 3) + head)
        else:
            inner, size = self.number("ssm.inner_size"), self.number("ssm.state_size")
            numbers = convolution * (inner + 2 * self.number("ssm.group_count") * size) + size * inner
        return numbers * _FLOAT_BYTES

    def _windows(self) -> tuple[int, list[bool]]:
        rule = _WINDOWS.get(self.architecture)
        if self.architecture == "exaone4" and self.layers == _EXAONE_LAYERS:
            rule = _Windows(4, size=4096)
        key = "attention.sliding_window"
        size = self.number(key, rule.size if rule else 0)
        if rule is None or not size:
            return 0, []
        if rule.fixed:
            size = rule.size
        pattern = self._values.get(f"{self.architecture}.{key}_pattern")
        if isinstance(pattern, Array):
            return size, [bool(value) for value in whole_numbers(pattern)[: self.trunk]]
        every = self.number(f"{key}_pattern", rule.every)
        whole = 0 if rule.first else every - 1
        return size, [every == 0 or layer % every != whole for layer in range(self.trunk)]


def _layer(facts: _Facts, number: int, tensors: Sequence[Tensor]) -> Layer:
    if number >= facts.loaded:
        return Layer(0)  # of an MTP head
    weights = sum(tensor.size for tensor in tensors)
    experts = sum(tensor.size for tensor in tensors if _EXPERTS.search(tensor.name))
    if number >= facts.trunk:
        return Layer(weights, experts=experts)
    kinds = [tensor.name.split(".", 2)[2] for tensor in tensors]
    recurrent = any(kind.startswith(_STATE_TENSORS) for kind in kinds)
    attends = any(kind.startswith(_ATTENTION_TENSORS) for kind in kinds) and number < facts.own_kv
    has_kv = attends and (not recurrent or facts.architecture == _STATE_AND_KV)
    keys, values = facts.kv(number) if has_kv else (0, 0)
    return Layer(weights, keys, values, facts.window_of(number), facts.state() if recurrent else 0, experts)


def _head(facts: _Facts, tensors: Mapping[int | None, Sequence[Tensor]]) -> Layer:
    """The layers of a head: all have attention, whatever the target's layers have, and a KV cache of their own unless
    the head reads its target's. Weights that are always loaded count with the layers.
    """
    numbers = range(facts.trunk, facts.layers)
    found = [tensor for number in range(facts.loaded, facts.layers) for tensor in tensors.get(number, [])]
    weights = sum(tensor.size for tensor in found)
    experts = sum(tensor.size for tensor in found if _EXPERTS.search(tensor.name))
    kept = [facts.kv(number) for number in numbers if facts.architecture not in ASSISTANTS]
    return Layer(weights, sum(keys for keys, _ in kept), sum(values for _, values in kept), experts=experts)


def _head_feed_forward(facts: _Facts, tensors: Mapping[int | None, Sequence[Tensor]]) -> int:
    used = {".ffn_up.": 1, ".ffn_up_exps.": facts.number("expert_used_count")}
    widths = [
        width * count
        for number in range(facts.trunk, facts.layers)
        for tensor in tensors.get(number, [])
        for part, count in used.items()
        for width in tensor.shape[1:2]
        if part in tensor.name
    ]
    return min(max(widths, default=facts.feed_forward()), MAX_DIMENSION)


def _by_layer(tensors: Iterable[Tensor]) -> dict[int | None, list[Tensor]]:
    """The tensors of each repeating layer; all others under ``None``."""
    found: defaultdict[int | None, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        match = _BLOCK_NAME.match(tensor.name)
        found[int(match[1]) if match else None].append(tensor)
    return found


def _vocabulary(header: GgufHeader, outside: Iterable[Tensor]) -> int:
    if header.tokenizer is not None:
        return header.tokenizer.size
    rows = (tensor.shape[1] for tensor in outside if tensor.name == "token_embd.weight" and len(tensor.shape) == 2)
    return next(rows, 0)
