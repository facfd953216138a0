"""Which driver the GPU in use has, for people: after an update of it a pair's costs are measured anew."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from app.program import windows_program

_NVIDIA_VERSION = Path("/proc/driver/nvidia/version")
_PATIENCE_SECONDS = 10.0


def driver_name(devices: Sequence[str]) -> str:
    """The driver of these GPUs (by description), with its version; empty where there are none.

    Metal is a part of macOS, and elsewhere what is not NVIDIA's comes with the system as well: there it is its version
    that counts.
    """
    if not devices:
        return ""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    version = _nvidia_version()
    if version:
        return f"NVIDIA driver {version}"
    return f"{platform.system()} {platform.release() if sys.platform == 'linux' else platform.version()}"


def _nvidia_version() -> str:
    try:
        return nvidia_version(_NVIDIA_VERSION.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        pass
    tool = windows_program("System32", "nvidia-smi.exe") if sys.platform == "win32" else "nvidia-smi"
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    hidden = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # only Windows has it, and would show a console
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False, creationflags=hidden
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = result.stdout.split()
    return lines[0] if result.returncode == 0 and lines else ""


def nvidia_version(text: str) -> str:
    """The version in ``/proc/driver/nvidia/version``; empty where there is none.

    The line reads ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar …``, or ``… UNIX Open Kernel
    Module for x86_64  570.86.15  Release Build …``.
    """
    found = re.search(r"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else ""
