"""What an engine is doing; how its process ended, what it logged before, and what that means for the user."""

from __future__ import annotations

import enum
import logging
import signal
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from app.errors import KnownError
from app.logs import redact

_log = logging.getLogger("slipstream.engine")
_MAX_LINES = 40
_MAX_LINE_CHARS = 2000


class EngineState(enum.Enum):
    """What the engine is doing; exactly one state at a time."""

    STOPPED = "stopped"
    STARTING = "starting"
    EMPTY = "no model"
    LOADING = "loading"
    READY = "ready"
    ANSWERING = "answering"
    MEASURING = "measuring"
    COMPARING = "comparing"
    SERVING = "serving"
    """An answer for another program."""
    DIED = "died"

    @property
    def is_busy(self) -> bool:
        """Whether something is running that can be canceled."""
        return self in (
            EngineState.LOADING,
            EngineState.ANSWERING,
            EngineState.MEASURING,
            EngineState.COMPARING,
            EngineState.SERVING,
        )

    @property
    def has_pair(self) -> bool:
        """Whether a pair is loaded, busy or not."""
        return self is EngineState.READY or (self.is_busy and self is not EngineState.LOADING)

    @property
    def has_ended(self) -> bool:
        """Whether there is no process."""
        return self in (EngineState.STOPPED, EngineState.DIED)


class ExitCause(enum.Enum):
    """Why an engine ended unexpectedly."""

    KILLED = "killed"
    OUT_OF_MEMORY = "out of memory"
    ABORTED = "aborted"
    CRASHED = "crashed"
    EXITED = "exited"
    PROTOCOL = "protocol"
    FAILED_TO_START = "failed to start"
    REFUSED = "refused to start"


_SENTENCES = {
    ExitCause.KILLED: "The engine was stopped by another program ({}).",
    ExitCause.OUT_OF_MEMORY: "The engine was stopped by the system, probably because memory ran out.",
    ExitCause.ABORTED: "The engine stopped because of an internal error ({}).",
    ExitCause.CRASHED: "The engine crashed ({}).",
    ExitCause.EXITED: "The engine stopped unexpectedly ({}).",
    ExitCause.PROTOCOL: "The engine sent something that Slipstream doesn't understand, so it was stopped.",
    ExitCause.FAILED_TO_START: "The engine didn't start ({}).",
    ExitCause.REFUSED: "The engine didn't start. {}",
}


@dataclass(frozen=True)
class EngineExit:
    """How an engine ended that nobody had asked to end.

    Attributes:
        cause: What kind of end it was.
        detail: Signal name, exit code or protocol error, for the report; if it refused to start, its own explanation.
        state: What the engine was doing.
        log_lines: The last lines it logged, oldest first.
    """

    cause: ExitCause
    detail: str
    state: EngineState
    log_lines: tuple[str, ...] = ()

    def sentence(self) -> str:
        """One sentence that states the cause."""
        return _SENTENCES[self.cause].format(self.detail)

    def report(self) -> str:
        """Plain text for a bug report: cause, state and the last log lines, home folder redacted."""
        lines = [
            "Slipstream engine report",
            f"cause: {self.cause.value}",
            f"detail: {self.detail}",
            f"while: {self.state.value}",
            "",
            "last log lines:",
            *(self.log_lines or ("(none)",)),
        ]
        return redact("\n".join(lines))


class EngineEndedError(KnownError):
    """The engine's process ended while it was needed; `ended` describes how."""

    def __init__(self, ended: EngineExit) -> None:
        super().__init__(ended.sentence())
        self.ended = ended
        self.add_note("\n".join(ended.log_lines))


class LogLines:
    """The standard error of a process: copied into our log line by line, with the last lines kept for the report."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._partial = ""

    def add(self, data: bytes) -> None:
        """Add more output, which may be cut anywhere."""
        *lines, rest = (self._partial + data.decode("utf-8", "replace")).split("\n")
        self._partial = rest[-_MAX_LINE_CHARS:]
        for line in lines:
            shown = line.rstrip("\r")[:_MAX_LINE_CHARS]
            self._lines.append(shown)
            _log.info("| %s", shown)

    def end(self) -> None:
        """The output has ended: a last line without a line break counts, too."""
        if self._partial:
            self.add(b"\n")

    def last(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)


def exit_cause(code: int, *, crashed: bool, memory_kills_before: int) -> tuple[ExitCause, str]:
    """What the end of a process means.

    ``code`` is the exit code; after a crash the signal, on Windows the exception. ``memory_kills_before``:
    `out_of_memory_kills` when the process was started.
    """
    if not crashed:
        return ExitCause.EXITED, f"exit code {code}"
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
    """How many processes the kernel has killed to free memory, on this machine and in this control group, or 0."""
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
