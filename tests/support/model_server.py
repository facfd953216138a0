"""A server on the loopback that says exactly what a test wants, byte by byte: recorded streams of other people's
engines, and everything that can go wrong on the way.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Json


class Wait:
    """In a content: nothing more comes until the test lets it, or the client is gone."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.left = threading.Event()
        """The client has closed the connection meanwhile."""


class Cut:
    """In a content: the connection is reset."""


Piece = bytes | Wait | type[Cut]


@dataclass(frozen=True)
class Reply:
    """What is answered. Without ``is_open`` the length is announced, which several pieces don't have."""

    content: Sequence[Piece] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(value: object, status: int = 200, **headers: str) -> Reply:
        """JSON."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        return Reply([json.dumps(value).encode()], status, {"Content-Type": "application/json", **given})

    @staticmethod
    def stream(*pieces: Piece, **headers: str) -> Reply:
        """Server-sent events, in chunks."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        return Reply(pieces, 200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **given})


Answer = Reply | Callable[[Asked], Reply]
NOT_FOUND = Reply.of({"detail": "Not Found"}, 404)


class ModelServer:
    """Answers by path, from ``with`` to its end."""

    def __init__(self, routes: dict[str, Answer], *, certificate: str = "") -> None:
        """``certificate``: a file with a certificate and its key, for https."""
        self.routes = routes
        self.asked: list[Asked] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "https" if certificate else "http"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="model-server")

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def bodies(self, path: str) -> list[Json]:
        """What was sent to a path."""
        return [one.body for one in self.asked if one.path == path]

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    owner: ModelServer
    daemon_threads = False
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes is nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, parse_qs(parts.query), headers, json.loads(body) if body else {})
        owner = self.server.owner
        owner.asked.append(asked)
        answer = owner.routes.get(parts.path, NOT_FOUND)
        self._send(answer(asked) if callable(answer) else answer)

    def _send(self, reply: Reply) -> None:
        self.close_connection = True
        self.send_response_only(reply.status)
        headers = {"Connection": "close", **reply.headers}
        is_chunked = headers.get("Transfer-Encoding") == "chunked"
        if not is_chunked and "Content-Length" not in headers:
            headers["Content-Length"] = str(sum(len(one) for one in reply.content if isinstance(one, bytes)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in reply.content:
            if isinstance(piece, Wait):
                self._wait(piece)
            elif piece is Cut:
                # With no time to linger, closing resets the connection.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            elif isinstance(piece, bytes):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        if is_chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _wait(self, wait: Wait) -> None:
        wait.reached.set()
        self.connection.settimeout(0.01)
        while not wait.go_on.is_set():
            try:
                if not self.connection.recv(1):
                    wait.left.set()
                    raise ConnectionAbortedError
            except TimeoutError:
                continue
            except OSError:
                wait.left.set()
                raise
        self.connection.settimeout(None)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
