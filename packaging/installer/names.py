"""How the files in ``dist/`` are called."""

from __future__ import annotations

import platform

GPU_VARIANTS = ("cuda", "vulkan")
"""Builds with one more library for the GPU; their files carry the variant's name. ``cpu`` and ``metal`` are plain."""


def machine() -> str:
    """The processor family as file names have it: ``x86_64`` or ``arm64``."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "aarch64": "arm64"}.get(name, name)


def suffix(variant: str) -> str:
    """What a variant adds before the extension."""
    return f"-{variant}" if variant in GPU_VARIANTS else ""
