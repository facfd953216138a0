"""``slipstream serve`` as a process of its own, for benchmarks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.command_line import ROOT, python_path


@contextmanager
def serve_process(*arguments: str | Path, home: Path) -> Iterator[tuple[psutil.Process, int]]:
    """The process, and its port."""
    command = [sys.executable, "-m", "app", "serve", "--port", "0", "--quiet", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": python_path(), "SLIPSTREAM_HOME": str(home)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        assert found
        yield psutil.Process(process.pid), int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
