"""The engine's process as the system sees it: how it is started, with what environment, and why it ended."""

from __future__ import annotations

import logging
import signal
import sys
from collections import deque
from pathlib import Path

from PySide6.QtCore import QProcess, QProcessEnvironment

from app import program
from app.ui.engine.interface import LOG_LINES_KEPT, ExitCause

_log = logging.getLogger("slipstream.engine")
_MAX_LINE_CHARS = 2000
_LEFT_BEHIND: list[QProcess] = []


def engine_command() -> list[str]:
    """Program and arguments of the engine process, from source and frozen alike."""
    return program.own_command("--role=engine")


def child_environment(own: QProcessEnvironment) -> QProcessEnvironment:
    """``own`` without anything that looks like a secret or a proxy, which may carry one."""
    environment = QProcessEnvironment(own)
    for name in own.keys():  # noqa: SIM118 - not a mapping
        if program.is_secret(name):
            environment.remove(name)
    environment.insert(program.RESET_VARIABLE, "1")
    return environment


def prepare(process: QProcess, command: list[str]) -> None:
    """Set everything but the signals."""
    process.setProgram(command[0])
    process.setArguments(command[1:])
    process.setWorkingDirectory(str(program.FOLDER))
    process.setProcessEnvironment(child_environment(QProcessEnvironment.systemEnvironment()))
    if sys.platform != "win32":
        # A session of its own, so that Ctrl+C in a terminal reaches the window alone, which then ends the engine.
        process.setUnixProcessParameters(QProcess.UnixProcessFlag.CreateNewSession)


def wait_until_gone(process: QProcess, seconds: float) -> None:
    """Wait at most so long for the end of ``process``, and be done with it."""
    if process.state() is QProcess.ProcessState.NotRunning or process.waitForFinished(round(seconds * 1000)):
        process.deleteLater()
        return
    # It hangs in the system, on a drive for instance, and ends when that lets it. A QProcess waits in its destructor.
    _log.warning("the engine does not end, although it was killed")
    process.setParent(None)
    _LEFT_BEHIND.append(process)


class LogLines:
    """What a process writes to its standard error: copied line by line into our log, and the last lines kept."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._partial = ""

    def add(self, text: str) -> None:
        """More output, cut anywhere."""
        *lines, rest = (self._partial + text).split("\n")
        self._partial = rest[-_MAX_LINE_CHARS:]
        for line in lines:
            kept = line.rstrip("\r")[:_MAX_LINE_CHARS]
            self._lines.append(kept)
            _log.info("| %s", kept)

    def end(self) -> None:
        """No more output comes: a last line without an end counts too."""
        if self._partial:
            self.add("\n")

    def kept(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)


def cause_of_crash(code: int, memory_kills_before: int) -> tuple[ExitCause, str]:
    """What a crash exit means. ``code`` is the signal, on Windows the exception; and the count when it started."""
    if sys.platform == "win32":
        return ExitCause.CRASHED, f"code {code & 0xFFFFFFFF:#010x}"
    try:
        name = signal.Signals(code).name
    except ValueError:
        name = f"signal {code}"
    if code == signal.SIGKILL and out_of_memory_kills() > memory_kills_before:
        return ExitCause.OUT_OF_MEMORY, name
    if code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return ExitCause.KILLED, name
    return (ExitCause.ABORTED if code == signal.SIGABRT else ExitCause.CRASHED), name


def out_of_memory_kills() -> int:
    """Processes the kernel has ended for memory so far, on this machine and in this control group; 0 if unknown."""
    kills = _counter(Path("/proc/vmstat"))
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return kills
    for line in groups:
        path = line.rpartition(":")[2].lstrip("/")
        kills += _counter(Path("/sys/fs/cgroup") / path / "memory.events")
    return kills


def _counter(path: Path) -> int:
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0
