"""A child process of the window: output and end by signal, frames in, and a log."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, Slot

from app import program
from app.client.state import ExitCause, LogLines, exit_cause, out_of_memory_kills

_log = logging.getLogger("slipstream.processes")
_LEFT_BEHIND: list[QProcess] = []
_GONE_MS = 2000
"""How long `close` waits for a process that was killed."""
_MOST_DEATHS, _DEATHS_WITHIN_SECONDS = 3, 300.0


class ChildProcess(QObject):
    """At most one process at a time: the next one starts when the one before, whose memory or port it may need, is
    gone. Nothing is heard any more of a process that was told to end.

    Signals:
        output_received: Bytes of its standard output.
        ended: It ended although nobody asked it to: an `ExitCause` and a detail, as `exit_cause` has them.
        gone: A process that was told to end is gone.
    """

    output_received = Signal(object)
    ended = Signal(object, str)
    gone = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._process: QProcess | None = None
        self._ending: QProcess | None = None
        """It has been told to end."""
        self._next: tuple[list[str], LogLines] | None = None
        """What is to be started when that is gone."""
        self._unwritten = b""
        """For the next process."""
        self._log = LogLines()
        self._memory_kills = 0
        self._patience = QTimer(self, singleShot=True)
        self._patience.timeout.connect(self._on_patience_ended)

    def process_id(self) -> int:
        """0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def is_ending(self) -> bool:
        """Whether a process that was told to end is still there."""
        return self._ending is not None

    def start(self, command: Sequence[str], log: LogLines, first: bytes = b"") -> None:
        """Start a process, whose standard error goes to ``log``, and write ``first`` to it. The one before must have
        been told to end."""
        self._next = list(command), log
        self._unwritten = first
        self._launch()

    def write(self, data: bytes) -> None:
        """Nothing happens when there is no process and none to be started."""
        if self._process is not None:
            self._process.write(data)
        elif self._next is not None:
            self._unwritten += data

    def kill(self) -> None:
        """End the process by force; `ended` follows."""
        if self._process is not None:
            self._process.kill()

    def end(self, patience_ms: int = 0) -> None:
        """End the process without waiting for it: close its input, and kill it when it is still there after
        ``patience_ms`` (0: at once)."""
        self._next = None
        if (process := self._process) is None:
            return
        self._let_go(process)
        self._ending = process
        process.stateChanged.connect(self._on_ending_changed)
        if patience_ms:
            process.closeWriteChannel()
            self._patience.start(patience_ms)
        else:
            process.kill()  # this may take long, because the system has a lot to free
        self._on_ending_changed(process.state())

    def close(self, patience_ms: int = 0) -> None:
        """The same for the last time; returns when the process is gone, or hangs in the system."""
        self.end(patience_ms)
        if (process := self._ending) is None or (patience_ms and process.waitForFinished(patience_ms)):
            return
        self._ending = None
        self._patience.stop()
        if patience_ms:
            process.kill()
        if process.state() is QProcess.ProcessState.NotRunning or process.waitForFinished(patience_ms or _GONE_MS):
            process.deleteLater()
            return
        # It hangs in the system, for example on a drive, and ends when it can. A QProcess waits in its destructor.
        _log.warning("a process did not end although it was killed")
        process.setParent(None)
        _LEFT_BEHIND.append(process)

    # ------------------------------------------------------------ beginning and end

    def _launch(self) -> None:
        if self._ending is not None or self._next is None:
            return
        (command, self._log), self._next = self._next, None
        self._memory_kills = out_of_memory_kills()
        process = QProcess(self)
        process.setProgram(command[0])
        process.setArguments(command[1:])
        process.setWorkingDirectory(str(program.FOLDER))
        process.setProcessEnvironment(child_environment(QProcessEnvironment.systemEnvironment()))
        if sys.platform != "win32":
            # A separate session, so that Ctrl+C in a terminal only reaches the window, which then ends the process.
            process.setUnixProcessParameters(QProcess.UnixProcessFlag.CreateNewSession)
        self._listen_to(process)
        process.start()
        if self._process is process and self._unwritten:  # it has not failed at once
            process.write(self._unwritten)

    def _listen_to(self, process: QProcess) -> None:
        self._process = process
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_log_output)
        process.finished.connect(self._on_finished)
        process.errorOccurred.connect(self._on_error)

    def _let_go(self, process: QProcess) -> None:
        process.readyReadStandardOutput.disconnect(self._on_output)
        process.readyReadStandardError.disconnect(self._on_log_output)
        process.finished.disconnect(self._on_finished)
        process.errorOccurred.disconnect(self._on_error)
        self._process = None

    @Slot(QProcess.ProcessState)
    def _on_ending_changed(self, state: QProcess.ProcessState) -> None:
        process = self._ending
        if process is None or state is not QProcess.ProcessState.NotRunning:
            return
        self._ending = None
        self._patience.stop()
        process.deleteLater()
        self.gone.emit()
        self._launch()

    @Slot()
    def _on_patience_ended(self) -> None:
        if self._ending is not None:
            self._ending.kill()

    @Slot()
    def _on_output(self) -> None:
        if self._process is not None:
            self.output_received.emit(bytes(self._process.readAllStandardOutput().data()))

    @Slot()
    def _on_log_output(self) -> None:
        if self._process is not None:
            self._log.add(bytes(self._process.readAllStandardError().data()))

    @Slot(int, QProcess.ExitStatus)
    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        process = self._process
        self._on_output()  # what it sent before it ended is still useful
        self._on_log_output()
        if process is not None and process is self._process:  # what it sent did not lead to a restart
            self._log.end()
            crashed = status is QProcess.ExitStatus.CrashExit
            self._drop(process, *exit_cause(code, crashed=crashed, memory_kills_before=self._memory_kills))

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        if self._process is not None and error is QProcess.ProcessError.FailedToStart:
            self._drop(self._process, ExitCause.FAILED_TO_START, self._process.errorString())

    def _drop(self, process: QProcess, cause: ExitCause, detail: str) -> None:
        self._let_go(process)
        process.deleteLater()
        self.ended.emit(cause, detail)


class CrashTracker:
    """Says when a process crashes too often to be restarted without asking."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=_MOST_DEATHS)

    def record(self, now: float) -> None:
        """Record a crash at ``now``, seconds on a monotonic clock."""
        self._deaths.append(now)

    def is_exhausted(self, now: float) -> bool:
        """Whether it crashed too often in the period that ends at ``now``."""
        return len(self._deaths) == _MOST_DEATHS and now - self._deaths[0] <= _DEATHS_WITHIN_SECONDS


def child_environment(own: QProcessEnvironment) -> QProcessEnvironment:
    """``own`` as changed by `program.child_environment`; unchanged variables keep their bytes, even if they aren't
    UTF-8.
    """
    values = {name: own.value(name) for name in own.keys()}  # noqa: SIM118 - not a mapping
    wanted = program.child_environment(values)
    environment = QProcessEnvironment(own)
    for name in values.keys() - wanted.keys():
        environment.remove(name)
    for name, value in wanted.items():
        if values.get(name) != value:
            environment.insert(name, value)
    return environment
