"""What a second start may ask of the first, over a real socket, and all that it may not."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from app.ui.single_instance import (
    MAX_REQUEST_BYTES,
    SingleInstance,
    decode_request,
    encode_request,
    server_name,
)

WAIT_MS = 20_000


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
    socket.connectToServer(server_name(tmp_path))
    assert socket.waitForConnected(WAIT_MS)
    yield socket
    socket.abort()


def test_a_request_survives_the_way(model: Path) -> None:
    assert decode_request(encode_request(None)) is None
    assert decode_request(encode_request(model)) == model


def test_folder_is_held_until_it_is_released(qtbot: QtBot, first: SingleInstance, tmp_path: Path) -> None:
    second = SingleInstance(tmp_path)
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_other_folders_are_other_instances(tmp_path: Path) -> None:
    assert server_name(tmp_path / "a") != server_name(tmp_path / "b")
    assert server_name(tmp_path / "a") == server_name(tmp_path / "a")


def test_a_file_is_handed_over(qtbot: QtBot, first: SingleInstance, socket: QLocalSocket, model: Path) -> None:
    with (
        qtbot.waitSignal(first.file_requested, timeout=WAIT_MS) as asked,
        qtbot.assertNotEmitted(first.raise_requested),
    ):
        socket.write(encode_request(model))
    assert asked.args == [str(model)]
    qtbot.waitUntil(lambda: socket.bytesAvailable() > 0, timeout=WAIT_MS)
    assert socket.readAll().data() == b"done\n"


def test_a_request_may_come_in_parts(qtbot: QtBot, first: SingleInstance, socket: QLocalSocket, model: Path) -> None:
    whole = encode_request(model)
    with qtbot.waitSignal(first.file_requested, timeout=WAIT_MS):
        for place in range(len(whole)):
            socket.write(whole[place : place + 1])
            socket.flush()
            qtbot.wait(0)


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
    assert "is not followed" in caplog.text
    assert socket.readAll().isEmpty()


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ValueError, match="no absolute path"):
        decode_request(encode_request(tmp_path / "folder.gguf"))


def test_without_a_folder_for_temporary_files_the_socket_is_in_our_own(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory() as short:  # a socket's path is short
        monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
        instance = SingleInstance(Path(short))
        assert instance.acquire()
        assert instance._server.fullServerName() == str(Path(short) / "socket")
        instance.release()
