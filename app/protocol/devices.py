"""The GPUs of a machine, as an engine reports them."""

from __future__ import annotations

from typing import Literal

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as llama.cpp's backend reports it. Bytes."""

    name: str
    """Short and unique on the machine: ``CUDA0``, ``Vulkan1``, ``Metal``."""
    description: str
    """For display: ``NVIDIA GeForce RTX 4060``."""
    kind: Literal["gpu", "integrated"] = "gpu"
    """``integrated`` devices share the system's memory (Apple silicon, laptops)."""
    total_bytes: int = 0
    free_bytes: int = 0
    largest_tensor: int = 0
    """Bytes; it can't compute with a larger one. 0: no limit is known."""
