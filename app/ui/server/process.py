"""The process of the server, as the window sees it: frames in, frames out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal, Slot

from app import program
from app.client.state import LogLines
from app.protocol import serving as protocol
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.serving import Serve, ToServer
from app.ui.engine.local_engine import child_environment

_log = logging.getLogger("slipstream.server")
_QUIT_MS = 2000


def server_command() -> list[str]:
    """Program and arguments, both from source and in a package."""
    return program.own_command("--role=server")


class ServerProcess(QObject):
    """At most one process at a time.

    Signals:
        received: A message of `app.protocol.serving.FromServer`.
        ended: The process ended although nobody had asked it to.
    """

    received = Signal(object)
    ended = Signal()

    def __init__(self, command: Sequence[str] | None = None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command or server_command())
        self._process: QProcess | None = None
        self._ending: QProcess | None = None
        """It has been told to end, and must be gone before the next one starts, which may need its port."""
        self._unsent: list[bytes] = []
        """For the next process, which starts when the one before is gone; empty if there is to be none."""
        self._reader = FrameReader()
        self._lines = LogLines()
        self._patience = QTimer(self, singleShot=True)
        self._patience.timeout.connect(self._on_patience_ended)

    def process_id(self) -> int:
        """0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def start(self, first: Serve) -> None:
        """Start the process, with what it needs to know first; one that is running is ended before."""
        self.stop()
        self._unsent.append(protocol.encode(first))
        self._launch()

    def send(self, message: ToServer) -> None:
        """Nothing happens when there is no process. Raises `ProtocolError` for what is too large."""
        if self._process is not None:
            self._process.write(protocol.encode(message))
        elif self._unsent:
            self._unsent.append(protocol.encode(message))

    def stop(self) -> None:
        """End the process, by force if it doesn't end by itself. Doesn't wait, but hears nothing more of it."""
        self._unsent.clear()
        if (process := self._process) is not None:
            self._let_go(process)
            self._ending = process
            process.stateChanged.connect(self._on_ending_changed)
            process.closeWriteChannel()  # which tells it
            self._patience.start(_QUIT_MS)
            self._on_ending_changed(process.state())

    def close(self) -> None:
        """The same for the last time; returns when the process is gone."""
        self.stop()
        if (process := self._ending) is not None and not process.waitForFinished(_QUIT_MS):
            process.kill()
            process.waitForFinished(_QUIT_MS)

    def _launch(self) -> None:
        if self._ending is not None or not self._unsent:
            return
        self._reader, self._lines = FrameReader(), LogLines()
        self._process = process = QProcess(self)
        process.setProgram(self._command[0])
        process.setArguments(self._command[1:])
        process.setWorkingDirectory(str(program.FOLDER))
        process.setProcessEnvironment(child_environment(QProcessEnvironment.systemEnvironment()))
        if sys.platform != "win32":
            process.setUnixProcessParameters(QProcess.UnixProcessFlag.CreateNewSession)  # Ctrl+C only reaches us
        process.readyReadStandardOutput.connect(self._on_output)
        process.readyReadStandardError.connect(self._on_log_output)
        process.finished.connect(self._on_ended)
        process.errorOccurred.connect(self._on_error)
        first = b"".join(self._unsent)
        self._unsent.clear()
        process.start()
        if self._process is process:  # it has not failed at once
            process.write(first)

    def _let_go(self, process: QProcess) -> None:
        process.readyReadStandardOutput.disconnect(self._on_output)
        process.readyReadStandardError.disconnect(self._on_log_output)
        process.finished.disconnect(self._on_ended)
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
        self._launch()

    @Slot()
    def _on_patience_ended(self) -> None:
        if self._ending is not None:
            self._ending.kill()

    @Slot()
    def _on_output(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            for body in self._reader.feed(bytes(process.readAllStandardOutput().data())):
                self.received.emit(protocol.decode_from_server(body))
                if self._process is not process:
                    return  # ended by whoever received it
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            process.kill()

    @Slot()
    def _on_log_output(self) -> None:
        if self._process is not None:
            self._lines.add(bytes(self._process.readAllStandardError().data()))

    @Slot()
    def _on_ended(self) -> None:
        process = self._process
        if process is None:
            return
        self._on_output()  # what it said last
        self._on_log_output()
        if self._process is not process:
            return  # whoever received that has started another one, or none
        self._lines.end()
        _log.warning("the server's process ended: %s", process.exitCode())
        self._drop(process)

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        process = self._process
        if process is not None and error is QProcess.ProcessError.FailedToStart:
            _log.warning("the server's process didn't start: %s", process.errorString())
            self._drop(process)

    def _drop(self, process: QProcess) -> None:
        self._let_go(process)
        process.deleteLater()
        self.ended.emit()
