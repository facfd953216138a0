"""Tiny Gemma 4 models, and the assistants that draft for them.

llama.cpp's generator of test models leaves both out. Names and shapes are those of its ``src/models/gemma4.cpp`` and
``gemma4-assistant.cpp``. There are three kinds: *E2B* has embeddings for each layer and layers without a KV cache of
their own; *12B* has neither; *26B-A4B* has experts, and full-attention layers with fewer KV heads and no value matrix.

An assistant is a model of a few layers that reads the KV cache of the target's last two layers and writes nothing to
it. Its input is the target's embedding of the last token, and the target's hidden state before it.

As in `tests.support.mtp_models`, a table model knows its text and its assistant is right except after certain tokens; a
random model's is right now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import CHATML_TEMPLATE, RandomWeights, Shape, Tensors, make_model, spm_vocabulary
from tests.support.mtp_models import CERTAIN, LITTLE, PUSH, SIZE, cycle, padded, write

Gemma4 = Literal["E2B", "12B", "26B-A4B"]
KINDS: tuple[Gemma4, ...] = ("E2B", "12B", "26B-A4B")
WINDOW = 32
"""Tokens a sliding-window layer looks back."""
_LAYERS = 5
_WINDOWS = (True, True, False, True, False)
"""Which of the target's layers have windows: the last one never has, and the one before it always."""
_WITHOUT_CACHE = 2
"""Of an E2B's layers, the last ones: they and the assistant use the cache of the two before them."""
_ASSISTANT_WINDOWS = (True, True, True, False)
_HEADS, _HEAD, _WINDOW_HEAD = 4, 32, 16
_PER_LAYER = 8
_EXPERTS, _EXPERTS_USED = 4, 2
_EXTRA = 32
"""By how much an assistant is wider than its target; llama.cpp refuses the same width."""


def make_gemma4(path: Path, kind: Gemma4 = "12B", *, writes: float = LITTLE / 2, **options: Any) -> Path:
    """Write a target with random weights that never ends an answer; ``options`` as for `make_model`.

    Its layers change what they get by about the share ``writes``; if that is 0, the next token depends on the last one
    alone.
    """

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _target(shape, random, kind)
        made["output.weight"][_ends(shape)] = 0.0
        return _quieted(made, writes)

    options.setdefault("width", 64)
    return _make_target(path, kind, tensors, **options)


def make_assistant(
    path: Path, kind: Gemma4 = "12B", *, width: int = 64, sharpness: float = 4.0, **options: Any
) -> Path:
    """Write an assistant for `make_gemma4` of this ``kind`` and ``width``, which thinks much like it.

    A larger ``sharpness`` makes it more certain, and changes nothing else.
    """

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        target = RandomWeights(options.get("seed", 0), 0.0)
        logits = _target(Shape(shape.vocabulary, width, _HEADS, 1, _LAYERS, 2 * width), target, kind)["output.weight"]
        logits[_ends(shape)] = 0.0
        made = _quieted(_assistant(shape, random, width), LITTLE / 2)
        hidden = LITTLE * random.matrix(shape.width, width, width**-0.5)
        embedding = padded(np.eye(width, dtype=np.float32), (shape.width, width))
        made["token_embd.weight"] = padded(np.float32(sharpness) * logits, (shape.vocabulary, shape.width))
        made["nextn.pre_projection.weight"] = np.hstack([embedding, hidden])
        made["nextn.post_projection.weight"] = np.eye(width, shape.width, dtype=np.float32)
        return made

    return _make_assistant(path, kind, tensors, width, **options)


def make_table_gemma4(path: Path, kind: Gemma4 = "12B", **options: Any) -> Path:
    """Write a target whose text is `cycle`."""

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _target(shape, random, kind)
        _silence(made)
        made["token_embd.weight"] = padded(np.eye(SIZE, dtype=np.float32), (shape.vocabulary, shape.width))
        made["output.weight"] = padded(_steps() * np.float32(CERTAIN / shape.width**0.5), (SIZE, shape.width))
        return made

    options.setdefault("width", SIZE)
    return _make_target(path, kind, tensors, sharpness=1.0, **options)


def make_table_assistant(
    path: Path, kind: Gemma4 = "12B", wrong_after: Collection[int] = (), *, width: int = SIZE, **options: Any
) -> Path:
    """Write an assistant for `make_table_gemma4` that is wrong after the tokens ``wrong_after`` only.

    It looks at the hidden state, which tells the token before the last one.
    """

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _assistant(shape, random, width)
        _silence(made)
        follows = cycle()
        push = np.zeros((SIZE, SIZE), np.float32)
        other = next(iter(follows.values()))
        for token in wrong_after:
            push[follows[other] if token == other else other, token] = PUSH
        inner = (shape.width, width)
        made["token_embd.weight"] = padded(_steps() * np.float32(CERTAIN / shape.width**0.5), (SIZE, shape.width))
        made["nextn.pre_projection.weight"] = np.hstack([padded(push, inner), padded(_steps(), inner)])
        made["nextn.post_projection.weight"] = np.eye(width, shape.width, dtype=np.float32)
        return made

    return _make_assistant(path, kind, tensors, width, **options)


def _ends(shape: Shape) -> list[int]:
    """The tokens that end an answer."""
    vocabulary = spm_vocabulary(SIZE)
    return [token for token in (vocabulary.eos, vocabulary.eot) if token is not None and token < shape.vocabulary]


def _quieted(tensors: Tensors, share: float) -> Tensors:
    """Let every layer change what it gets only by about this ``share``."""
    for name in tensors:
        if name.endswith(("post_attention_norm.weight", "post_ffw_norm.weight", "post_norm.weight")):
            tensors[name] *= np.float32(share)
    return tensors


def _steps() -> NDArray[np.float32]:
    """From each token to the one that follows it."""
    follows = cycle()
    matrix = np.zeros((SIZE, SIZE), np.float32)
    matrix[[follows[token] for token in range(SIZE)], range(SIZE)] = 1.0
    return matrix


def _silence(tensors: Tensors) -> None:
    """No layer changes what it gets."""
    write(tensors, 0.0)
    for name in tensors:
        if name.endswith(".proj.weight"):
            tensors[name] *= 0.0


# ---------------------------------------------------------------- the target


def _make_target(path: Path, kind: Gemma4, tensors: Callable[[Shape, RandomWeights], Tensors], **options: Any) -> Path:
    def metadata(writer: gguf.GGUFWriter) -> None:
        _common_metadata(writer, kind, _WINDOWS)
        writer.add_embedding_length_per_layer_input(_PER_LAYER if kind == "E2B" else 0)
        writer.add_shared_kv_layers(_WITHOUT_CACHE if kind == "E2B" else 0)
        if kind == "26B-A4B":
            writer.add_expert_count(_EXPERTS)
            writer.add_expert_used_count(_EXPERTS_USED)
            writer.add_expert_feed_forward_length(options["width"] // 2)

    return _make(path, "gemma4", metadata, tensors, layers=_LAYERS, **options)


def _target(shape: Shape, random: RandomWeights, kind: Gemma4) -> Tensors:
    width = shape.width
    tensors = {
        "token_embd.weight": random.matrix(shape.vocabulary, width, width**-0.5),
        "output.weight": random.matrix(shape.vocabulary, width, width**-0.5),
        "output_norm.weight": np.ones(width, np.float32),
        "rope_freqs.weight": _rope_factors(),
    }
    if kind == "E2B":
        inner = _PER_LAYER * shape.layers
        tensors["per_layer_token_embd.weight"] = random.matrix(shape.vocabulary, inner, _PER_LAYER**-0.5)
        tensors["per_layer_model_proj.weight"] = random.matrix(inner, width, 1.0)
        tensors["per_layer_proj_norm.weight"] = np.ones(_PER_LAYER, np.float32)
    for number, has_window in enumerate(_WINDOWS):
        block = f"blk.{number}."
        tensors |= _layer(block, shape, random, has_window)
        head, kv_heads = _WINDOW_HEAD if has_window else _HEAD, _kv_heads(kind, has_window)
        if kind != "E2B" or number < shape.layers - _WITHOUT_CACHE:
            tensors[block + "attn_k.weight"] = random.matrix(head * kv_heads, width, width**-0.5)
            tensors[block + "attn_k_norm.weight"] = np.ones(head, np.float32)
            if kind != "26B-A4B" or has_window:
                tensors[block + "attn_v.weight"] = random.matrix(head * kv_heads, width, width**-0.5)
        if kind == "E2B":
            tensors[block + "inp_gate.weight"] = random.matrix(_PER_LAYER, width, width**-0.5)
            tensors[block + "proj.weight"] = random.matrix(width, _PER_LAYER, _PER_LAYER**-0.5)
            tensors[block + "post_norm.weight"] = np.ones(width, np.float32)
        if kind == "26B-A4B":
            tensors |= _experts(block, shape, random)
    return tensors


def _experts(block: str, shape: Shape, random: RandomWeights) -> Tensors:
    width, hidden = shape.width, shape.width // 2

    def matrices(rows: int, columns: int) -> Any:
        return np.stack([random.matrix(rows, columns, columns**-0.5) for _ in range(_EXPERTS)])

    names = ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")
    return {
        **{f"{block}{name}.weight": np.ones(width, np.float32) for name in names},
        block + "ffn_gate_inp.weight": random.matrix(_EXPERTS, width, width**0.5),
        block + "ffn_gate_inp.scale": np.ones(width, np.float32),
        block + "ffn_gate_up_exps.weight": matrices(2 * hidden, width),
        block + "ffn_down_exps.weight": matrices(width, hidden),
    }


# ---------------------------------------------------------------- the assistant


def _make_assistant(
    path: Path, kind: Gemma4, tensors: Callable[[Shape, RandomWeights], Tensors], width: int, **options: Any
) -> Path:
    def metadata(writer: gguf.GGUFWriter) -> None:
        _common_metadata(writer, kind, _ASSISTANT_WINDOWS)
        writer.add_embedding_length_out(width)
        writer.add_nextn_predict_layers(len(_ASSISTANT_WINDOWS))

    layers = len(_ASSISTANT_WINDOWS)
    return _make(path, "gemma4-assistant", metadata, tensors, layers=layers, width=width + _EXTRA, **options)


def _assistant(shape: Shape, random: RandomWeights, target_width: int) -> Tensors:
    tensors = {
        "token_embd.weight": random.matrix(shape.vocabulary, shape.width, 1.0),
        "output_norm.weight": np.ones(shape.width, np.float32),
        "rope_freqs.weight": _rope_factors(),
        "nextn.pre_projection.weight": random.matrix(shape.width, 2 * target_width, target_width**-0.5),
        "nextn.post_projection.weight": random.matrix(target_width, shape.width, shape.width**-0.5),
    }
    for number, has_window in enumerate(_ASSISTANT_WINDOWS):
        block = f"blk.{number}."
        tensors |= _layer(block, shape, random, has_window)
        tensors[block + "layer_output_scale.weight"] = np.ones(1, np.float32)
    return tensors


# ---------------------------------------------------------------- both


def _make(
    path: Path,
    architecture: str,
    metadata: Callable[[gguf.GGUFWriter], None],
    tensors: Callable[[Shape, RandomWeights], Tensors],
    **options: Any,
) -> Path:
    options = {
        "weights": "F32",
        "heads": _HEADS,
        "context_length": 2048,
        "vocabulary": spm_vocabulary(SIZE),
        "chat_template": CHATML_TEMPLATE,
        **options,
    }
    return make_model(path, architecture=architecture, edit=metadata, tensors=tensors, **options)


def _kv_heads(kind: Gemma4, has_window: bool) -> int:
    return 2 if has_window and kind != "E2B" else 1


def _common_metadata(writer: gguf.GGUFWriter, kind: Gemma4, windows: Collection[bool]) -> None:
    for name in ("rope.dimension_count", "attention.head_count_kv"):
        del writer.kv_data[0][f"{writer.arch}.{name}"]
    writer.add_head_count_kv([_kv_heads(kind, has_window) for has_window in windows])
    writer.add_sliding_window(WINDOW)
    writer.add_sliding_window_pattern(list(windows))
    writer.add_rope_dimension_count(_HEAD)
    writer.add_rope_dimension_count_swa(_WINDOW_HEAD)
    writer.add_rope_freq_base_swa(10000.0)
    writer.add_key_length(_HEAD)
    writer.add_value_length(_HEAD)
    writer.add_key_length_swa(_WINDOW_HEAD)
    writer.add_value_length_swa(_WINDOW_HEAD)


def _rope_factors() -> NDArray[np.float32]:
    """The first quarter of the dimensions is rotated, the others aren't."""
    quarter = _HEAD // 2 // 4
    return np.array([1.0] * quarter + [1e30] * (_HEAD // 2 - quarter), np.float32)


def _layer(block: str, shape: Shape, random: RandomWeights, has_window: bool) -> Tensors:
    """What a layer has in both, without keys and values."""
    width, hidden, head = shape.width, shape.feed_forward, _WINDOW_HEAD if has_window else _HEAD
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    return {
        **{f"{block}{name}.weight": np.ones(width, np.float32) for name in norms},
        block + "attn_q.weight": random.matrix(head * _HEADS, width, width**-0.5),
        block + "attn_q_norm.weight": np.ones(head, np.float32),
        block + "attn_output.weight": random.matrix(width, head * _HEADS, (head * _HEADS) ** -0.5),
        block + "ffn_gate.weight": random.matrix(hidden, width, width**-0.5),
        block + "ffn_up.weight": random.matrix(hidden, width, width**-0.5),
        block + "ffn_down.weight": random.matrix(width, hidden, hidden**-0.5),
    }
