"""The memory of this machine: how much a pair could use, and how much of it is free now."""

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
    """Memory at one moment. Without devices, everything runs on the CPU. Bytes."""

    memory_total: int
    memory_free: int
    """What can be used without swapping."""
    devices: list[Device] = []


def machine_now(
    devices: Sequence[Device] = (), *, released: int = 0, released_gpus: Mapping[str, int] | None = None
) -> MachineMemory:
    """This machine as it is now; ``devices`` as the engine reported them just before.

    The memory of the loaded pair counts as free, because the next load unloads it first: ``released`` bytes of system
    memory (`app.protocol.events.MemoryRead.own_bytes`), and ``released_gpus``, the bytes that the pair was estimated to
    take on each GPU when it was loaded, by `Device.name`. In a container with a memory limit (cgroup v2), that limit is
    the machine's memory.
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
    """Bytes of memory that only this process uses, without the pages of files it reads."""
    memory = psutil.Process().memory_info()
    if sys.platform == "win32":
        return int(memory.private)
    return int(memory.rss - getattr(memory, "shared", 0))


def _with_released(device: Device, released: int) -> Device:
    """What is free again is no more than what was in use."""
    return msgspec.structs.replace(device, free_bytes=min(device.free_bytes + released, device.total_bytes))


def _container_limits(root: Path = _CONTROL_GROUPS, own: Path = _OWN_CONTROL_GROUP) -> Iterator[tuple[int, int]]:
    """The limit of each control group (v2) this process is in, and what is left of it. Bytes."""
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
"""Left free of the system's memory: a tenth of it, at most two GiB. The window, other programs and the caches of
chats live there."""
GPU_MARGIN_SHARE, LEAST_GPU_MARGIN = 20, 512 * 1024**2
"""Left free on each GPU: a twentieth, at least half a GiB. The driver and the desktop need some of it."""


class MemoryLimits:
    """How much memory of a machine a pair may take, and whether an estimate keeps to that.

    Attributes:
        gpus: Those in use, which llama.cpp spreads its layers over: integrated ones only where there are no others.
        is_shared: Whether the GPU's memory is the system's.
        system_bytes: What a pair may take.
        spaces: The same for each GPU; 0 for those that it is not to use.
    """

    def __init__(self, machine: MachineMemory, only: Collection[str] = ()) -> None:
        """``only`` has the names of the GPUs to use; empty for all."""
        self.gpus = [device for device in machine.devices if device.kind == "gpu"] or machine.devices[:1]
        self.is_shared = any(device.kind == "integrated" for device in self.gpus)
        margin = min(machine.memory_total // SYSTEM_MARGIN_SHARE, MOST_SYSTEM_MARGIN)
        self.system_bytes = max(machine.memory_free - margin, 0)
        self.spaces = [_usable_bytes(gpu) if not only or gpu.name in only else 0 for gpu in self.gpus]

    @property
    def gpu_bytes(self) -> int:
        """What a pair may take of all GPUs together."""
        return sum(self.spaces)

    def fit(self, estimate: MemoryEstimate) -> bool:
        """Whether everything fits."""
        return self.in_system(estimate) <= self.system_bytes and self.fit_gpus(estimate)

    def fit_gpus(self, estimate: MemoryEstimate) -> bool:
        """Whether there is space for what goes on the GPUs, and they can compute with it."""
        return self.fullest(estimate) is None and not self.has_too_large_tensor(estimate)

    def has_too_large_tensor(self, estimate: MemoryEstimate) -> bool:
        """Whether a KV cache is larger than its GPU can compute with."""
        found = zip(estimate.largest_tensors, self.gpus, strict=False)
        return any(gpu.largest_tensor and size > gpu.largest_tensor for size, gpu in found)

    def fullest(self, estimate: MemoryEstimate) -> int | None:
        """The index of the GPU on which the most space is missing; ``None`` if there is enough on each."""
        missing = [parts.total - space for parts, space in zip(estimate.gpus, self.spaces, strict=False)]
        most = max(missing, default=0)
        return missing.index(most) if most > 0 else None

    def in_system(self, estimate: MemoryEstimate) -> int:
        """Bytes of system memory."""
        return estimate.system.total + (estimate.gpu.total if self.is_shared else 0)


def _usable_bytes(device: Device) -> int:
    margin = max(device.total_bytes // GPU_MARGIN_SHARE, LEAST_GPU_MARGIN)
    return max(device.free_bytes - margin, 0)
