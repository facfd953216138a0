"""How a command reaches the chats: through the window if one is running, which has their file for itself."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import IO, TypeVar, cast

import msgspec

from app import paths
from app.chats import requests
from app.chats.requests import Answer, Refused, Request
from app.chats.store import ChatStore
from app.errors import KnownError
from app.protocol import frames
from app.protocol.window import CHATS, address_file

_PATIENCE_SECONDS = 60.0
"""How long the window may take for one answer: it may be writing an answer, or the disk may be slow."""
_LONGEST_ADDRESS = 4096
_PIPES = "\\\\.\\pipe\\"

T = TypeVar("T", bound=msgspec.Struct)


class Chats:
    """Asks for something of the chats."""

    def __init__(self, ask: Callable[[Request], Answer]) -> None:
        self._ask = ask

    def ask(self, request: Request, kind: type[T]) -> T:
        """The answer, which has to be of ``kind``. Raises `KnownError`."""
        answer = self._ask(request)
        if isinstance(answer, Refused):
            raise KnownError(answer.reason)
        if not isinstance(answer, kind):
            raise KnownError("The window that is running is of another version. Close it and try again.")
        return answer


@contextlib.contextmanager
def open_chats() -> Iterator[Chats]:
    """The chats, as long as they are needed. Raises `KnownError`."""
    stream = _window()
    if stream is None:
        with ChatStore(paths.chat_file()) as store:
            yield Chats(lambda request: requests.carry_out(store, request))
        return
    with stream:
        yield Chats(lambda request: _of_window(stream, request))


def _of_window(stream: IO[bytes], request: Request) -> Answer:
    try:
        frames.write(stream, frames.encode(request))
        body = frames.read(stream)
        if body is None:
            raise KnownError("The window was closed before this was done.")
        return frames.decode(requests.ANSWERS, body)
    except TimeoutError as error:
        raise KnownError("The window doesn't respond. Try again, or close it first.") from error
    except (OSError, frames.ProtocolError) as error:
        raise KnownError(f"The window can't be asked for the chats: {error}. Close it and try again.") from error


def _window() -> IO[bytes] | None:
    """A connection to the window that is running; ``None`` if there is none."""
    try:
        with address_file(paths.data_dir()).open("rb") as file:
            name = os.fsdecode(file.read(_LONGEST_ADDRESS))
        if not name:
            return None
        stream = _connected(name)
        stream.write(CHATS)
        stream.flush()
        return stream
    except OSError:
        return None  # it isn't running any more; if it is, the file of the chats can't be opened


def _connected(name: str) -> IO[bytes]:
    """Raises `OSError`."""
    if sys.platform == "win32":
        return open(_PIPES + name, "r+b", buffering=0)  # noqa: PTH123 - a pipe's name is no path
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_PATIENCE_SECONDS)
        connection.connect(name)
        return cast("IO[bytes]", connection.makefile("rwb"))
