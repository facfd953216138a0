"""What a second start may ask of the first, over a real socket, and all that it may not."""

from __future__ import annotations

import logging
import os
import re
import socket as stdlib_socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from app.system import KnownError
from app.ui.shell.single_instance import (
    MAX_REQUEST_BYTES,
    SingleInstance,
    encode_request,
    is_ours,
    user_at,
)

WAIT_MS = 20_000
ROOT = Path(__file__).resolve().parents[3]


posix = pytest.mark.skipif(sys.platform == "win32", reason="sockets with a path, and users with a number")
root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user's process")
NOBODY = 65534


def address(data_dir: Path) -> str:
    return os.fsdecode((data_dir / "run" / "address").read_bytes())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "Модель\n1.GGUF"
    path.touch()
    return path


@pytest.fixture
def first(qtbot: QtBot, tmp_path: Path) -> Iterator[SingleInstance]:
    instance = SingleInstance(tmp_path)
    assert instance.acquire()
    yield instance
    instance.release()


@pytest.fixture
def socket(qtbot: QtBot, first: SingleInstance, tmp_path: Path) -> Iterator[QLocalSocket]:
    socket = QLocalSocket()
    socket.connectToServer(address(tmp_path))
    assert socket.waitForConnected(WAIT_MS)
    yield socket
    socket.abort()


def test_folder_is_held_until_it_is_released(qtbot: QtBot, first: SingleInstance, tmp_path: Path) -> None:
    second = SingleInstance(tmp_path)
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_a_file_is_handed_over(qtbot: QtBot, first: SingleInstance, socket: QLocalSocket, model: Path) -> None:
    with (
        qtbot.waitSignal(first.file_requested, timeout=WAIT_MS) as asked,
        qtbot.assertNotEmitted(first.raise_requested),
    ):
        socket.write(encode_request(model))
    assert asked.args == [str(model)]
    qtbot.waitUntil(lambda: socket.bytesAvailable() > 0, timeout=WAIT_MS)
    assert socket.readAll().data() == b"done\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"quit\n",
        b"open \n",
        b"open [1]\n",
        b'open "relative.gguf"\n',
        b'open "/no/such/model.gguf"\n',
        b'open "/etc/passwd"\n',
        b'open "/\xff.gguf"\n',
        b'open "/a\\u0000.gguf"\n',
        b'open "/' + b"a" * 5000 + b'.gguf"\n',
        b"open " + b"[" * (MAX_REQUEST_BYTES // 2) + b"\n",
        b"open " + b"x" * MAX_REQUEST_BYTES,
    ],
)
def test_anything_else_is_not_followed(
    qtbot: QtBot,
    first: SingleInstance,
    socket: QLocalSocket,
    request_bytes: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO),
        qtbot.assertNotEmitted(first.raise_requested),
        qtbot.assertNotEmitted(first.file_requested),
    ):
        socket.write(request_bytes)
        qtbot.waitUntil(lambda: socket.state() is QLocalSocket.LocalSocketState.UnconnectedState, timeout=WAIT_MS)
    assert "ignored a request" in caplog.text
    assert socket.readAll().isEmpty()


def raised(qtbot: QtBot, data_dir: Path) -> bool:
    """Whether another start raises the window."""
    code = f"""
        from pathlib import Path
        from app.ui.shell.single_instance import SingleInstance
        print(SingleInstance(Path({str(data_dir)!r})).raise_first())
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        qtbot.waitUntil(lambda: process.poll() is not None, timeout=WAIT_MS)
        assert process.stdout is not None
        return process.stdout.read() == "True\n"


def test_a_start_with_another_folder_for_temporary_files_finds_the_window(
    qtbot: QtBot, first: SingleInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    with qtbot.waitSignal(first.raise_requested, timeout=WAIT_MS):
        assert raised(qtbot, tmp_path)


@posix
def test_the_socket_is_in_a_folder_of_our_own(first: SingleInstance, tmp_path: Path) -> None:
    assert address(tmp_path) == str(tmp_path / "run" / "socket")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    first.release()
    assert list((tmp_path / "run").iterdir()) == []


@posix
@pytest.mark.parametrize("is_killed", [False, True])
def test_where_a_path_is_too_long_for_a_socket_another_folder_is_found(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        long = tmp_path / ("l" * 120)
        long.mkdir()
        instance = SingleInstance(long)
        assert instance.acquire()
        assert address(long).startswith(f"{short}/slipstream-")
        assert Path(address(long)).parent.stat().st_mode & 0o777 == 0o700
        second = SingleInstance(long)
        assert not second.acquire()
        with qtbot.waitSignal(instance.raise_requested, timeout=WAIT_MS):
            assert raised(qtbot, long)
        if is_killed:  # the next one cleans up
            instance._lock.unlock()
            assert second.acquire()
            assert len(list(Path(short).iterdir())) == 1
            second.release()
            instance._server.close()
        else:
            instance.release()
        assert list(Path(short).iterdir()) == []


@pytest.mark.parametrize("left", [b"", b"1", b"4242\nslipstream\nanother-host\n\n\n", b"\xff" * 5000])
def test_a_lock_that_a_killed_process_left_is_in_nobodys_way(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "lock").write_bytes(left)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "address").write_bytes(os.fsencode(tmp_path / "run" / "socket"))
    (tmp_path / "run" / "socket").touch()
    instance = SingleInstance(tmp_path)
    assert instance.acquire()
    assert not SingleInstance(tmp_path).acquire()
    instance.release()


@posix
def test_a_lock_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # as little to be opened as a file of another user
    with pytest.raises(KnownError, match=re.escape(f"can't open {tmp_path / 'lock'} (")) as raised:
        SingleInstance(tmp_path).acquire()
    assert "delete that file" in str(raised.value)


@posix
def test_the_kernel_says_who_is_at_the_other_end() -> None:
    ours, theirs = stdlib_socket.socketpair()
    with ours, theirs:
        assert user_at(ours.fileno()) == os.geteuid()
        assert is_ours(ours.fileno())
        assert user_at(ours.fileno()) == os.geteuid()  # asking did not close it
    with ours:
        assert not is_ours(-1)


def as_nobody(code: str) -> subprocess.Popen[str]:
    """A Python process of another user."""
    code = f"import os, socket, sys\nos.setuid({NOBODY})\n{textwrap.dedent(code)}"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@root
@pytest.mark.allow_logs
def test_another_user_is_not_heard(qtbot: QtBot, open_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    instance = SingleInstance(open_folder)
    assert instance.acquire()
    name = address(open_folder)
    Path(name).chmod(0o777)
    Path(name).parent.chmod(0o777)
    code = f"""
        s = socket.socket(socket.AF_UNIX)
        s.connect({name!r})
        try:
            s.sendall(b"raise\\n")
            print("heard", s.recv(9))
        except OSError as error:
            print("heard", b"")
        """
    with as_nobody(code) as process, qtbot.assertNotEmitted(instance.raise_requested):
        qtbot.waitUntil(lambda: process.poll() is not None, timeout=WAIT_MS)
        assert process.stdout is not None
        assert process.stdout.read() == "heard b''\n"
    assert "another user" in caplog.text
    instance.release()


@root
def test_another_users_socket_is_not_asked(qtbot: QtBot, open_folder: Path) -> None:
    name = str(open_folder / "socket")
    code = f"""
        s = socket.socket(socket.AF_UNIX)
        s.bind({name!r})
        s.listen()
        print("listening", flush=True)
        while True:
            asking, _ = s.accept()
            asking.sendall(b"done\\n")
        """
    (open_folder / "run").mkdir()
    (open_folder / "run" / "address").write_bytes(os.fsencode(name))
    with as_nobody(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        assert not SingleInstance(open_folder).raise_first()
        process.kill()
