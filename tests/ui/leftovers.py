"""What a test leaves running: threads and, on Linux, child processes."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import psutil

JOIN_S = 10.0
"""What has nothing left to do ends at once; this is for a machine that is busy."""
TASKS = Path("/proc/self/task")


def running() -> tuple[set[threading.Thread], set[int]]:
    """Threads, and ids of child processes."""
    children: set[int] = set()
    for task in TASKS.iterdir() if TASKS.is_dir() else ():
        with contextlib.suppress(OSError):
            children.update(map(int, (task / "children").read_text().split()))
    return set(threading.enumerate()), children


def left(before: tuple[set[threading.Thread], set[int]]) -> list[str]:
    """What runs now and did not before, after it had the time to end."""
    after = running()
    threads, children = after[0] - before[0], after[1] - before[1]
    for thread in threads:
        thread.join(JOIN_S)
    processes = []
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(child))
    _ended, alive = psutil.wait_procs(processes, JOIN_S if processes else 0)
    return [f"thread “{one.name}”" for one in threads if one.is_alive()] + [f"process {one.pid}" for one in alive]
