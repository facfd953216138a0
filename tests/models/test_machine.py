"""The memory of this machine, its containers and its GPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest

from app.models import machine_memory
from app.models.machine_memory import machine_now, private_bytes
from app.protocol.events import Device

GIB = 1024**3
GPU = Device(name="CUDA0", description="GPU", total_bytes=8 * GIB, free_bytes=5 * GIB)
EMPTY = Device(name="CUDA1", description="GPU", total_bytes=8 * GIB, free_bytes=8 * GIB)


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(text)
    return folder


def test_the_machine_as_it_is() -> None:
    now = machine_now()
    assert 0 < now.memory_free <= now.memory_total <= psutil.virtual_memory().total
    assert now.devices == []
    released = machine_now(released=64 * GIB)  # what the loaded pair holds counts as free
    assert released.memory_free == released.memory_total == now.memory_total


def test_what_it_holds_on_gpus_counts_as_free_there() -> None:
    other = msgspec.structs.replace(GPU, name="other")
    now = machine_now([GPU, other], released_gpus={GPU.name: 2 * GIB, "gone": GIB})
    assert [device.free_bytes for device in now.devices] == [GPU.free_bytes + 2 * GIB, GPU.free_bytes]
    now = machine_now([GPU, EMPTY], released_gpus={GPU.name: 100 * GIB, EMPTY.name: GIB})
    assert [device.free_bytes for device in now.devices] == [8 * GIB, 8 * GIB]


def test_a_container_may_have_less(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/outer/inner\n")
    group(root)
    group(root / "outer", max="4000\n", current="1500\n", stat="anon 900\ninactive_file 300\nactive_file 200\n")
    group(root / "outer/inner", max="max\n", current="700\n")
    assert list(machine_memory._container_limits(root, own)) == [(4000, 3000)]


@pytest.mark.parametrize("text", [None, "1:memory:/old\n", "0::/gone\n", "0::/../..\n"])
def test_without_such_limits_there_are_none(tmp_path: Path, text: str | None) -> None:
    own = tmp_path / "own"
    if text is not None:
        own.write_text(text)
    assert list(machine_memory._container_limits(group(tmp_path / "cgroup"), own)) == []


def test_memory_of_its_own() -> None:
    before = private_bytes()
    # Linux counts a thread's page faults in batches of 64, and each may be for 2 MiB.
    block = bytearray(b"x") * (320 * 1024 * 1024)
    assert private_bytes() - before > 128 * 1024 * 1024
    assert block
