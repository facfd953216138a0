"""Models written again with quantized weights, by llama.cpp's own call."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Literal

import llama_cpp

from app.engine.llama import backend
from app.system import KnownError

Quantization = Literal["q8_0", "q4_k_m", "q4_0"]
_QUANTIZE_BYTES = 256 * 1024 * 1024
"""The most bytes of a tensor that are in memory at once."""


def quantize(source: Path, destination: Path, kind: Quantization, threads: int) -> None:
    """Write the model ``source`` again as ``destination``, its matrices as ``kind``.

    Raises `KnownError` with llama.cpp's reason, and leaves nothing behind then.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind.upper()}")
    params.nthread = threads
    params.max_buf_size = _QUANTIZE_BYTES
    part = destination.with_name(f"{destination.name}.part")
    backend.errors.clear()
    try:
        if llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(part), ctypes.byref(params)) != 0:
            raise KnownError(f"llama.cpp couldn't write a copy of {source.name}: {backend.reason()}")
        part.replace(destination)
    finally:
        part.unlink(missing_ok=True)
