"""The command line as a user types it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def python_path() -> str:
    """Where a process of its own finds this app first, and then what the tests found (`scripts/gpu-test`)."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def slipstream(
    *arguments: str | Path, typed: str = "", folder: str | Path = ROOT, limit_seconds: float = 100, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *map(str, arguments)],
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
        env={**os.environ, "PYTHONPATH": python_path(), **environment},
        timeout=limit_seconds,
        check=False,
    )
