"""llama.cpp as a whole: started once per process; its devices, its log, and its reasons for failures."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import re
import subprocess
import sys
from bisect import bisect
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llama_cpp
from llama_cpp import _ggml

from app.errors import KnownError
from app.program import windows_program
from app.protocol.devices import Device

log = logging.getLogger("slipstream.llama")

_LOG_INFO, _LOG_WARN, _LOG_ERROR = 2, 3, 4
errors: deque[str] = deque(maxlen=5)
"""Errors since the list was last cleared, the most recent last."""
_WHERE_AND_WHAT = re.compile(r"^(\w+: )?(error loading model: )*")
"""What llama.cpp writes before a reason: its own function and, once or twice, what it was doing."""
_LOADED_VARIANT = re.compile(rb"loaded CPU backend from .*ggml-cpu-([\w.]+)\.[a-z]+\s*$")
_variant = ""
"""The variant of llama.cpp's CPU library in use; empty if there is only one."""
CPU, GPU, INTEGRATED_GPU = 0, 1, 2
"""Kinds of devices, by ggml's numbers."""
_NVIDIA_VERSION = Path("/proc/driver/nvidia/version")
_NVIDIA_MODULE = re.compile(r"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s")
"""The line reads ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar …``, or ``… UNIX Open Kernel
Module for x86_64  570.86.15  Release Build …``."""
_DRIVER_SECONDS = 10.0
_MOST_TENSOR_BYTES = 16 * 1024**4
_SIZE = ctypes.POINTER(ctypes.c_size_t)


class _InitParams(ctypes.Structure):
    """ggml's ``ggml_init_params``."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


_SIGNATURES: dict[str, tuple[object, ...]] = {
    "ggml_backend_dev_count": (ctypes.c_size_t,),
    "ggml_backend_dev_get": (ctypes.c_void_p, ctypes.c_size_t),
    "ggml_backend_dev_name": (ctypes.c_char_p, ctypes.c_void_p),
    "ggml_backend_dev_description": (ctypes.c_char_p, ctypes.c_void_p),
    "ggml_backend_dev_type": (ctypes.c_int, ctypes.c_void_p),
    "ggml_backend_dev_memory": (None, ctypes.c_void_p, _SIZE, _SIZE),
    "ggml_backend_dev_buffer_type": (ctypes.c_void_p, ctypes.c_void_p),
    "ggml_backend_dev_supports_op": (ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p),
    "ggml_backend_dev_backend_reg": (ctypes.c_void_p, ctypes.c_void_p),
    "ggml_backend_reg_get_proc_address": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "ggml_backend_get_device": (ctypes.c_void_p, ctypes.c_void_p),
    "ggml_backend_sched_get_n_backends": (ctypes.c_int, ctypes.c_void_p),
    "ggml_backend_sched_get_backend": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "ggml_backend_load_all_from_path": (None, ctypes.c_char_p),
    "ggml_init": (ctypes.c_void_p, _InitParams),
    "ggml_new_tensor_1d": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64),
    "ggml_free": (None, ctypes.c_void_p),
}
"""ggml functions that llama-cpp-python doesn't declare: their return and argument types."""


def start() -> None:
    """Prepare llama.cpp once per process, before the first model. Raises `KnownError` if it can't compute here.

    In packages, the code that computes is in separate libraries: the best one for this processor and those for GPUs are
    loaded. Built from source, llama.cpp contains the code for one processor.
    """
    llama_cpp.llama_log_set(on_log, ctypes.c_void_p(0))
    if not _handles(CPU):
        library().ggml_backend_load_all_from_path(os.fsencode(_ggml.libggml_base_path))
    if not _handles(CPU):
        raise KnownError(
            "This copy of llama.cpp doesn't run on your processor, so no model can be used. Reinstall Slipstream; "
            "if that doesn't help, please report it together with the log."
        )
    llama_cpp.llama_backend_init()


def engine_name() -> str:
    """The engine's name for About and reports; with the variant for this kind of processor, if `start` chose one."""
    variant = f", {_variant} variant" if _variant else ""
    return f"llama.cpp (llama-cpp-python {llama_cpp.__version__}{variant})"


def reason() -> str:
    """The first of `errors`, because what llama.cpp logs later only follows from it."""
    return _WHERE_AND_WHAT.sub("", errors[0]) if errors else "no reason given"


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def on_log(level: int, text: bytes, _data: object) -> None:
    """For libraries that log as llama.cpp does."""
    global _variant  # noqa: PLW0603 - llama.cpp says it here and nowhere else, once a process
    if level == _LOG_INFO and (loaded := _LOADED_VARIANT.search(text)):
        _variant = loaded[1].decode()
    if level not in (_LOG_WARN, _LOG_ERROR):
        return
    line = text.decode("utf-8", "replace").rstrip()
    if level == _LOG_ERROR:
        errors.append(line)
    log.info("%s", line)  # llama.cpp's warnings are nothing new to the user


# ---------------------------------------------------------------- devices


def processor_features() -> list[str]:
    """Instruction sets that the code was built for and this processor has, as ggml names them."""
    report = llama_cpp.llama_print_system_info().decode("utf-8", "replace")
    processor = re.search(r"\bCPU : ((?:\w+ = \w+ \| )*)", report)  # GPUs have their own features
    return re.findall(r"(\w+) =", processor[1]) if processor else []


def gpu_devices() -> list[str]:
    """Descriptions of the GPUs this build of llama.cpp can offload to; empty on a CPU build."""
    return [_text(library().ggml_backend_dev_description(handle)) for handle in _handles(GPU, INTEGRATED_GPU)]


def offload_handles() -> dict[str, int]:
    """llama.cpp's handles of the GPUs that it offloads to, by name: integrated ones only if there are no others."""
    handles = _handles(GPU) or _handles(INTEGRATED_GPU)
    return {_text(library().ggml_backend_dev_name(handle)): handle for handle in handles}


@cache
def largest_tensor(handle: int) -> int:
    """Bytes of the largest tensor that this device can compute with; 0 if there is no limit below 16 TiB."""

    def is_too_large(size: int) -> bool:
        ggml = library()
        context = ggml.ggml_init(_InitParams(4096, None, True))
        tensor = ggml.ggml_new_tensor_1d(context, llama_cpp.GGML_TYPE_I8, size)
        can: bool = ggml.ggml_backend_dev_supports_op(handle, tensor)
        ggml.ggml_free(context)
        return not can

    return bisect(range(1, _MOST_TENSOR_BYTES), False, key=is_too_large) if is_too_large(_MOST_TENSOR_BYTES) else 0


def cpu_buffer_type() -> int:
    """llama.cpp's handle for memory that the processor computes in."""
    handle: int = library().ggml_backend_dev_buffer_type(_handles(CPU)[0])
    return handle


def devices(*kinds: int) -> list[Device]:
    """The devices of these kinds with their current memory; without kinds, the GPUs.

    Available after `start`. Safe to call from any thread, even while llama.cpp computes. The first call initializes
    CUDA devices, which takes some of their memory.
    """
    return [_device(handle) for handle in _handles(*(kinds or (GPU, INTEGRATED_GPU)))]


def _device(handle: int) -> Device:
    ggml = library()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    # Metal treats the GPU of a Mac with Apple silicon as a separate device; its memory is the system's.
    is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
    shared = is_apple or ggml.ggml_backend_dev_type(handle) == INTEGRATED_GPU
    return Device(
        name=_text(ggml.ggml_backend_dev_name(handle)),
        description=_text(ggml.ggml_backend_dev_description(handle)),
        kind="integrated" if shared else "gpu",
        total_bytes=total.value,
        free_bytes=min(free.value, total.value),
        largest_tensor=largest_tensor(handle),
    )


def driver_name(devices: Sequence[str]) -> str:
    """The driver of these GPUs (by description), with its version, for display; empty if there are none.

    After an update of the driver, a pair's costs are measured again. Metal is part of macOS, and on other systems
    drivers other than NVIDIA's come with the system as well, so the system's version is used there.
    """
    if not devices:
        return ""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    version = _nvidia_version()
    if version:
        return f"NVIDIA driver {version}"
    return f"{platform.system()} {platform.release() if sys.platform == 'linux' else platform.version()}"


def _nvidia_version() -> str:
    with contextlib.suppress(OSError):
        found = _NVIDIA_MODULE.search(_NVIDIA_VERSION.read_text(encoding="utf-8", errors="replace"))
        return found[1] if found else ""
    tool = windows_program("System32", "nvidia-smi.exe") if sys.platform == "win32" else "nvidia-smi"
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    hidden = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # only exists on Windows, which would otherwise show a console
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_DRIVER_SECONDS, check=False, creationflags=hidden
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = result.stdout.split()
    return lines[0] if result.returncode == 0 and lines else ""


def _handles(*kinds: int) -> list[int]:
    ggml = library()
    found = (ggml.ggml_backend_dev_get(index) for index in range(ggml.ggml_backend_dev_count()))
    return [handle for handle in found if ggml.ggml_backend_dev_type(handle) in kinds]


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


@cache
def library() -> ctypes.CDLL:
    """ggml, with its functions declared."""
    ggml: ctypes.CDLL = _ggml.libggml
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, arguments
    return ggml
