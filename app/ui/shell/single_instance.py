"""One window for each user and data folder: a second start raises the first window, optionally opening a file."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path

import msgspec
from PySide6.QtCore import QLockFile, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app import APPLICATION_ID, system
from app.models.names import SUFFIX
from app.system import KnownError

_log = logging.getLogger(__name__)

_RAISE = b"raise\n"
_OPEN = b"open "
_DONE = b"done\n"
_SOCKET, _PREFIX = "socket", "slipstream-"
_LONGEST_ADDRESS = 4096
MAX_REQUEST_BYTES = 65536
WAIT_MS = 2000
_UCRED = struct.Struct("=iII")

RUNNING_MUTEX = f"{APPLICATION_ID}.Running"
"""Setup and uninstaller on Windows look for it (`packaging/windows/slipstream.iss`)."""


def encode_request(file: Path | None) -> bytes:
    """The message of a second start: show the window, with ``file`` opened in it."""
    return _RAISE if file is None else _OPEN + msgspec.json.encode(str(file)) + b"\n"


def decode_request(request: bytes) -> Path | None:
    """The absolute path of an existing model to open; ``None`` for the window alone.

    Raises `ValueError` for anything else.
    """
    if request == _RAISE:
        return None
    if not request.startswith(_OPEN) or not request.endswith(b"\n"):
        raise ValueError("not one of our requests")
    try:
        path = Path(system.decode(request.removeprefix(_OPEN), str))
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    if not path.is_absolute() or path.suffix.lower() != SUFFIX or not path.is_file():
        raise ValueError("not the absolute path of an existing model")
    return path


def announce_running() -> None:
    """On Windows, let setup and uninstaller see that a window is open, until this process ends."""
    if sys.platform == "win32":
        import ctypes
        from ctypes import wintypes

        create = ctypes.WinDLL("kernel32", use_last_error=True).CreateMutexW
        create.argtypes = [wintypes.LPVOID, wintypes.BOOL, wintypes.LPCWSTR]
        create.restype = wintypes.HANDLE
        # The handle is never closed: the mutex has to exist until none of our files is in use.
        if not create(None, False, RUNNING_MUTEX):
            _log.warning("setup cannot see that Slipstream runs: %s", ctypes.WinError(ctypes.get_last_error()))


class SingleInstance(QObject):
    """Locks the data folder for this process, or contacts the process that has locked it.

    The lock decides which process is first; the socket only carries requests to show the window. The socket's address
    is in a file in the data folder, so that every start finds it regardless of its environment, and nobody else can
    take its place.

    Signals:
        raise_requested: Another start requests the window.
        file_requested: Another start requests the window with this file opened in it.
    """

    raise_requested = Signal()
    file_requested = Signal(str)

    def __init__(self, data_dir: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._folder = data_dir / "run"
        self._address = self._folder / "address"
        self._lock_path = data_dir / "lock"
        self._lock = QLockFile(str(self._lock_path))
        # The app may run for days: only a dead owner makes a lock stale, not its age.
        self._lock.setStaleLockTime(0)
        self._server = QLocalServer(self)
        if sys.platform == "win32":
            self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)

    def acquire(self) -> bool:
        """Whether this process is the first one. Raises `KnownError` if that can't be determined."""
        if not self._is_locked():
            return False
        try:
            _make_private(self._folder)
            self._remove_socket()
            name = self._listening()
            if name is None:
                _log.warning("a second start cannot raise this window: %s", self._server.errorString())
            else:
                part = self._address.with_name("address.part")
                part.write_bytes(os.fsencode(name))
                part.replace(self._address)
        except OSError as error:
            _log.warning("a second start cannot raise this window: %s", error)
        return True

    def raise_first(self, file: Path | None = None) -> bool:
        """Request the first process's window, with ``file`` opened; returns whether it answered."""
        name = self._read_address()
        if name is None:
            return False
        connection = QLocalSocket()
        connection.connectToServer(name)
        if not connection.waitForConnected(WAIT_MS) or not is_ours(int(connection.socketDescriptor())):
            return False
        connection.write(encode_request(file))
        received = b""
        while len(received) < len(_DONE) and connection.waitForReadyRead(WAIT_MS):
            received += bytes(connection.readAll().data())
        connection.disconnectFromServer()
        return received == _DONE

    def release(self) -> None:
        """Let the next start be the first."""
        self._server.close()
        with contextlib.suppress(OSError):
            self._remove_socket()
        self._lock.unlock()

    def _is_locked(self) -> bool:
        if self._lock.tryLock(0) or self._lock.error() is not QLockFile.LockError.LockFailedError:
            return True  # also if this file system has no locks
        # The file outlives a killed process; its text may then be truncated, or name a reused process id or another
        # host. The system's lock on it doesn't: Qt removes the file only if nobody holds that.
        if self._lock.removeStaleLockFile() and self._lock.tryLock(0):
            return True
        try:
            with self._lock_path.open("rb+"):
                return False
        except FileNotFoundError:
            return False  # the owner is just ending
        except OSError as error:
            raise KnownError(
                f"Slipstream can't start because it can't open {self._lock_path} ({error.strerror or error}). "
                "Another user or an administrator may have started it with this folder. If it isn't running, "
                "delete that file and start Slipstream again."
            ) from error

    def _listening(self) -> str | None:
        """The name of the socket this process listens at; ``None`` if it can't."""
        if sys.platform == "win32":
            name = f"slipstream-{os.urandom(16).hex()}"
            return name if self._server.listen(name) else None
        name = str(self._folder / _SOCKET)
        if self._server.listen(name):
            return name
        # A path may be too long for a socket (104 bytes on macOS, 108 on Linux), or its file system may not support
        # them.
        name = str(Path(tempfile.mkdtemp(prefix=_PREFIX)) / _SOCKET)
        return name if self._server.listen(name) else None

    def _read_address(self) -> str | None:
        try:
            with self._address.open("rb") as file:
                return os.fsdecode(file.read(_LONGEST_ADDRESS)) or None
        except OSError:
            return None

    def _remove_socket(self) -> None:
        """Remove the socket of this process, or of a killed one. Raises `OSError`."""
        name = self._read_address()
        self._address.unlink(missing_ok=True)
        if sys.platform == "win32":
            return
        (self._folder / _SOCKET).unlink(missing_ok=True)
        if name is not None and (folder := Path(name).parent).name.startswith(_PREFIX) and _is_private(folder):
            (folder / _SOCKET).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else was put there; it doesn't matter
                folder.rmdir()

    @Slot()
    def _on_connection(self) -> None:
        while (connection := self._server.nextPendingConnection()) is not None:
            connection.disconnected.connect(connection.deleteLater)
            if is_ours(int(connection.socketDescriptor())):
                connection.readyRead.connect(self._on_asked)
            else:
                _log.warning("another user asked for the window")
                connection.abort()

    @Slot()
    def _on_asked(self) -> None:
        connection = self.sender()
        if not isinstance(connection, QLocalSocket):
            return
        if not connection.canReadLine() and connection.bytesAvailable() < MAX_REQUEST_BYTES:
            return  # the rest is still to come
        line = bytes(connection.readLine(MAX_REQUEST_BYTES).data())
        try:
            file = decode_request(line)
        except (ValueError, OSError) as error:  # the second for a path that is too long
            _log.info("ignored a request from another process: %s", error)
            connection.abort()
            return
        connection.write(_DONE)
        if file is None:
            _log.info("a second start asks for the window")
            self.raise_requested.emit()
        else:
            _log.info("a second start asks for a model file to be opened")
            self.file_requested.emit(str(file))


def _make_private(folder: Path) -> None:
    """Create a folder that only this user can enter. Raises `OSError`, also if it belongs to another user."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if sys.platform != "win32" and not _is_private(folder):
        folder.chmod(0o700)  # fails if it belongs to another user


def _is_private(folder: Path) -> bool:
    """Whether ``folder`` is a real folder (no link) that only this user can enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_own = sys.platform == "win32" or status.st_uid == os.geteuid()
    return stat.S_ISDIR(status.st_mode) and is_own and not status.st_mode & 0o077


# ---------------------------------------------------------------- which user is at the other end of a socket


def user_at(descriptor: int) -> int | None:
    """The id of the user at the other end of the socket ``descriptor``; ``None`` if the system can't tell.

    Raises `OSError`. The macOS part follows its manual and is untested.
    """
    if sys.platform == "win32":
        return None
    if hasattr(socket, "SO_PEERCRED"):  # Linux
        with socket.socket(fileno=os.dup(descriptor)) as end:
            _, user, _ = _UCRED.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            return int(user)
    return _peer_of_socket(descriptor)


def is_ours(descriptor: int) -> bool:
    """Whether the other end belongs to this process's user, as far as the system can tell."""
    if sys.platform == "win32":
        return True  # the pipe admits no other user
    try:
        return user_at(descriptor) in (None, os.geteuid())
    except OSError:
        return False


def _peer_of_socket(descriptor: int) -> int | None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "getpeereid"):
        return None
    user, group = ctypes.c_uint32(), ctypes.c_uint32()
    if library.getpeereid(descriptor, ctypes.byref(user), ctypes.byref(group)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return user.value
