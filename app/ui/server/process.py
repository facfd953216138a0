"""The process of the server, as the window sees it: frames in, frames out."""

from __future__ import annotations

import logging

from PySide6.QtCore import QObject, Signal, Slot

from app import program
from app.client.state import ExitCause, LogLines
from app.protocol import serving as protocol
from app.protocol.frames import FrameReader, ProtocolError
from app.protocol.serving import Serve, ToServer
from app.ui.engine.child_process import ChildProcess

_log = logging.getLogger("slipstream.server")
_QUIT_MS = 2000


class ServerProcess(QObject):
    """At most one process at a time.

    Signals:
        received: A message of `app.protocol.serving.FromServer`.
        ended: The process ended although nobody had asked it to.
    """

    received = Signal(object)
    ended = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._reader = FrameReader()
        self._process = ChildProcess(self)
        self._process.output_received.connect(self._on_output)
        self._process.ended.connect(self._on_ended)

    def process_id(self) -> int:
        """0 when there is none."""
        return self._process.process_id()

    def start(self, first: Serve) -> None:
        """Start the process, with what it needs to know first; one that is running is ended before."""
        self.stop()
        self._process.start(program.own_command("--role=server"), LogLines(), protocol.encode(first))

    def send(self, message: ToServer) -> None:
        """Nothing happens when there is no process. Raises `ProtocolError` for what is too large."""
        self._process.write(protocol.encode(message))

    def stop(self) -> None:
        """End the process, by force if it doesn't end by itself. Doesn't wait, but hears nothing more of it."""
        self._reader = FrameReader()
        self._process.end(_QUIT_MS)

    def close(self) -> None:
        """The same for the last time; returns when the process is gone."""
        self._reader = FrameReader()
        self._process.close(_QUIT_MS)

    @Slot(object)
    def _on_output(self, data: bytes) -> None:
        reader = self._reader
        try:
            for body in reader.feed(data):
                self.received.emit(protocol.decode_from_server(body))
                if self._reader is not reader:
                    return  # ended by whoever received it
        except ProtocolError as error:
            _log.error("protocol violation: %s", error)
            self._process.kill()

    @Slot(object, str)
    def _on_ended(self, cause: ExitCause, detail: str) -> None:
        _log.warning("the server's process ended: %s (%s)", cause.value, detail)
        self._reader = FrameReader()
        self.ended.emit()
