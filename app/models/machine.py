"""The memory of this machine: what a model could use, and how much of it is free now."""

from __future__ import annotations

from typing import Literal

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as llama.cpp's backend reports it. Bytes."""

    name: str
    """Short and unique on the machine: ``CUDA0``, ``Vulkan1``, ``Metal``."""
    description: str
    """For people: ``NVIDIA GeForce RTX 4060``."""
    kind: Literal["gpu", "integrated"] = "gpu"
    """``integrated`` shares the system's memory (Apple silicon, laptops)."""
    total_bytes: int = 0
    free_bytes: int = 0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at one moment. No devices: everything runs on the processor. Bytes."""

    memory_total: int
    memory_free: int
    """What can be taken without swapping."""
    devices: list[Device] = []
