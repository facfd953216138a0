from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from app.engine.llama import devices
from app.engine.llama.devices import driver_name, nvidia_version

PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""


def test_the_version_of_the_nvidia_driver() -> None:
    assert nvidia_version(PROPRIETARY) == "550.54.15"
    assert nvidia_version(OPEN) == "570.86.15"
    assert nvidia_version("GCC version:  gcc version 12.2.0") == ""
    assert nvidia_version("") == ""


def test_without_a_gpu_there_is_no_driver_and_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: pytest.fail("asked"))
    assert driver_name([]) == ""


def test_a_file_tells_the_nvidia_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    file = tmp_path / "version"
    file.write_text(PROPRIETARY)
    monkeypatch.setattr(devices, "_NVIDIA_VERSION", file)
    assert driver_name(["NVIDIA GeForce RTX 4090"]) == "NVIDIA driver 550.54.15"


def test_else_its_tool_does_and_without_one_the_system_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(devices, "_NVIDIA_VERSION", tmp_path / "not there")
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
