"""Models with random weights in the shapes of those that people run, to measure what they cost.

    python -m benchmarks.shapes NAME [--folder DIR]

NAME is ``llama-3.2-1b``, ``llama-3.1-8b``, ``qwen3.5-4b``, ``gemma4-12b`` (Q4_K_M, in the mix of llama.cpp's
``llama-quantize``) or ``gpt-oss-20b`` (MXFP4 experts, Q8_0). Prints the path; what is there already is not made again.
`benchmarks.shape_layers` says where the sizes are from, and which are assumed.

What a model writes makes no sense, and what it costs does not depend on its weights. So of each type only some thousand
short pieces of rows are computed and quantized (by llama.cpp's own function), and rows are made of them at random: no
two rows are the same, which would give tokens the same logits. Tokenizers and chat templates are from the source tree
of llama.cpp (`benchmarks.llama_cpp_tools.source`), or in ``SLIPSTREAM_VOCABULARIES``.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from llama_cpp._ggml import libggml
from numpy.typing import NDArray

from benchmarks import llama_cpp_tools
from benchmarks.shape_layers import SHAPES, ModelShape, Quantization, Tensor, Tokens

FOLDER = Path(__file__).resolve().parents[1] / "build" / "benchmarks"

Kind = gguf.GGMLQuantizationType
_PIECES = 4096
"""So many different ones are made of each type."""
_LEAST_PIECE = 256
"""How many weights a piece has at least."""
_CHUNK = 32 * 1024 * 1024
_CONTROL = gguf.TokenType.CONTROL
_FILE_TYPES = {"Q4_K_M": gguf.LlamaFileType.MOSTLY_Q4_K_M, "MXFP4": gguf.LlamaFileType.MOSTLY_MXFP4_MOE}

_quantize_chunk = libggml.ggml_quantize_chunk
_quantize_chunk.restype = ctypes.c_size_t
_quantize_chunk.argtypes = (
    *(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
)

# ---------------------------------------------------------------- types, as llama.cpp's src/llama-quant.cpp has them


def types(tensors: Iterable[Tensor], quantization: Quantization, layers: int) -> dict[str, Kind]:
    """The type of each tensor, by name. ``tensors`` are in the order of their layers."""
    tensors = list(tensors)
    is_tied = all(tensor.name != "output.weight" for tensor in tensors)
    values = [tensor.name for tensor in tensors if _is_value(tensor.name)]
    downs = [tensor.name for tensor in tensors if "ffn_down" in tensor.name]
    better = {name for place, name in enumerate(values) if _gets_more_bits(place, len(values))}
    better |= {name for place, name in enumerate(downs) if _gets_more_bits(place, layers)}
    better.add("token_embd.weight" if is_tied else "output.weight")

    def kind(tensor: Tensor) -> Kind:
        if not _is_quantized(tensor):
            return Kind.F32
        if quantization == "MXFP4":
            return Kind.MXFP4 if len(tensor.shape) == 3 else Kind.Q8_0
        if tensor.shape[-1] % 256:
            return Kind.Q8_0 if tensor.name in better else Kind.Q5_0
        return Kind.Q6_K if tensor.name in better else Kind.Q4_K

    return {tensor.name: kind(tensor) for tensor in tensors}


def _is_value(name: str) -> bool:
    return name.endswith(("attn_v.weight", "attn_qkv.weight"))


def _gets_more_bits(place: int, count: int) -> bool:
    return place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2


def _is_quantized(tensor: Tensor) -> bool:
    left = ("_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight")
    return len(tensor.shape) > 1 and tensor.name.endswith("weight") and not tensor.name.endswith(left)


# ---------------------------------------------------------------- weights


@cache
def _pieces(kind: Kind, length: int, spread: float) -> NDArray[Any]:
    """Quantized random weights, one element for each piece of ``length``."""
    random = np.random.default_rng(length)
    weights = np.ascontiguousarray(random.standard_normal((_PIECES, length), np.float32) * np.float32(spread))
    if kind is Kind.F32:
        return weights.view(f"V{4 * length}")[:, 0]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    quantized = np.empty((_PIECES, length // block * size), np.uint8)
    written = _quantize_chunk(int(kind), weights.ctypes.data, quantized.ctypes.data, 0, _PIECES, length, None)
    assert written == quantized.nbytes
    return quantized.view(f"V{quantized.shape[1]}")[:, 0]


def _piece_length(kind: Kind, columns: int) -> int:
    """The shortest length of whole blocks that isn't too short and divides a row."""
    block = gguf.GGML_QUANT_SIZES[kind][0]
    blocks = columns // block
    return next(
        (count * block for count in range(1, blocks) if blocks % count == 0 and count * block >= _LEAST_PIECE), columns
    )


def _data(tensor: Tensor, kind: Kind, random: np.random.Generator) -> Iterator[NDArray[Any]]:
    """All bytes of a tensor, some megabytes at a time."""
    if tensor.values is not None:
        yield np.ascontiguousarray(np.broadcast_to(np.float32(tensor.values), tensor.shape))
        return
    columns = tensor.shape[-1]
    length = _piece_length(kind, columns)
    pieces = _pieces(kind, length, tensor.scale * columns**-0.5)
    left = tensor.elements // length
    while left:
        count = min(left, _CHUNK // pieces.itemsize)
        yield pieces[random.integers(0, _PIECES, count, np.uint16)]
        left -= count


def _bytes(tensor: Tensor, kind: Kind) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return tensor.elements // block * size


# ---------------------------------------------------------------- tokenizers


def _add_tokens(writer: gguf.GGUFWriter, tokens: Tokens, source: Path) -> None:
    """From the folder ``source``, see `Tokens`."""
    reader = gguf.GGUFReader(source / f"ggml-vocab-{tokens.file}.gguf")
    fields = {name.removeprefix("tokenizer."): f for name, f in reader.fields.items() if name.startswith("tokenizer.")}
    texts, kinds = fields.pop("ggml.tokens").contents(), fields.pop("ggml.token_type").contents()
    words = [f"Ġword{number}" for number in range(tokens.size - len(texts))]
    texts, kinds = texts + words, kinds + [gguf.TokenType.NORMAL] * len(words)
    for token, text in tokens.special.items():
        texts[token], kinds[token] = text, _CONTROL
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    for name, value in tokens.ids.items():
        fields.pop(f"ggml.{name}", None)
        writer.add_uint32(f"tokenizer.ggml.{name}", value)
    if tokens.pre:
        fields.pop("ggml.pre", None)
        writer.add_tokenizer_pre(tokens.pre)
    if tokens.template:
        fields.pop("chat_template", None)
        writer.add_chat_template((source / "templates" / f"{tokens.template}.jinja").read_text("utf-8"))
    for name, field in fields.items():
        writer.add_key_value(f"tokenizer.{name}", field.contents(), field.types[0], sub_type=field.types[-1])


def _source() -> Path:
    return Path(os.environ.get("SLIPSTREAM_VOCABULARIES") or llama_cpp_tools.source() / "models")


# ---------------------------------------------------------------- files


def write(shape: ModelShape, path: Path, source: Path, seed: int = 0) -> None:
    """Write a model of this shape to ``path``, a part of a tensor after the other; `Tokens` come from ``source``."""
    kinds = types(shape.tensors, shape.quantization, shape.layers)
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, shape.architecture)
    writer.add_name(f"{shape.title} (random weights)")
    writer.add_file_type(int(_FILE_TYPES[shape.quantization]))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    shape.metadata(writer)
    _add_tokens(writer, shape.tokens, source)
    for tensor in shape.tensors:
        kind = kinds[tensor.name]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), _bytes(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    random = np.random.default_rng(seed)
    with part.open("ab") as output:
        for tensor in shape.tensors:
            output.write(bytes(-output.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
            for chunk in _data(tensor, kinds[tensor.name], random):
                output.write(chunk.view(np.uint8).data)
        output.write(bytes(-output.tell() % gguf.GGUF_DEFAULT_ALIGNMENT))
    part.replace(path)


def size(shape: ModelShape) -> int:
    """Bytes of its tensors."""
    kinds = types(shape.tensors, shape.quantization, shape.layers)
    return sum(_bytes(tensor, kinds[tensor.name]) for tensor in shape.tensors)


def shaped(name: str, folder: Path = FOLDER) -> Path:
    """A model of the shape ``name`` of `SHAPES`, made where it is not there. Ends the process if it doesn't fit."""
    path = folder / f"{name}.gguf"
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    shape = SHAPES[name]()
    if (free := shutil.disk_usage(folder).free) < 1.05 * size(shape):
        raise SystemExit(f"{name} takes {size(shape) / 1e9:.1f} GB, but {folder} has only {free / 1e9:.1f} GB left.")
    write(shape, path, _source())
    return path


def main(arguments: Sequence[str] | None = None) -> Path:
    """Make a model where it is missing; prints and returns its path."""
    parser = argparse.ArgumentParser(description="Models with random weights in the shapes of those that people run")
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    path = shaped(options.name, options.folder)
    print(path)
    return path


if __name__ == "__main__":
    main()
