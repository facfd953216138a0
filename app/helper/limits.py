"""The helper process's limits, enforced by the system, because nothing inside the process can stop code that hangs.

- Linux: RLIMIT_AS for memory, set by the process itself before it reads a request.
- Windows: a job object, created by the parent; it also ends the helper with its parent. Untested.
- macOS doesn't enforce RLIMIT_AS, so the parent checks the helper's footprint every 50 ms. Untested.

The parent keeps the time. RLIMIT_CPU backs that up (except on Windows), because a helper that hangs when its parent
dies never sees the end of its input. PR_SET_PDEATHSIG won't do: it fires when the *thread* that started the process
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TIME_LIMIT_SECONDS = 2.0
"""For one request."""
READING_SECONDS = 30.0
"""For one request to read files: the disk may be slow, or on a network."""
MEMORY_LIMIT = 512 * 1024 * 1024
"""In bytes, for the whole process."""
FOOTPRINT_SECONDS = 0.05
"""How often memory use is checked if the system doesn't limit it."""
MEMORY_STATUS = 3
"""The exit status of a helper that ran out of memory during a request."""
_LARGE = 128 * 1024 * 1024
_CPU_SLACK_SECONDS = 2
_confined: list[int] = []
"""The limit that `confine` set, if any."""


def confine(memory: int = MEMORY_LIMIT, *, children: bool = True) -> None:
    """Limit this process's memory, and forbid core dumps, which would contain other people's text.

    Without ``children``, those that are started within `unconfined` may use more.
    """
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
        reserved, resident = (int(count) * resource.getpagesize() for count in pages[:2])
        # Reserved address space (libraries, locales) takes no memory, and differs between systems.
        most = reserved - resident + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most if children else resource.getrlimit(resource.RLIMIT_AS)[1]))
        _confined.append(most)


@contextlib.contextmanager
def unconfined() -> Iterator[None]:
    """A process that is started inside doesn't get this one's memory limit."""
    if not _confined or sys.platform == "win32":
        yield
        return
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (_confined[-1], hard))


def allow_request(seconds: float) -> None:
    """Set the processor time for the next request, which may take ``seconds``."""
    if sys.platform != "win32":
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + seconds) + _CPU_SLACK_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def is_large() -> bool:
    """Whether this process has used so much memory that it should be restarted."""
    if sys.platform != "linux":
        return False
    # Not getrusage: its peak includes the parent's memory at the time of the fork.
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
    return int(peak) * 1024 > _LARGE


# ---------------------------------------------------------------- from outside


def footprint_reader() -> Callable[[int], int] | None:
    """A function that returns a process's memory in bytes, given its id; ``None`` if the system enforces the limit."""
    return _macos_footprint if sys.platform == "darwin" else None


class _ResourceUsage(ctypes.Structure):
    """``struct rusage_info_v0`` of macOS's ``<sys/resource.h>``."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        *((name, ctypes.c_uint64) for name in ("user_time", "system_time", "idle_wakeups", "interrupt_wakeups")),
        *((name, ctypes.c_uint64) for name in ("page_ins", "wired_size", "resident_size", "footprint")),
        *((name, ctypes.c_uint64) for name in ("start_time", "exit_time")),
    )


def _macos_footprint(process_id: int) -> int:
    usage = _ResourceUsage()
    failed = ctypes.CDLL("/usr/lib/libproc.dylib").proc_pid_rusage(process_id, 0, ctypes.byref(usage))
    return 0 if failed else int(usage.footprint)


class _BasicLimits(ctypes.Structure):
    """``JOBOBJECT_BASIC_LIMIT_INFORMATION`` of Windows."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class _ExtendedLimits(ctypes.Structure):
    """``JOBOBJECT_EXTENDED_LIMIT_INFORMATION`` of Windows."""

    _fields_ = (
        ("basic", _BasicLimits),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


_EXTENDED_LIMITS = 9
_LIMIT_PROCESS_MEMORY, _KILL_ON_CLOSE = 0x100, 0x2000


def put_into_job(process: Any) -> Callable[[], object]:
    """On Windows, put a process (a `subprocess.Popen`) into a job with the memory limit; elsewhere, do nothing.

    Returns a function that ends the job and its process. Raises `OSError`.
    """
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
        most = _ExtendedLimits(process_memory=MEMORY_LIMIT)
        most.basic.flags = _LIMIT_PROCESS_MEMORY | _KILL_ON_CLOSE
        handle = ctypes.c_void_p(int(process._handle))
        if (
            not job
            or not kernel.SetInformationJobObject(job, _EXTENDED_LIMITS, ctypes.byref(most), ctypes.sizeof(most))
            or not kernel.AssignProcessToJobObject(job, handle)
        ):
            error = ctypes.WinError(ctypes.get_last_error())
            kernel.CloseHandle(job)
            raise error
        return lambda: kernel.CloseHandle(job)
    return lambda: None
