"""What computes, and its devices. GPUs cannot be had here: what is read of one is checked on the processor."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import llama_cpp
import psutil
import pytest

from app.engine.llama import backend
from app.engine.llama.backend import CPU, devices, driver_name

PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""


def test_a_device_has_a_name_and_memory() -> None:
    backend.start()
    [processor] = devices(CPU)
    assert processor.name == "CPU" and processor.description
    assert processor.total_bytes >= psutil.virtual_memory().total * 0.99
    assert 0 < processor.free_bytes <= processor.total_bytes


@pytest.mark.parametrize(
    ("library", "variant"),
    [
        ("/opt/a b/libggml-cpu-haswell.so", ", haswell variant"),
        ("/opt/libggml-cpu-armv8.2_1.so", ", armv8.2_1 variant"),
        ("C:\\Programs\\ggml-cpu-x64.dll", ", x64 variant"),
        ("/opt/libggml-cpu.so", ""),
    ],
)
def test_the_variant_is_the_one_that_ggml_says_it_loaded(
    library: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_variant", "")
    backend.on_log(2, f"load_backend: loaded CPU backend from {library}\n".encode(), None)
    assert backend.engine_name() == f"llama.cpp (llama-cpp-python {llama_cpp.__version__}{variant})"


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        (PROPRIETARY, "NVIDIA driver 550.54.15"),
        (OPEN, "NVIDIA driver 570.86.15"),
        ("GCC version:  gcc version 12.2.0", f"Linux {platform.release()}"),
        ("", f"Linux {platform.release()}"),
    ],
    ids=["proprietary", "open", "without a version", "empty"],
)
def test_a_file_tells_the_nvidia_driver(
    text: str, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    file = tmp_path / "version"
    file.write_text(text)
    monkeypatch.setattr(backend, "_NVIDIA_VERSION", file)
    assert driver_name(["NVIDIA GeForce RTX 4090"]) == driver


def test_else_its_tool_does_and_without_one_the_system_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(backend, "_NVIDIA_VERSION", tmp_path / "not there")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 560.35.03\necho 560.35.03\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert driver_name(["Tesla V100"]) == "NVIDIA driver 560.35.03"
    tool.write_text("#!/bin/sh\necho no devices were found\nexit 6\n")
    assert driver_name(["Tesla V100"]) == f"Linux {platform.release()}"
    tool.unlink()
    assert driver_name(["AMD Radeon"]) == f"Linux {platform.release()}"


def test_metal_comes_with_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    assert driver_name(["Apple M3"]) == "macOS 15.1"
