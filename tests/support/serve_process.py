"""Servers as processes of their own: ``slipstream serve``, and a window that serves."""

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
from tests.support.served import Client


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


class ServingWindow(Client):
    """A window in a process of its own.

    Attributes:
        window, server: The processes.
    """

    def __init__(self, window: psutil.Process, server: psutil.Process, port: int) -> None:
        super().__init__(port)
        self.window, self.server = window, server


@contextmanager
def window_that_serves(
    target: Path, draft: Path | None = None, *, home: Path, key: str = ""
) -> Iterator[ServingWindow]:
    """Ends it by its input, as `tests.ui.window_that_serves` has it."""
    arguments = [str(target), str(draft or ""), *([key] if key else [])]
    command = [sys.executable, "-m", "tests.ui.window_that_serves", *arguments]
    environment = {
        **os.environ,
        "SLIPSTREAM_HOME": str(home),
        "QT_QPA_PLATFORM": "offscreen",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    }
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    try:
        assert process.stdout is not None
        port, server = process.stdout.readline().split()
        window = ServingWindow(psutil.Process(process.pid), psutil.Process(int(server)), int(port))
        window.wait_until_healthy()
        yield window
    finally:
        process.communicate()
