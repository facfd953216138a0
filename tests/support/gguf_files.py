"""GGUF files for tests, written with the ``gguf`` library: tiny llama models that really load and decode."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Token types as GGUF numbers them."""

CHATML_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Weights = Literal["F32", "F16", "Q8_0"]
Tensors = dict[str, NDArray[np.float32]]
"""By name; matrices are (rows, columns) = (outputs, inputs)."""
_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}


@dataclass
class Vocabulary:
    """A tokenizer as it goes into a file."""

    tokens: list[str]
    types: list[int]
    scores: list[float] | None = None
    model: str = "llama"
    pre: str = "default"
    merges: list[str] = field(default_factory=list)
    bos: int | None = 1
    eos: int | None = 2
    eot: int | None = None
    add_bos: bool | None = True
    add_eos: bool | None = False


def spm_vocabulary(size: int = 512) -> Vocabulary:
    """A SentencePiece vocabulary of exactly ``size`` (at least 360) tokens that can spell any text.

    Ids 0–2 are unknown, BOS and EOS; 3–258 the bytes; then the space, printable ASCII and ChatML's markers (control
    tokens); then pairs of letters. Characters outside ASCII are spelled with bytes, so they are split over tokens.
    """
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256]
    plain = ["▁", *map(chr, range(33, 127))]
    tokens += [*plain, "<|im_start|>", "<|im_end|>"]
    types += [*[NORMAL] * len(plain), CONTROL, CONTROL]
    if size < len(tokens):
        raise ValueError(f"a vocabulary that can spell any text has at least {len(tokens)} tokens")
    longer = _syllables(size - len(tokens))
    end_of_turn = len(tokens) - 1
    tokens += longer
    types += [NORMAL] * len(longer)
    scores = [0.0 if kind != NORMAL else -float(index) for index, kind in enumerate(types)]
    return Vocabulary(tokens, types, scores, eot=end_of_turn)


def bpe_vocabulary(size: int = 512) -> Vocabulary:
    """A byte-level BPE vocabulary (``gpt2``) of exactly ``size`` (at least 260) tokens that can spell any text.

    Ids 0–2 are end of text, and ChatML's markers; then the 256 bytes in GPT-2's spelling; then pairs of letters.
    """
    markers = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = [*markers, *_gpt2_bytes()]
    if size < len(tokens):
        raise ValueError(f"a vocabulary that can spell any text has at least {len(tokens)} tokens")
    pairs = [pair for pair in _syllables(4 * size) if len(pair) == 2 and pair.isascii()][: size - len(tokens)]
    filler = [f"<|unused{index}|>" for index in range(size - len(tokens) - len(pairs))]
    tokens += [*pairs, *filler]
    types = [*[CONTROL] * len(markers), *[NORMAL] * (256 + len(pairs)), *[CONTROL] * len(filler)]
    merges = [" ".join(pair) for pair in pairs]
    return Vocabulary(tokens, types, None, "gpt2", "gpt-2", merges, bos=0, eos=0, eot=2, add_bos=False)


def _syllables(count: int) -> list[str]:
    """``count`` different letter groups, shortest first; the last ones are numbered."""
    letters = "etaoinshrdlcumwfgypbvk"
    pairs = [first + second for first in letters for second in letters]
    pairs += ["▁" + pair for pair in pairs]
    return pairs[:count] + [f"▁word{index}" for index in range(count - len(pairs))]


def _gpt2_bytes() -> list[str]:
    """The 256 bytes as GPT-2 spells them: printable ones as themselves, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; ``kv_heads`` of its attention layers."""

    vocabulary: int
    width: int
    heads: int
    kv_heads: int
    layers: int
    feed_forward: int


class RandomWeights:
    """Normal random numbers, blurred by ``noise`` (a share of their spread) with others."""

    def __init__(self, seed: int, noise: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._blur = np.random.default_rng(seed + 1_000_003)
        self._noise = noise

    def matrix(self, rows: int, columns: int, spread: float) -> NDArray[np.float32]:
        """Shape (rows, columns), mean 0, standard deviation ``spread``."""
        values = self._rng.normal(0.0, spread, (rows, columns))
        return (values + self._noise * self._blur.normal(0.0, spread, (rows, columns))).astype(np.float32)


def make_model(
    path: Path,
    *,
    architecture: str = "llama",
    name: str | None = None,
    vocabulary: Vocabulary | None = None,
    tokens: Iterable[str] | None = None,
    vocab_size: int = 512,
    tokenizer: Literal["llama", "gpt2"] = "llama",
    width: int = 64,
    heads: int = 2,
    kv_heads: int | None = None,
    layers: int = 2,
    feed_forward: int | None = None,
    context_length: int = 512,
    weights: Weights = "F16",
    seed: int = 0,
    noise: float = 0.0,
    sharpness: float = 4.0,
    chat_template: str | None = None,
    edit: Callable[[gguf.GGUFWriter], None] | None = None,
    tensors: Callable[[Shape, RandomWeights], Tensors] | None = None,
    with_tensors: bool = True,
    max_tensors_per_file: int = 0,
) -> Path:
    """Write a small model with random weights to ``path`` and return it; loads in llama.cpp within milliseconds.

    ``tokens`` spells the vocabulary's tokens otherwise and then sets its size. ``noise`` blurs the weights ``seed``
    gives by that share of their spread: a draft with the target's seed agrees with its greedy choice about 0.85 of the
    time with noise 0.02, 0.65 with 0.05, 0.4 with 0.1, 0.2 with 0.2. A larger ``sharpness`` makes the next token more
    certain. ``edit`` may add metadata before it is written, or take some away. ``tensors`` makes those of an
    architecture that is not built like llama (see `tests.support.architectures`). Without tensors it is a vocabulary
    file. With a limit of tensors per file the model is split, and the path of its first part is returned.
    """
    vocabulary = vocabulary or _chosen_vocabulary(tokenizer, tokens, vocab_size)
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=max_tensors_per_file)
    writer.add_name(name or path.stem)
    writer.add_file_type(_FILE_TYPES[weights])
    _add_shape(writer, width, heads, kv_heads or heads, layers, feed_forward or 2 * width, context_length)
    writer.add_vocab_size(len(vocabulary.tokens))
    _add_vocabulary(writer, vocabulary)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    if edit is not None:
        edit(writer)
    if with_tensors:
        shape = Shape(len(vocabulary.tokens), width, heads, kv_heads or heads, layers, feed_forward or 2 * width)
        made = (tensors or llama_weights)(shape, RandomWeights(seed, noise))
        if "output.weight" in made:
            made["output.weight"] *= np.float32(sharpness)
        for tensor_name, array in made.items():
            _add_tensor(writer, tensor_name, array, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return next(path.parent.glob(f"{path.stem}-00001-of-*.gguf")) if max_tensors_per_file else path


def make_vocabulary_file(path: Path, **options: Any) -> Path:
    """A file with a tokenizer and no weights, like llama.cpp's ``ggml-vocab-*.gguf``."""
    return make_model(path, with_tensors=False, **options)


def _chosen_vocabulary(tokenizer: str, tokens: Iterable[str] | None, size: int) -> Vocabulary:
    spelled = list(tokens) if tokens is not None else None
    size = len(spelled) if spelled is not None else size
    vocabulary = spm_vocabulary(size) if tokenizer == "llama" else bpe_vocabulary(size)
    if spelled is not None:
        vocabulary.tokens = spelled
    return vocabulary


def _add_shape(
    writer: gguf.GGUFWriter, width: int, heads: int, kv_heads: int, layers: int, feed_forward: int, context: int
) -> None:
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)


def _add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    if vocabulary.scores is not None:
        writer.add_token_scores(vocabulary.scores)
    if vocabulary.merges or vocabulary.model == "gpt2":
        writer.add_token_merges(vocabulary.merges or ["e t"])
    if vocabulary.bos is not None:
        writer.add_bos_token_id(vocabulary.bos)
    if vocabulary.eos is not None:
        writer.add_eos_token_id(vocabulary.eos)
    if vocabulary.eot is not None:
        writer.add_eot_token_id(vocabulary.eot)
    if vocabulary.add_bos is not None:
        writer.add_add_bos_token(vocabulary.add_bos)
    if vocabulary.add_eos is not None:
        writer.add_add_eos_token(vocabulary.add_eos)


def llama_weights(shape: Shape, random: RandomWeights) -> Tensors:
    """All tensors of a llama model."""
    tensors = {"token_embd.weight": random.matrix(shape.vocabulary, shape.width, 1.0)}
    for layer in range(shape.layers):
        tensors |= attention(f"blk.{layer}.", shape, random) | feed_forward(f"blk.{layer}.", shape, random)
    return tensors | output(shape, random)


def attention(block: str, shape: Shape, random: RandomWeights) -> Tensors:
    """The attention of a llama layer, with the norm before it."""
    width, kv_width, inner = shape.width, shape.width // shape.heads * shape.kv_heads, shape.width**-0.5
    return {
        block + "attn_norm.weight": np.ones(width, np.float32),
        block + "attn_q.weight": random.matrix(width, width, 2 * inner),
        block + "attn_k.weight": random.matrix(kv_width, width, 2 * inner),
        block + "attn_v.weight": random.matrix(kv_width, width, inner),
        block + "attn_output.weight": random.matrix(width, width, inner),
    }


def feed_forward(block: str, shape: Shape, random: RandomWeights) -> Tensors:
    """The feed-forward part of a llama layer, with the norm before it."""
    width, hidden, inner = shape.width, shape.feed_forward, shape.width**-0.5
    return {
        block + "ffn_norm.weight": np.ones(width, np.float32),
        block + "ffn_gate.weight": random.matrix(hidden, width, inner),
        block + "ffn_up.weight": random.matrix(hidden, width, inner),
        block + "ffn_down.weight": random.matrix(width, hidden, hidden**-0.5),
    }


def output(shape: Shape, random: RandomWeights) -> Tensors:
    """The last norm and the matrix that gives the logits."""
    return {
        "output_norm.weight": np.ones(shape.width, np.float32),
        "output.weight": random.matrix(shape.vocabulary, shape.width, shape.width**-0.5),
    }


_ALWAYS_F32 = ("ssm_conv1d.weight", "ssm_a", "ssm_d", "ssm_norm.weight", "shortconv.conv.weight")


def _add_tensor(writer: gguf.GGUFWriter, name: str, array: NDArray[np.float32], weights: Weights) -> None:
    """Matrices in the asked type, norms and what state layers hold besides in F32, as llama.cpp's converters do."""
    if array.ndim == 1 or weights == "F32" or name.endswith(_ALWAYS_F32):
        writer.add_tensor(name, array)
    elif weights == "F16":
        writer.add_tensor(name, array.astype(np.float16))
    else:
        kind = gguf.GGMLQuantizationType[weights]
        writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
