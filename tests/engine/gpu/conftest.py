from __future__ import annotations

import os

import pytest

from app.engine.llama import backend
from app.protocol.events import Device


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
