"""llama.cpp as a whole: started once, its devices, log, kernels, and the threads it may use."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import platform
import re
import struct
import subprocess
import sys
from bisect import bisect
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import llama_cpp
import psutil
from llama_cpp import _ggml

from app.protocol.events import Device
from app.system import KnownError, windows_program

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
    """Prepare llama.cpp, before the first model. Raises `KnownError` if it can't compute here.

    In packages, the code that computes is in separate libraries: the best one for this processor and those for GPUs are
    loaded. Built from source, llama.cpp contains code for one processor.
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
    """The devices of these kinds with their current memory; without kinds, the GPUs. After `start`, from any thread,
    even while llama.cpp computes. The first call initializes CUDA devices, which takes some of their memory.
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

    After an update of it, a pair's costs are measured again. Drivers other than NVIDIA's come with the system, whose
    version is used then.
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


# Which of llama.cpp's kernels compute a pass on the processor.
#
# Some of its kernels round differently for another width of a pass or another number of threads: flash attention
# shares out the context among the threads in a pass over one token only, and K-quants are multiplied by other code
# from eight tokens on. Its reference implementation has one kernel for all of them, which is as quick in passes over a
# few tokens. Long prompts take about twice as long with it, so they are computed without. ``benchmarks/notes/real-
# models.md`` has figures.

_SCHEDULER = ("_ZNK13llama_context9get_schedEv", "?get_sched@llama_context@@QEBAPEAUggml_backend_sched@@XZ")
"""``llama_context::get_sched`` as GCC, Clang and Microsoft's compiler name it."""
_USE_REFERENCE = b"ggml_backend_cpu_set_use_ref"

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
REPACKED = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"})
"""Types of weights that llama.cpp writes anew in another order on x86 when they are loaded."""
REPACKED_UNLIKE = frozenset({"Q4_K", "Q2_K"})
"""Those of which passes over four tokens and more are then multiplied by kernels that round differently."""


class Kernels:
    """Switches a context between llama.cpp's usual kernels and its reference implementation, on the processor.

    If llama.cpp's library doesn't show its scheduler, nothing is switched: `app.engine.host.pair_costs` then finds
    that results depend on the width.
    """

    def __init__(self, context: int) -> None:
        """``context``: llama.cpp's handle of a context."""
        self._backends = _processor_backends(context)
        self._uses_reference = False

    def use_reference(self, wanted: bool) -> None:
        """For the next passes."""
        if wanted == self._uses_reference:
            return
        self._uses_reference = wanted
        for handle, switch in self._backends:
            switch(handle, wanted)


def _processor_backends(context: int) -> list[tuple[int, ctypes._CFunctionType]]:
    """ggml's handles of what computes on the processor for ``context``, with the function that switches each.

    WORKAROUND for llama.h, which lacks the setting: ggml has it, but no way from a context to its backends.
    """
    scheduler = next((name for name in _SCHEDULER if hasattr(llama_cpp.llama_cpp._lib, name)), None)
    if scheduler is None:
        return []
    ggml = library()
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    found = prototype((scheduler, llama_cpp.llama_cpp._lib))(context)
    result = []
    for index in range(ggml.ggml_backend_sched_get_n_backends(found)):
        handle = ggml.ggml_backend_sched_get_backend(found, index)
        device = ggml.ggml_backend_get_device(handle)
        if ggml.ggml_backend_dev_type(device) == CPU:
            registry = ggml.ggml_backend_dev_backend_reg(device)
            address = ggml.ggml_backend_reg_get_proc_address(registry, _USE_REFERENCE)
            if address:
                switch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool)(address)
                result.append((handle, switch))
    return result


# How many threads to compute with: one for each core that isn't a slow one, and what else may be quicker.
#
# A pass waits for its slowest thread, so the efficiency cores of a hybrid processor usually slow it down. The numbers
# follow from the hardware alone. Which of them is quicker is timed once per model and remembered, because a different
# number of threads rounds differently, and the same seed would give a different text after the next start.

_CPUS = Path("/sys/devices/system/cpu")
_FAST = 0.8
"""As a fraction of the fastest core's capacity; cores of one kind differ slightly."""


class Threads(NamedTuple):
    """How many compute a pass over one token, and one over several."""

    one: int
    batch: int


def default_threads() -> int:
    """The physical performance cores this process may use, at least 1."""
    allowed = allowed_processors()
    if sys.platform == "linux":
        cores = _linux_cores(_CPUS, allowed)
    elif sys.platform == "darwin":
        cores = _macos_cores()
    elif sys.platform == "win32":
        cores = _windows_cores()
    else:
        cores = 0
    return max(1, min(cores or psutil.cpu_count(logical=False) or 1, len(allowed), container_cores() or len(allowed)))


def other_threads() -> int | None:
    """The number that may be quicker for passes over one token: all physical cores if some are efficiency cores, else
    half of them: a few can use all of the memory's bandwidth and wait less for each other. ``None`` with up to two.
    """
    usual, cores = default_threads(), min(psutil.cpu_count(logical=False) or 1, len(allowed_processors()))
    if cores <= 2:
        return None
    return cores if cores > usual else (usual + 1) // 2


def allowed_processors() -> set[int]:
    """The logical processors this process may use."""
    process = psutil.Process()
    return set(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else set(range(psutil.cpu_count() or 1))


def container_cores(folder: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The cores' time that a container or a service may use, at least 1; 0 if there is no limit (cgroup v2 and v1).
    More threads than that would all be stopped for the rest of each period."""
    place = next((line[4:] for line in _file_text(own).splitlines() if line.startswith("0::/")), "")
    limits = [_limit(*_file_text(group / "cpu.max").split()[:2]) for group in (folder / place, folder)]
    v1 = folder / "cpu"
    limits.append(_limit(_file_text(v1 / "cpu.cfs_quota_us"), _file_text(v1 / "cpu.cfs_period_us")))
    found = [limit for limit in limits if limit]
    return max(int(min(found)), 1) if found else 0


def _limit(quota: str = "", period: str = "") -> float:
    """Cores; 0 if there is no limit, which is written as ``max`` or -1."""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else 0.0


def _linux_cores(cpus: Path, allowed: Iterable[int]) -> int:
    """The fast cores among the ``allowed`` logical processors; 0 if ``cpus`` (from sysfs) doesn't say."""
    capacity = {cpu: _capacity(cpus / f"cpu{cpu}") for cpu in allowed}
    core = {cpu: _file_text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") for cpu in capacity}
    if not capacity or not all(core.values()):
        return 0
    intel = _numbers(_file_text(cpus.parents[1] / "cpu_core" / "cpus"))
    least = _FAST * max(capacity.values())
    quick = (intel & capacity.keys()) or {cpu for cpu, value in capacity.items() if value >= least}
    return len({core[cpu] for cpu in quick})


def _capacity(cpu: Path) -> int:
    """Relative speed: the kernel's own figure if there is one, as on Arm; 0 if there are no differences. (The highest
    frequency is no measure: on some processors it differs among cores of one kind.)"""
    text = _file_text(cpu / "cpu_capacity")
    return int(text) if text.isdigit() else 0


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _numbers(ranges: str) -> set[int]:
    """The numbers of a list like ``0-7,16``."""
    numbers: set[int] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return set()
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _macos_cores() -> int:
    """Not tested: written from Apple's documentation of ``hw.perflevel0``, the fastest kind of core."""
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    system = ctypes.CDLL(None)
    code = system.sysctlbyname(b"hw.perflevel0.physicalcpu", ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value if code == 0 else 0


def _windows_cores() -> int:
    """Not tested: written from Microsoft's documentation of GetLogicalProcessorInformationEx."""
    kernel = ctypes.CDLL("kernel32")
    size = ctypes.c_uint32(0)
    kernel.GetLogicalProcessorInformationEx(0, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not size.value or not kernel.GetLogicalProcessorInformationEx(0, buffer, ctypes.byref(size)):
        return 0
    return _most_efficient(buffer.raw[: size.value])


def _most_efficient(records: bytes) -> int:
    """How many cores have the highest efficiency class, from the records of ``RelationProcessorCore``."""
    classes = []
    at = 0
    while at + 10 <= len(records):
        relationship, size, _flags, efficiency = struct.unpack_from("<IIBB", records, at)
        if relationship == 0:
            classes.append(efficiency)
        if size == 0:
            break
        at += size
    return classes.count(max(classes)) if classes else 0
