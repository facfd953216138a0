from __future__ import annotations

import os
from collections.abc import Iterator

import llama_cpp
import pytest

from app.engine.llama import backend
from app.protocol.devices import Device


@pytest.fixture(autouse=True)
def gpu() -> Device:
    """The GPU that everything is put on."""
    backend.start()
    found = backend.devices()
    if not found:
        if os.environ.get("SLIPSTREAM_GPU_TEST"):
            pytest.fail("llama.cpp finds no GPU")
        pytest.skip("no GPU that llama.cpp can use; make gpu-test makes one of software")
    return found[0]


@pytest.fixture
def buffers() -> Iterator[dict[str, float]]:
    """MiB of the buffers that llama.cpp allocates, by device and purpose: ``{"Vulkan0 KV": 8.0}``, those of the same
    name added up. It is empty again after `clear`.
    """
    found: dict[str, float] = {}

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
    def note(_level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        what, separator, size = line.partition(" buffer size = ")
        if separator and size.endswith("MiB"):
            name = what.split(":", 1)[1].strip()
            found[name] = found.get(name, 0.0) + float(size.removesuffix("MiB"))

    llama_cpp.llama_log_set(note, None)
    yield found
    backend.start()
