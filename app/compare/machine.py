"""What machine this is, as far as speeds depend on it: no host name, no user name, no serial number."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import psutil

from app.compare.results import Machine


def this_machine(devices: list[str]) -> Machine:
    """The computer this process runs on; ``devices`` are the GPUs its engine can offload to."""
    return Machine(
        processor=_processor() or platform.processor() or platform.machine(),
        physical_cores=psutil.cpu_count(logical=False) or 0,
        logical_cores=psutil.cpu_count() or 0,
        memory_bytes=psutil.virtual_memory().total,
        system=_system(),
        devices=devices,
    )


def _processor() -> str:
    """The processor's name as its maker has it; empty where the system does not tell."""
    try:
        if sys.platform == "win32":
            return _registry_processor()
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, check=True, capture_output=True, text=True, timeout=5).stdout.strip()
        return _proc_processor(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except (OSError, subprocess.SubprocessError):
        return ""


def _proc_processor(cpuinfo: str) -> str:
    """Of Linux's list of processors; ARM kernels leave the name out."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() == "model name":
            return " ".join(value.split())
    return ""


if sys.platform == "win32":

    def _registry_processor() -> str:
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()


def _system() -> str:
    kernel = f"{platform.system()} {platform.release()} ({platform.machine()})"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel
