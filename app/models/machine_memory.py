"""This machine's memory: how much a pair may use, and how much is free now."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from app.models.model_memory import MemoryEstimate
from app.protocol.events import Device

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_OWN_CONTROL_GROUP = Path("/proc/self/cgroup")


class MachineMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of memory in bytes. Without devices, everything runs on the CPU."""

    memory_total: int
    memory_free: int
    """What can be used without swapping."""
    devices: list[Device] = []


def machine_now(
    devices: Sequence[Device] = (), *, released: int = 0, released_gpus: Mapping[str, int] | None = None
) -> MachineMemory:
    """The current memory; ``devices`` as the engine has just reported them.

    The loaded pair's memory counts as free, because the next load unloads it first: ``released`` bytes of system memory
    (`app.protocol.events.MemoryRead.own_bytes`), and ``released_gpus``, its estimate for each GPU by `Device.name`. In
    a container with a memory limit (cgroup v2), that limit is the machine's memory.
    """
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for limit, unused in _container_limits():
        total, free = min(total, limit), min(free, unused)
    return MachineMemory(
        memory_total=total,
        memory_free=min(free + released, total),
        devices=[_with_released(device, (released_gpus or {}).get(device.name, 0)) for device in devices],
    )


def private_bytes() -> int:
    """Memory that only this process uses, in bytes, without the pages of files it reads."""
    memory = psutil.Process().memory_info()
    if sys.platform == "win32":
        return int(memory.private)
    return int(memory.rss - getattr(memory, "shared", 0))


def _with_released(device: Device, released: int) -> Device:
    """Add released memory, up to what was in use."""
    return msgspec.structs.replace(device, free_bytes=min(device.free_bytes + released, device.total_bytes))


def _container_limits(root: Path = _CONTROL_GROUPS, own: Path = _OWN_CONTROL_GROUP) -> Iterator[tuple[int, int]]:
    """Limit and remaining bytes of each control group (v2) of this process."""
    path = next((line[3:] for line in _text(own).splitlines() if line.startswith("0::/")), None)
    if path is None:
        return
    group = root / path.strip("/")
    while group.is_relative_to(root):
        if (limit := _number(group / "memory.max")) is not None:
            in_use = (_number(group / "memory.current") or 0) - _file_pages(group)
            yield limit, max(limit - max(in_use, 0), 0)
        group = group.parent


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max" is no limit


def _file_pages(group: Path) -> int:
    """Bytes in the group's page cache, which the system frees first."""
    pairs = (line.split() for line in _text(group / "memory.stat").splitlines())
    return sum(int(words[1]) for words in pairs if len(words) == 2 and words[0] in ("inactive_file", "active_file"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


SYSTEM_MARGIN_SHARE, MOST_SYSTEM_MARGIN = 10, 2 * 1024**3
"""Left free of the system's memory: a tenth of it, at most two GiB, for the window, other programs and the caches of
chats.
"""
GPU_MARGIN_SHARE, LEAST_GPU_MARGIN = 20, 512 * 1024**2
"""Left free on each GPU for driver and desktop: a twentieth, at least half a GiB."""


class MemoryLimits:
    """How much memory a pair may take, and whether an estimate stays within that.

    Attributes:
        gpus: Those in use, over which llama.cpp spreads layers: integrated ones only if there are no others.
        is_shared: The GPU's memory is the system's.
        system_bytes: The limit of system memory.
        spaces: The limit of each GPU; 0 for those not to be used.
    """

    def __init__(self, machine: MachineMemory, only: Collection[str] = ()) -> None:
        """``only`` names the GPUs to use; empty for all."""
        self.gpus = [device for device in machine.devices if device.kind == "gpu"] or machine.devices[:1]
        self.is_shared = any(device.kind == "integrated" for device in self.gpus)
        margin = min(machine.memory_total // SYSTEM_MARGIN_SHARE, MOST_SYSTEM_MARGIN)
        self.system_bytes = max(machine.memory_free - margin, 0)
        self.spaces = [_usable_bytes(gpu) if not only or gpu.name in only else 0 for gpu in self.gpus]

    @property
    def gpu_bytes(self) -> int:
        """The limit of all GPUs together."""
        return sum(self.spaces)

    def fit(self, estimate: MemoryEstimate) -> bool:
        """Whether everything fits."""
        return self.in_system(estimate) <= self.system_bytes and self.fit_gpus(estimate)

    def fit_gpus(self, estimate: MemoryEstimate) -> bool:
        """Whether the GPUs have space for their part, and can compute with it."""
        return self.fullest(estimate) is None and not self.has_too_large_tensor(estimate)

    def has_too_large_tensor(self, estimate: MemoryEstimate) -> bool:
        """Whether a KV cache is too large for its GPU to compute with."""
        found = zip(estimate.largest_tensors, self.gpus, strict=False)
        return any(gpu.largest_tensor and size > gpu.largest_tensor for size, gpu in found)

    def fullest(self, estimate: MemoryEstimate) -> int | None:
        """The index of the GPU that lacks the most space; ``None`` if each has enough."""
        missing = [parts.total - space for parts, space in zip(estimate.gpus, self.spaces, strict=False)]
        most = max(missing, default=0)
        return missing.index(most) if most > 0 else None

    def in_system(self, estimate: MemoryEstimate) -> int:
        """Bytes of system memory."""
        return estimate.system.total + (estimate.gpu.total if self.is_shared else 0)


def _usable_bytes(device: Device) -> int:
    margin = max(device.total_bytes // GPU_MARGIN_SHARE, LEAST_GPU_MARGIN)
    return max(device.free_bytes - margin, 0)
