"""How many threads to compute with: one for each core that isn't a slow one, and what else may be quicker.

A pass waits for its slowest thread, so the efficiency cores of a hybrid processor usually slow it down. The numbers
follow from the hardware alone. Which of them is quicker is timed once per model and remembered, because a different
number of threads rounds differently, and the same seed would give a different text after the next start.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

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
    """The number that may be quicker for passes over one token: all physical cores where some are efficiency cores.
    Elsewhere half of them, because a few cores can use all of the memory's bandwidth and wait less for each other.
    ``None`` with up to two cores.
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
    """Whole cores' time that a container or a service may use, at least 1; 0 if there is no limit (cgroup v2 and v1).

    More threads than that would all be stopped together for the rest of each period.
    """
    place = next((line[4:] for line in _text(own).splitlines() if line.startswith("0::/")), "")
    limits = [_limit(*_text(group / "cpu.max").split()[:2]) for group in (folder / place, folder)]
    v1 = folder / "cpu"
    limits.append(_limit(_text(v1 / "cpu.cfs_quota_us"), _text(v1 / "cpu.cfs_period_us")))
    found = [limit for limit in limits if limit]
    return max(int(min(found)), 1) if found else 0


def _limit(quota: str = "", period: str = "") -> float:
    """Cores; 0 if there is no limit, which is written as ``max`` or -1."""
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else 0.0


def _linux_cores(cpus: Path, allowed: Iterable[int]) -> int:
    """The fast cores among the ``allowed`` logical processors; 0 if ``cpus`` (from sysfs) doesn't say."""
    capacity = {cpu: _capacity(cpus / f"cpu{cpu}") for cpu in allowed}
    core = {cpu: _text(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list") for cpu in capacity}
    if not capacity or not all(core.values()):
        return 0
    intel = _numbers(_text(cpus.parents[1] / "cpu_core" / "cpus"))
    least = _FAST * max(capacity.values())
    quick = (intel & capacity.keys()) or {cpu for cpu, value in capacity.items() if value >= least}
    return len({core[cpu] for cpu in quick})


def _capacity(cpu: Path) -> int:
    """Relative speed: the kernel's own figure if there is one, as on Arm; 0 if there are no differences.

    The highest frequency is no measure: cores of one kind have different ones on some processors.
    """
    text = _text(cpu / "cpu_capacity")
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
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
