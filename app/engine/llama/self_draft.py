"""Experimental: a draft model cut from the target's own first layers, by llama.cpp's own quantization call.

The embedding, the output norm and the head stay, so vocabulary and shape fit; nothing is trained afterwards. Layers are
made to be followed by the others, so what comes out after a few of them is seldom close to the target's choice: measure
it before using it.

llama.cpp renames the layers and counts them anew, but leaves lists with one entry a layer as they are, and then cannot
load the file: architectures whose files have such lists cannot be cut. Layers that predict further tokens (MTP) are at
the end, so they are always cut off.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import llama_cpp

from app import words
from app.engine.llama import backend
from app.engine.llama.backend import default_threads
from app.engine.llama.model import Model
from app.models.gguf import GgufHeader, check_loadable, read_header
from app.models.gguf_parser import Array
from app.models.pairing import compare
from app.protocol.options import Quantization
from app.system import KnownError

_FULL_PRECISION = {"F32", "F16", "BF16"}
_BITS: dict[Quantization, float] = {"q8_0": 8.5, "q4_k_m": 5.0, "q4_0": 4.6}
"""Bits per weight, for checking whether there is enough disk space."""
_SPARE_BYTES = 16 * 1024 * 1024
_LAYER = re.compile(r"^blk\.(\d+)\.")
_LONGEST_NAME = 127
_QUANTIZE_BYTES = 256 * 1024 * 1024
"""The most bytes of a tensor that are in memory at once during quantization."""


def layers_to_choose(target: Path) -> int:
    """The most layers a draft of ``target`` can have. Raises `KnownError` if none can be cut from it."""
    return _own_layers(_cuttable(target)) - 1


def cut(target: Path, layers: int, destination: Path, quantization: Quantization | None, threads: int) -> None:
    """Write the first ``layers`` of ``target`` as a model of its own, checked to load and to fit ``target`` as a draft.

    ``quantization`` of ``None`` leaves the weights as they are; 0 ``threads`` are as many as there are cores. Raises
    `KnownError`, and leaves nothing behind then.
    """
    header = _cuttable(target)
    most = _own_layers(header) - 1
    if not 1 <= layers <= most:
        only = f"from 1 to {most}" if most > 1 else "1"
        raise KnownError(f"{target.name} has {most + 1} layers, so a draft can have {only} of them, not {layers}.")
    _check_quantization(header, quantization)
    check_destination(destination)
    _check_free_space(header, layers, destination, quantization)
    made = destination.with_name(f".{destination.name}")  # not yet: nobody should open it before it has been checked
    try:
        _write(header, layers, made, quantization, threads or default_threads())
        _check_result(header, layers, made)
        made.replace(destination)
    except OSError as error:
        raise KnownError(f"{destination} can't be written: {error.strerror or error}.") from error
    finally:
        made.unlink(missing_ok=True)


def _write(header: GgufHeader, layers: int, made: Path, quantization: Quantization | None, threads: int) -> None:
    name = f"{header.name} (first {layers} layers)".encode()[:_LONGEST_NAME].decode("utf-8", "ignore")
    metadata: dict[str, int | str] = {"general.name": name}
    if header.mtp_layers:
        metadata[f"{header.architecture}.nextn_predict_layers"] = 0
    backend.start()
    behind = range(layers, header.layers)
    quantize(header.path, made, quantization, threads, without_layers=behind, metadata=metadata)


def _own_layers(header: GgufHeader) -> int:
    return header.layers - header.mtp_layers


def _cuttable(target: Path) -> GgufHeader:
    """The header of ``target``. Raises `KnownError` if no draft can be cut from it."""
    header = read_header(target)
    check_loadable(header)
    verdict = compare(header, header)
    if not verdict.fits:
        raise KnownError(verdict.reason)
    if _own_layers(header) < 2:
        raise KnownError(f"{header.path.name} has only one layer, so none can be left out.")
    for key, value in header.metadata.items():
        if isinstance(value, Array) and value.count == header.layers and key.startswith(f"{header.architecture}."):
            raise KnownError(
                f"Models of the architecture {header.architecture} can't be cut: {header.path.name} describes each "
                f"layer separately ({key}), which llama.cpp can't shorten."
            )
    return header


def _check_quantization(header: GgufHeader, quantization: Quantization | None) -> None:
    if quantization and not {tensor.type for tensor in header.tensors} <= _FULL_PRECISION:
        raise KnownError(
            f"{header.path.name} is already quantized ({header.quantization}), and doing it twice would cost more "
            "than it saves. Leave out --quantize: the draft then has the same quantization as the target."
        )


def check_destination(destination: Path) -> None:
    """Raises `KnownError` if no new file can be created there."""
    if destination.exists():
        raise KnownError(f"{destination} already exists. Choose a different file with --output, or remove this one.")
    if not destination.parent.is_dir():
        raise KnownError(
            f"The folder {destination.parent} doesn't exist. Create it, or choose a different file with --output."
        )


def _check_free_space(header: GgufHeader, layers: int, destination: Path, quantization: Quantization | None) -> None:
    tensors = [tensor for tensor in header.tensors if not (m := _LAYER.match(tensor.name)) or int(m[1]) < layers]
    needed = sum(tensor.size for tensor in tensors)
    if quantization:
        needed = min(needed, int(sum(tensor.elements for tensor in tensors) * _BITS[quantization] / 8))
    needed += _SPARE_BYTES
    free = shutil.disk_usage(destination.parent).free
    if free < needed:
        raise KnownError(
            f"The draft needs about {words.size(needed)}, but {destination.parent} has only "
            f"{words.size(free)} left. Free up some space, or choose a different file with --output."
        )


def _check_result(target: GgufHeader, layers: int, made: Path) -> None:
    """llama.cpp doesn't notice when a disk is full, and doesn't know which models it can cut."""
    try:
        header = read_header(made)
        check_loadable(header)
        Model(made, 0, lambda _: True).close()
    except KnownError as error:
        full = shutil.disk_usage(made.parent).free < _SPARE_BYTES
        why = f"{made.parent} is full" if full else str(error).replace(made.name, "the result")
        raise KnownError(f"{target.path.name} couldn't be cut to its first {layers} layers: {why}") from error
    verdict = compare(target, header)
    if header.layers != layers or not verdict.fits:
        raise KnownError(f"{target.path.name} couldn't be cut to its first {layers} layers. {verdict.reason}")


def quantize(
    source: Path,
    destination: Path,
    kind: Quantization | None,
    threads: int,
    *,
    without_layers: Sequence[int] = (),
    metadata: Mapping[str, int | str] | None = None,
) -> None:
    """Write the model ``source`` again as ``destination``, its matrices as ``kind``, or as they are for ``None``.

    Of ``without_layers`` nothing is written and the layers behind them move up; ``metadata`` changes or adds values
    (texts of at most 127 bytes). Raises `KnownError` with llama.cpp's reason, and leaves nothing behind then. A disk
    that fills up is not always noticed: check what was written.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.only_copy = kind is None
    if kind is not None:
        params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    params.nthread = threads
    params.max_buf_size = _QUANTIZE_BYTES
    if without_layers:
        params.prune_layers = (ctypes.c_int32 * (len(without_layers) + 1))(*without_layers, -1)
    if metadata:
        params.kv_overrides = _overrides(metadata)
    part = destination.with_name(f"{destination.name}.part")
    backend.errors.clear()
    try:
        if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.byref(params)) != 0:
            reason = "the disk may be full" if "iostream error" in backend.reason() else backend.reason()
            raise KnownError(f"llama.cpp couldn't write a copy of {source.name}: {reason}")
        part.replace(destination)
    finally:
        part.unlink(missing_ok=True)


def _overrides(metadata: Mapping[str, int | str]) -> ctypes.Array[llama_cpp.llama_model_kv_override]:
    """``metadata`` in llama.cpp's format, which ends with an entry without a key."""
    overrides = (llama_cpp.llama_model_kv_override * (len(metadata) + 1))()
    for override, (key, value) in zip(overrides, metadata.items(), strict=False):
        override.key = key.encode()
        if isinstance(value, int):
            override.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
            override.value.val_i64 = value
        else:
            override.tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
            override.value.val_str = value.encode()
    return overrides
