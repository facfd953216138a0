"""A small file system of its own, in memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """``options`` as ``mount`` has them, such as ``size=2m``. Skips the test where that isn't allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    can_try = sys.platform == "linux" and shutil.which("mount") is not None
    if not can_try or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system: run it as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Mount it with other options, such as ``ro`` or another size."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
