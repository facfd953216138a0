"""One window for each user and data folder: a second start raises the first window, and may have it open a file."""

from __future__ import annotations

import getpass
import hashlib
import logging
import sys
from pathlib import Path

import msgspec
from PySide6.QtCore import QLockFile, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app import APPLICATION_ID
from app.opened_file import SUFFIX

_log = logging.getLogger(__name__)

_RAISE = b"raise\n"
_OPEN = b"open "
_DONE = b"done\n"
MAX_REQUEST_BYTES = 65536
WAIT_MS = 2000

RUNNING_MUTEX = f"{APPLICATION_ID}.Running"
"""Setup and uninstaller on Windows look for it (`packaging/windows/slipstream.iss`)."""


def encode_request(file: Path | None) -> bytes:
    """What a second start sends: the wish to see the window, with ``file`` opened in it."""
    return _RAISE if file is None else _OPEN + msgspec.json.encode(str(file)) + b"\n"


def decode_request(request: bytes) -> Path | None:
    """The file to be opened, an absolute path of a model that is there; ``None``: the window alone.

    Raises `ValueError` for anything else.
    """
    if request == _RAISE:
        return None
    if not request.startswith(_OPEN) or not request.endswith(b"\n"):
        raise ValueError("no request of ours")
    try:
        path = Path(msgspec.json.decode(request.removeprefix(_OPEN), type=str))
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    if not path.is_absolute() or path.suffix.lower() != SUFFIX or not path.is_file():
        raise ValueError("no absolute path of a model that is there")
    return path


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
        file_requested: Another start asks for the window with this file opened in it.
    """

    raise_requested = Signal()
    file_requested = Signal(str)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        # The first of these that works: a name is put into the folder for temporary files, which may be read-only.
        self._names = server_name(data_dir), str(data_dir / "socket")
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
        for name in self._names:
            QLocalServer.removeServer(name)
        if not any(self._server.listen(name) for name in self._names):
            _log.warning("a second start cannot raise this window: %s", self._server.errorString())
        return True

    def raise_first(self, file: Path | None = None) -> bool:
        """Ask the first process for its window, and to open ``file``; whether it answered."""
        socket = QLocalSocket()
        if not any(_connected(socket, name) for name in self._names):
            return False
        socket.write(encode_request(file))
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
        if not socket.canReadLine() and socket.bytesAvailable() < MAX_REQUEST_BYTES:
            return  # the rest is still to come
        try:
            file = decode_request(bytes(socket.readLine(MAX_REQUEST_BYTES).data()))
        except (ValueError, OSError) as error:  # the second of a path that is too long
            _log.info("a request of another process is not followed: %s", error)
            socket.abort()
            return
        socket.write(_DONE)
        if file is None:
            _log.info("a second start asks for the window")
            self.raise_requested.emit()
        else:
            _log.info("a second start asks for a model file to be opened")
            self.file_requested.emit(str(file))


def _connected(socket: QLocalSocket, name: str) -> bool:
    socket.connectToServer(name)
    return socket.waitForConnected(WAIT_MS)
