"""The server with a real engine in a thread of its own, and a socket that says exactly what a test wants."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
import pytest

from app.protocol.answering import AnswerSettings
from app.protocol.commands import Load
from app.protocol.events import PairLoaded
from app.protocol.options import LoadSettings
from app.server.guard import Guard, Limits
from app.server.serving import serve

PATIENCE = 60.0
Json = dict[str, Any]


class Client:
    """Asks a server that listens at a port of 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return httpx2.get(self.url + path, headers=headers, timeout=PATIENCE)

    def post(self, path: str, body: Json, **headers: str) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, headers=headers, timeout=PATIENCE)

    def chat(self, content: str = "Well?", **fields: Any) -> Json:
        """The answer to a question, whole."""
        answer = self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields})
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def streamed(self, content: str = "Well?", **fields: Any) -> list[Json]:
        """The parts of an answer, which end as they should."""
        body = {"messages": [{"role": "user", "content": content}], "stream": True, **fields}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/event-stream"
        return events(answer.content)

    def wait_until_healthy(self) -> None:
        """Until a model is loaded."""
        end = time.monotonic() + PATIENCE
        while self.get("/health").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.02)

    @contextmanager
    def connected(self, *, receive_buffer: int = 0) -> Iterator[RawClient]:
        client = RawClient(self.port, receive_buffer)
        try:
            yield client
        finally:
            client.close()


class Served(Client):
    """A server from ``with`` to its end, at 127.0.0.1 and ::1."""

    def __init__(
        self,
        target: Path,
        draft: Path | None = None,
        *,
        guard: Guard | None = None,
        limits: Limits | None = None,
        context_length: int = 0,
        projector: Path | None = None,
        home: Path | None = None,
        usual: AnswerSettings = AnswerSettings(),  # noqa: B008 - frozen
    ) -> None:
        """``home``: where it keeps its files, if it outlives the test that starts it."""
        super().__init__(0)
        self._home, self._environment = home, pytest.MonkeyPatch()
        self._load = Load(
            request=0,
            target=str(target),
            draft=str(draft) if draft else None,
            projector=str(projector) if projector else None,
            settings=LoadSettings(threads=1, chat_cache_mib=0, context_length=context_length),
        )
        self._usual = usual
        self._guard, self._limits = guard or Guard(), limits
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="server")
        self.pair: PairLoaded | None = None
        self.model = ""

    def __enter__(self) -> Served:
        if self._home:
            self._environment.setenv("SLIPSTREAM_HOME", str(self._home))
        self._thread.start()
        assert self._is_ready.wait(PATIENCE)
        if self._error:
            self._thread.join()
            self._environment.undo()
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop and self._task:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE)
        self._environment.undo()
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        await serve(self._load, self._guard, usual=self._usual, limits=self._limits, on_ready=self._ready)

    def _ready(self, pair: PairLoaded, addresses: Sequence[tuple[str, int]], model: str) -> None:
        self.pair, self.port, self.model = pair, addresses[0][1], model
        self._is_ready.set()


class RawClient:
    """One connection."""

    def __init__(self, port: int, receive_buffer: int = 0) -> None:
        """``receive_buffer``: how many bytes the system keeps that aren't read; 0: as usual."""
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, body: Json, path: str = "/v1/chat/completions") -> None:
        """Send a request; `status` and `body` read the answer."""
        self.send(request("POST", path, json.dumps(body).encode()))

    def receive(self, wanted: bytes = b"\r\n\r\n") -> bytes:
        """All up to ``wanted``, or to the end."""
        data = b""
        while wanted not in data and (more := self.socket.recv(65536)):
            data += more
        return data

    def rest(self) -> bytes:
        """All up to the end."""
        data = b""
        try:
            while more := self.socket.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def close(self) -> None:
        self.socket.close()


def request(method: str, path: str, body: bytes = b"", *lines: str, host: str = "localhost") -> bytes:
    """A request as bytes; ``lines`` are more headers."""
    headers = [f"Host: {host}", *lines]
    if body:
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *headers, "", ""]).encode("latin-1") + body


def status(answer: bytes) -> int:
    """Of an answer as bytes; 0 if there is none."""
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(match[1]) if match else 0


def events(content: bytes) -> list[Json]:
    """The data of a stream that ends with ``[DONE]``."""
    texts = [part for part in content.decode().split("\n\n") if part.startswith("data: ")]
    assert texts[-1] == "data: [DONE]"
    return [json.loads(text.removeprefix("data: ")) for text in texts[:-1]]


def text_of(parts: Sequence[Json], name: str = "content") -> str:
    """What the deltas of a stream say together."""
    return "".join(choice["delta"].get(name) or "" for part in parts for choice in part["choices"])
