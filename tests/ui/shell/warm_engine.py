"""An engine process that one window leaves to the next: starting one takes longer than most tests of a window."""

from __future__ import annotations

from typing import ClassVar

from PySide6.QtCore import QProcess, QTimer

from app.protocol.commands import Quit
from app.protocol.events import Hello
from app.protocol.frames import encode_frame
from app.ui.engine.client import EngineClient

_PATIENCE_MS = 10_000


class WarmEngine(EngineClient):
    """Has the process that was kept, if no other has it, and gives it back at its end, without the chats it knew.

    It stays as the window left it: what is loaded, and what was learned about the speed of models. One that ends in a
    test isn't replaced.
    """

    warm: ClassVar[QProcess | None] = None
    _kept: ClassVar[QProcess | None] = None
    """`warm`, while nobody has it."""
    _greeting: ClassVar[Hello | None] = None

    @classmethod
    def begin(cls) -> None:
        """Have a process ready from here on."""
        engine = cls()
        engine.start()
        WarmEngine.warm = process = engine._process._process
        while process is not None and engine.hello() is None and engine._process._process is process:
            process.waitForReadyRead(_PATIENCE_MS)
        engine.shutdown()

    @classmethod
    def close(cls) -> None:
        process, WarmEngine.warm, WarmEngine._kept = cls._kept, None, None
        if process is not None:
            process.write(encode_frame(Quit()))
            process.closeWriteChannel()
            process.waitForFinished(_PATIENCE_MS)

    def _start(self) -> None:
        process = self._kept
        is_running = process is not None and process.state() is QProcess.ProcessState.Running
        if process is None or not is_running or self._is_remote or not self.state().has_ended:
            super()._start()
            return
        WarmEngine._kept = None
        self._connection.start()
        self._process._log = self._connection.log
        process.setParent(self._process)
        self._process._listen_to(process)
        self._after()
        QTimer.singleShot(0, self, self._greet)

    def _greet(self) -> None:
        """As the process would, if it were new."""
        if self._process._process is self.warm and self._greeting is not None and self.hello() is None:
            for event in self._connection.receive(encode_frame(self._greeting)):
                self._tell(event)

    def shutdown(self) -> None:
        process = self._process._process
        if process is None or process is not self.warm or self.hello() is None or not self._give_back(process):
            super().shutdown()

    def _give_back(self, process: QProcess) -> bool:
        """Let the process end and forget what it does and has; whether it did that."""
        connection = self._connection
        self._process._let_go(process)
        WarmEngine._greeting = connection.hello
        had_to_forget = bool(connection.open_forgets)
        connection.cancel()
        connection.forget()
        while connection.state.is_busy or connection.open_forgets:
            while connection.is_sending():
                process.write(connection.bytes_to_send())
            if not process.waitForReadyRead(_PATIENCE_MS):
                return False
            list(connection.receive(bytes(process.readAllStandardOutput().data())))
        process.readAllStandardError()
        process.setParent(None)
        WarmEngine._kept = process
        if had_to_forget:
            self._end_forgetting()
        connection.stop()
        self._after()
        return True
