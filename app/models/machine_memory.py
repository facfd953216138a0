"""The memory of this machine: how much a model could use, and how much of it is free now."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from app.protocol.devices import Device

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
