"""The devices llama.cpp can compute on, and their memory at the moment."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from llama_cpp import _ggml

from app.errors import KnownError
from app.protocol.devices import Device

CPU, GPU, INTEGRATED_GPU = 0, 1, 2
"""Kinds of devices as ggml numbers them."""


def load_backends() -> None:
    """Load what computes, where that is in libraries of its own: the best for this processor, and those for GPUs.

    So it is in packages; built from source, llama.cpp has one processor's code inside. Raises `KnownError` if nothing
    is there for this processor.
    """
    if not _handles(CPU):
        _library().ggml_backend_load_all_from_path(os.fsencode(_ggml.libggml_base_path))
    if not _handles(CPU):
        raise KnownError(
            "llama.cpp has nothing here that runs on this processor, so no model can answer. "
            "Install Slipstream again; if that changes nothing, please report it with the log."
        )


def processor_features() -> list[str]:
    """Instruction sets the code that computes was built for and this processor has, as ggml names them."""
    ggml = _library()
    name = b"ggml_backend_get_features"
    found: list[str] = []
    for handle in _handles(CPU)[:1]:
        registry = ggml.ggml_backend_dev_backend_reg(handle)
        address = ggml.ggml_backend_reg_get_proc_address(registry, name)
        if address:
            features = ctypes.CFUNCTYPE(ctypes.POINTER(_Feature), ctypes.c_void_p)(address)(registry)
            found += _named(features)
    return found


class _Feature(ctypes.Structure):
    """``ggml_backend_feature``; the last of an array has no name."""

    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p))


def _named(features: ctypes._Pointer[_Feature]) -> list[str]:
    names: list[str] = []
    while (feature := features[len(names)]).name:
        names.append(_text(feature.name))
    return names


def gpu_devices() -> list[str]:
    """Descriptions of the GPUs this build of llama.cpp can offload to; empty on a CPU build."""
    ggml = _library()
    return [_text(ggml.ggml_backend_dev_description(device)) for device in _handles(GPU, INTEGRATED_GPU)]


def devices(*kinds: int) -> list[Device]:
    """The devices of these kinds with their memory as it is now; without kinds the GPUs.

    Known after `app.engine.llama.context.start`. Asking is safe from any thread, also while llama.cpp computes. The
    first time, a CUDA device is initialized, which takes some of its memory.
    """
    return [_device(handle) for handle in _handles(*(kinds or (GPU, INTEGRATED_GPU)))]


def _device(handle: int) -> Device:
    ggml = _library()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    # Metal calls the GPU of a Mac with Apple silicon a device of its own; its memory is the system's.
    is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
    shared = is_apple or ggml.ggml_backend_dev_type(handle) == INTEGRATED_GPU
    return Device(
        name=_text(ggml.ggml_backend_dev_name(handle)),
        description=_text(ggml.ggml_backend_dev_description(handle)),
        kind="integrated" if shared else "gpu",
        total_bytes=total.value,
        free_bytes=min(free.value, total.value),
    )


def _handles(*kinds: int) -> list[int]:
    ggml = _library()
    found = (ggml.ggml_backend_dev_get(index) for index in range(ggml.ggml_backend_dev_count()))
    return [handle for handle in found if ggml.ggml_backend_dev_type(handle) in kinds]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


@cache
def _library() -> ctypes.CDLL:
    ggml: ctypes.CDLL = _ggml.libggml
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load_all_from_path.restype = None
    ggml.ggml_backend_dev_backend_reg.argtypes = [ctypes.c_void_p]
    ggml.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
    ggml.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    ggml.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
    for name in ("name", "description", "type"):
        getattr(ggml, f"ggml_backend_dev_{name}").argtypes = [ctypes.c_void_p]
    for name in ("name", "description"):
        getattr(ggml, f"ggml_backend_dev_{name}").restype = ctypes.c_char_p
    sizes = ctypes.POINTER(ctypes.c_size_t)
    ggml.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, sizes, sizes]
    ggml.ggml_backend_dev_memory.restype = None
    return ggml
