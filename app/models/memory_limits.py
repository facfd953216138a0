"""How much of a machine's memory a pair may take."""

from __future__ import annotations

from collections.abc import Collection

from app.models.machine_memory import MachineMemory
from app.models.memory_estimate import MemoryEstimate
from app.protocol.devices import Device

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
