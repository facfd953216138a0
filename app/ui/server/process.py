"""The process of the server, as the window sees it: frames in, frames out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal, Slot

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
        self._reader = FrameReader()
        self._lines = LogLines()

    def process_id(self) -> int:
        """0 when there is none."""
        return int(self._process.processId()) if self._process else 0

    def is_running(self) -> bool:
        return self._process is not None

    def start(self, first: Serve) -> None:
        """Start the process, with what it needs to know first; one that runs is ended before."""
        self.stop()
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
        process.start()
        self.send(first)

    def send(self, message: ToServer) -> None:
        """Nothing happens when there is no process. Raises `ProtocolError` for what is too large."""
        if self._process is not None:
            self._process.write(protocol.encode(message))

    def stop(self) -> None:
        """End the process, by force if it doesn't end by itself; returns when it is gone."""
        process = self._let_go()
        if process is not None:
            process.closeWriteChannel()  # which tells it
            if not process.waitForFinished(_QUIT_MS):
                process.kill()
                process.waitForFinished(_QUIT_MS)
            process.deleteLater()

    def _let_go(self) -> QProcess | None:
        process, self._process = self._process, None
        if process is not None:
            process.readyReadStandardOutput.disconnect(self._on_output)
            process.readyReadStandardError.disconnect(self._on_log_output)
            process.finished.disconnect(self._on_ended)
            process.errorOccurred.disconnect(self._on_error)
        return process

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
        self._on_output()  # what it said last
        self._on_log_output()
        self._lines.end()
        if (process := self._let_go()) is not None:
            _log.warning("the server's process ended: %s", process.exitCode())
            process.deleteLater()
            self.ended.emit()

    @Slot(QProcess.ProcessError)
    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart and (process := self._let_go()) is not None:
            _log.warning("the server's process didn't start: %s", process.errorString())
            process.deleteLater()
            self.ended.emit()
