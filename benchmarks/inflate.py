"""Pairs to measure on: the guide with the same function at a real model's cost, and one with a large vocabulary.

    python -m benchmarks.inflate [--source FILE] [--folder DIR] [--parameters N] [--quantize q8_0|q4_k_m|q4_0]
    python -m benchmarks.inflate --vocabulary [--folder DIR]

Both forms print the paths of target and draft; what is there already is not made again.

Inflating a model of the ``llama`` architecture leaves every logit as it is, rounding aside:

- The residual stream gets more dimensions, which stay zero: nothing writes to them. A root mean square over E′ instead
  of E of them is smaller by √(E/E′), so all norm weights are multiplied by that and the norm's epsilon by E/E′.
- New attention heads, feed-forward rows and layers compute on random weights, as a real model would, and write nothing:
  their part of ``attn_output`` and ``ffn_down`` is zero.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import gguf
import numpy as np
from numpy.typing import NDArray

from app import system
from app.engine.llama import backend
from app.engine.llama.backend import default_threads
from benchmarks.quantizing import Quantization, quantize
from tests.support.gguf_files import CHATML_TEMPLATE, make_model

GUIDE = [system.resource("guide", name) for name in ("guide-target.gguf", "guide-draft.gguf")]
FOLDER = Path(__file__).resolve().parents[1] / "build" / "benchmarks"
PARAMETERS = 600_000_000
VOCABULARY = 152_000

_AT_ONCE = min(os.cpu_count() or 1, 16)
_BLOCK = 256  # the longest block of llama.cpp's quantizations: rows that are no multiple of it fall back to another one
_SIZES = ((4_000_000_000, 4096, 14336), (0, 1024, 2816))
"""From how many parameters on a model has which width and feed-forward width: those of real models of that size."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a ``llama`` model. ``head_size`` is the same for queries, keys and values."""

    width: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    layers: int

    @property
    def attention(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_size

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer, norms left out."""
        return sum(rows * columns for rows, columns in self.matrices().values())

    def matrices(self) -> dict[str, tuple[int, int]]:
        """The matrices of a layer as (outputs, inputs)."""
        kv = self.kv_heads * self.head_size
        return {
            "attn_q": (self.attention, self.width),
            "attn_k": (kv, self.width),
            "attn_v": (kv, self.width),
            "attn_output": (self.width, self.attention),
            "ffn_gate": (self.feed_forward, self.width),
            "ffn_up": (self.feed_forward, self.width),
            "ffn_down": (self.width, self.feed_forward),
        }


_WRITING = ("attn_output", "ffn_down")
_NORMS = ("attn_norm", "ffn_norm")


def read_shape(reader: gguf.GGUFReader) -> Shape:
    """The shape of a file. Raises ValueError for another architecture than ``llama``."""
    architecture = _value(reader, "general.architecture")
    if architecture != "llama":
        raise ValueError(f"only models of the llama architecture can be inflated, not {architecture}")
    width, heads = _value(reader, "llama.embedding_length"), _value(reader, "llama.attention.head_count")
    return Shape(
        width=width,
        heads=heads,
        kv_heads=_value(reader, "llama.attention.head_count_kv", heads),
        head_size=_value(reader, "llama.attention.key_length", width // heads),
        feed_forward=_value(reader, "llama.feed_forward_length"),
        layers=_value(reader, "llama.block_count"),
    )


def grown(old: Shape, vocabulary: int, parameters: int = PARAMETERS) -> Shape:
    """A shape that holds ``old`` and has about ``parameters`` weights, ``vocabulary`` tied embeddings among them."""
    least_width, least_feed_forward = next(sizes for least, *sizes in _SIZES if parameters >= least)
    width = max(least_width, _whole_blocks(old.width))
    group = old.heads // old.kv_heads
    heads = old.heads
    while heads * old.head_size < width or heads * old.head_size % _BLOCK:
        heads += group
    feed_forward = max(least_feed_forward, _whole_blocks(old.feed_forward))
    layer = Shape(width, heads, heads // group, old.head_size, feed_forward, 1)
    layers = round((parameters - vocabulary * width) / layer.layer_parameters)
    return Shape(width, heads, heads // group, old.head_size, feed_forward, max(layers, old.layers))


def _whole_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def inflate(source: Path, destination: Path, shape: Shape) -> None:
    """Write the model in ``source`` again as ``shape`` to ``destination``, matrices in F16, one tensor after the other.

    Tokenizer, chat template and all other metadata are kept. Raises ValueError when ``shape`` cannot hold the model or
    the model has tensors this recipe does not know (biases, experts).
    """
    reader = gguf.GGUFReader(source)
    old = read_shape(reader)
    _check(old, shape)
    tensors = list(_plan(reader, old, shape))
    part = destination.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    _copy_metadata(reader, writer, old, shape)
    for tensor in tensors:
        nbytes = int(np.prod(tensor.shape)) * tensor.dtype.itemsize
        writer.add_tensor_info(tensor.name, tensor.shape, tensor.dtype, nbytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in _made(tensors):
        writer.write_tensor_data(data)
    writer.close()
    part.replace(destination)


def _check(old: Shape, new: Shape) -> None:
    if old.head_size != new.head_size or old.heads * new.kv_heads != new.heads * old.kv_heads:
        raise ValueError("head size and heads per KV head have to stay the same")
    names = ("width", "heads", "feed_forward", "layers")
    if any(getattr(new, name) < getattr(old, name) for name in names):
        raise ValueError(f"{new} cannot hold {old}")


# ---------------------------------------------------------------- metadata


def _value(reader: gguf.GGUFReader, key: str, default: int | str | None = None) -> Any:
    field = reader.get_field(key)
    value = default if field is None else field.contents()
    if value is None or isinstance(value, list):
        raise ValueError(f"{key} has to be one value for all layers")
    return value


def _copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, old: Shape, new: Shape) -> None:
    epsilon = "llama.attention.layer_norm_rms_epsilon"
    changed: dict[str, int | float | str] = {
        "general.name": f"{_value(reader, 'general.name', 'Model')} (inflated)",
        "general.file_type": int(gguf.LlamaFileType.MOSTLY_F16),
        "llama.embedding_length": new.width,
        "llama.block_count": new.layers,
        "llama.feed_forward_length": new.feed_forward,
        "llama.attention.head_count": new.heads,
        "llama.attention.head_count_kv": new.kv_heads,
        "llama.attention.key_length": new.head_size,
        "llama.attention.value_length": new.head_size,
        epsilon: _value(reader, epsilon) * old.width / new.width,
    }
    kinds = {str: gguf.GGUFValueType.STRING, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}
    for key, value in changed.items():
        writer.add_key_value(key, value, kinds[type(value)])
    dropped = {"general.architecture", "general.size_label", "general.quantization_version", "general.alignment"}
    for name, field in reader.fields.items():
        contents = field.contents()
        if not name.startswith("GGUF.") and name not in changed.keys() | dropped and contents != []:
            writer.add_key_value(name, contents, field.types[0], sub_type=field.types[-1])


# ---------------------------------------------------------------- tensors


@dataclass(frozen=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], NDArray[Any]]


def _plan(reader: gguf.GGUFReader, old: Shape, new: Shape) -> Iterator[_Tensor]:
    """All tensors of the new file in their order; nothing is computed before `_Tensor.make`."""
    rest = {tensor.name: tensor for tensor in reader.tensors}
    norm_scale = (old.width / new.width) ** 0.5

    def matrix(name: str, shape: tuple[int, int], seed: int | None) -> _Tensor:
        return _Tensor(name, shape, np.dtype(np.float16), partial(_matrix, rest.pop(name, None), shape, seed))

    def norm(name: str) -> _Tensor:
        make = partial(_norm, rest.pop(name, None), new.width, norm_scale)
        return _Tensor(name, (new.width,), np.dtype(np.float32), make)

    for name in ("token_embd.weight", "output.weight"):
        if name in rest:
            yield matrix(name, (rest[name].data.shape[0], new.width), None)
    yield norm("output_norm.weight")
    if (factors := rest.pop("rope_freqs.weight", None)) is not None:
        yield _Tensor(factors.name, factors.data.shape, np.dtype(np.float32), partial(_floats, factors))
    for layer in range(new.layers):
        for part in _NORMS:
            yield norm(f"blk.{layer}.{part}.weight")
        for number, (part, shape) in enumerate(new.matrices().items()):
            seed = None if part in _WRITING else layer * len(new.matrices()) + number
            yield matrix(f"blk.{layer}.{part}.weight", shape, seed)
    if rest:
        raise ValueError(f"no recipe to inflate {', '.join(sorted(rest))}")


def _made(tensors: Iterable[_Tensor]) -> Iterator[NDArray[Any]]:
    """The data of the tensors, in order; a few are made at the same time, and no more are kept in memory."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pending: deque[Future[NDArray[Any]]] = deque()
        for tensor in tensors:
            pending.append(pool.submit(tensor.make))
            if len(pending) == _AT_ONCE:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _floats(tensor: gguf.ReaderTensor) -> NDArray[np.float32]:
    return np.asarray(gguf.quants.dequantize(tensor.data, tensor.tensor_type), np.float32)


def _matrix(old: gguf.ReaderTensor | None, shape: tuple[int, int], seed: int | None) -> NDArray[np.float16]:
    """``old`` in the corner of a matrix that is otherwise random, or zero without a ``seed``."""
    if seed is None:
        matrix = np.zeros(shape, np.float16)
    else:
        spread = np.float32(shape[1] ** -0.5)
        random = np.random.default_rng(seed).standard_normal(shape, np.float32)
        matrix = np.multiply(random, spread, out=random).astype(np.float16)
    if old is not None:
        rows, columns = (int(size) for size in reversed(old.shape))
        matrix[:rows, :columns] = _floats(old)
    return matrix


def _norm(old: gguf.ReaderTensor | None, width: int, scale: float) -> NDArray[np.float32]:
    norm = np.full(width, scale, np.float32)
    if old is not None:
        norm[: len(old.data)] = _floats(old) * scale
    return norm


# ---------------------------------------------------------------- files, made once


def inflated(
    source: Path = GUIDE[0],
    folder: Path = FOLDER,
    parameters: int = PARAMETERS,
    quantization: Quantization | None = None,
    threads: int | None = None,
) -> Path:
    """The inflated ``source`` in ``folder``, made where it is not there; a changed source has another file name."""
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(source)
    vocabulary = next(t.data.shape[0] for t in reader.tensors if t.name == "token_embd.weight")
    shape = grown(read_shape(reader), vocabulary, parameters)
    stem = f"inflated-{shape.width}x{shape.layers}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    path, full = (folder / f"{stem}-{kind}.gguf" for kind in (quantization or "f16", "f16"))
    if path.is_file():
        return path
    if not full.is_file():
        inflate(source, full, shape)
    return quantized(full, path, quantization, threads) if quantization else path


def quantized(source: Path, path: Path, quantization: Quantization, threads: int | None = None) -> Path:
    """``source`` with its matrices quantized, at ``path``; made where it is not there."""
    if not path.is_file():
        backend.start()
        quantize(source, path, quantization, threads or default_threads())
    return path


def shuffled(source: Path, folder: Path = FOLDER) -> Path:
    """A model that costs as much as ``source`` and knows nothing: the rows of its matrices change places; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"shuffled-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.gguf"
    if not path.is_file():
        part = path.with_suffix(".part")
        shutil.copyfile(source, part)
        reader = gguf.GGUFReader(part, "r+")
        for number, tensor in enumerate(reader.tensors):
            if tensor.data.ndim == 2:
                tensor.data[:] = np.random.default_rng(number).permutation(tensor.data)
        reader.data.flush()
        part.replace(path)
    return path


def vocabulary_pair(folder: Path = FOLDER, size: int = VOCABULARY) -> tuple[Path, Path]:
    """A pair with random weights and ``size`` tokens, on which sampling costs more than the model; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = folder / f"vocabulary-{size}-target.gguf", folder / f"vocabulary-{size}-draft.gguf"
    for path, noise in zip(pair, (0.0, 0.05), strict=True):
        if not path.is_file():
            part = path.with_suffix(".part")
            make_model(
                part, vocab_size=size, context_length=2048, chat_template=CHATML_TEMPLATE, noise=noise, name=path.stem
            )
            part.replace(path)
    return pair


def main(arguments: Sequence[str] | None = None) -> tuple[Path, Path]:
    """Make a pair where it is missing; prints and returns target and draft."""
    parser = argparse.ArgumentParser(description="Pairs to measure on")
    parser.add_argument("--source", type=Path, default=GUIDE[0], help="the target to inflate")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--parameters", type=int, default=PARAMETERS)
    parser.add_argument("--quantize", choices=get_args(Quantization))
    parser.add_argument("--vocabulary", action="store_true", help=f"random weights and {VOCABULARY:,} tokens instead")
    options = parser.parse_args(arguments)
    if options.vocabulary:
        pair = vocabulary_pair(options.folder)
    else:
        target = inflated(options.source, options.folder, options.parameters, options.quantize)
        pair = target, options.source.with_name(GUIDE[1].name)
    print(*pair, sep="\n")
    return pair


if __name__ == "__main__":
    main()
