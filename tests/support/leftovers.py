"""What a test left running: threads of this process, and other processes that it started."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

PATIENCE_S = 10
"""What is about to end may take this long on a busy machine."""
_FOR_THE_SESSION = ("execnet", "tqdm", "Dummy-")
"""Threads that are made once and shared by all tests, by the beginning of their names."""
_SHARED_PROCESSES = ("--role=helper", "multiprocessing.")
"""Kept warm for whoever wants them next, by a part of their command."""


@dataclass(frozen=True)
class Running:
    """Threads, and the ids of child processes."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]

    @staticmethod
    def now() -> Running:
        return Running(frozenset(threading.enumerate()), frozenset(_children()))


def _children() -> list[int]:
    """The kernel's own list where it has one, which is a hundred times as quick as a look at all processes."""
    try:
        lists = [(task / "children").read_text() for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return [child.pid for child in psutil.Process().children()]
    return [int(pid) for pids in lists for pid in pids.split()]


def left_since(before: Running) -> list[str]:
    """What runs now and did not run then, by name, once it was given time to end."""
    deadline = time.monotonic() + PATIENCE_S
    while left := _left(before):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.005)
    return []


def _left(before: Running) -> list[str]:
    now = Running.now()
    threads = [f"thread {thread.name}" for thread in now.threads - before.threads]
    threads = [name for name in threads if not name.startswith(tuple(f"thread {one}" for one in _FOR_THE_SESSION))]
    return [*threads, *filter(None, map(_described, now.processes - before.processes))]


def _described(pid: int) -> str | None:
    """The command of a process; nothing for one that ended."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        command = " ".join(process.cmdline())
    except psutil.Error:
        return None
    return None if any(part in command for part in _SHARED_PROCESSES) else f"process {command[:200]}"
