"""One window for each user and data folder: a second start raises the first window."""

from __future__ import annotations

import getpass
import hashlib
import logging
import sys
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

_log = logging.getLogger(__name__)

_RAISE = b"raise\n"
_DONE = b"done\n"
WAIT_MS = 2000

RUNNING_MUTEX = "app.slipstream.Slipstream.Running"
"""Setup and uninstaller on Windows look for it (`packaging/windows/slipstream.iss`)."""


def server_name(data_dir: Path) -> str:
    """The same for every start of this user with this data folder."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    digest = hashlib.sha256(f"{user}\0{data_dir.resolve()}".encode()).hexdigest()
    return f"slipstream-{digest[:24]}"


def announce_running() -> None:
    """Let Windows' setup and uninstaller see that a window is open, until this process ends. Elsewhere nothing."""
    if sys.platform == "win32":
        import ctypes
        from ctypes import wintypes

        create = ctypes.WinDLL("kernel32", use_last_error=True).CreateMutexW
        create.argtypes = [wintypes.LPVOID, wintypes.BOOL, wintypes.LPCWSTR]
        create.restype = wintypes.HANDLE
        # The handle is never closed: the mutex is to last until no file of ours is in use any more.
        if not create(None, False, RUNNING_MUTEX):
            _log.warning("setup cannot see that Slipstream runs: %s", ctypes.WinError(ctypes.get_last_error()))


class SingleInstance(QObject):
    """Holds the data folder for this process, or tells the process that holds it.

    The lock decides who is first; the socket only carries the wish to see the window. So a socket left behind by a
    process that was killed is never in the way.

    Signals:
        raise_requested: Another start asks for the window.
    """

    raise_requested = Signal()

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = server_name(data_dir)
        self._lock = QLockFile(str(data_dir / "lock"))
        # A chat app runs for days: age alone never makes a lock stale, a dead owner does.
        self._lock.setStaleLockTime(0)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def acquire(self) -> bool:
        """Whether this process is the first one."""
        if not self._lock.tryLock(0) and self._lock.error() is QLockFile.LockError.LockFailedError:
            return False
        QLocalServer.removeServer(self._name)
        if not self._server.listen(self._name):
            _log.warning("a second start cannot raise this window: %s", self._server.errorString())
        return True

    def raise_first(self) -> bool:
        """Ask the first process for its window; whether it answered."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(WAIT_MS):
            return False
        socket.write(_RAISE)
        received = b""
        while len(received) < len(_DONE) and socket.waitForReadyRead(WAIT_MS):
            received += bytes(socket.readAll().data())
        socket.disconnectFromServer()
        return received == _DONE

    def release(self) -> None:
        """Let the next start be the first."""
        self._server.close()
        self._lock.unlock()

    @Slot()
    def _on_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.readyRead.connect(self._on_asked)
            socket.disconnected.connect(socket.deleteLater)

    @Slot()
    def _on_asked(self) -> None:
        socket = self.sender()
        if not isinstance(socket, QLocalSocket):
            return
        # Whatever else is sent is not read: there is nothing else to ask for.
        if bytes(socket.read(len(_RAISE)).data()) == _RAISE:
            socket.write(_DONE)
            _log.info("a second start asks for the window")
            self.raise_requested.emit()
        else:
            socket.abort()
