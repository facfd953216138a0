"""The command line as a user types it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

from app.__main__ import main

ROOT = Path(__file__).parent.parent.parent


def python_path() -> str:
    """Where a process of its own finds this app first, and then what the tests found (`scripts/gpu-test`)."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def slipstream(
    *arguments: str | Path, typed: str = "", limit_seconds: float = 100, **environment: str
) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "app", *map(str, arguments)],
        input=typed,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(), **environment},
        timeout=limit_seconds,
        check=False,
    )


def called(*arguments: str | Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    """In this process, which is quicker; only the engine of a command has its own, as always."""
    out, errors, stdin, status = io.StringIO(), io.StringIO(), sys.stdin, 0
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed.encode()))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = main([*map(str, arguments)])
    except SystemExit as ended:
        status = int(ended.code or 0)
    finally:
        sys.stdin = stdin
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())
