"""A proxy on the loopback interface that writes down what a program asks a server, and what it gets."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class Exchange:
    """A request, and what came back; ``body`` is as the program sent it."""

    path: str
    body: Json
    program: str
    status: int = 0
    answer: str = ""
    seconds: float = 0.0

    @property
    def cached(self) -> tuple[int, int]:
        """Tokens of the prompt that were in the cache, and all of them."""
        counts = re.findall(r'"cache_n":(\d+),"prompt_n":(\d+)', self.answer)
        found, processed = map(int, counts[-1]) if counts else (0, 0)
        return found, found + processed


@dataclass
class Recorder:
    """What was asked so far.

    Attributes:
        overrides: Fields that requests get on their way, so that a small model ends in time.
        began: Set when the first bytes of an answer have come.
    """

    port: int
    target_port: int
    exchanges: list[Exchange] = field(default_factory=list)
    overrides: Json = field(default_factory=dict)
    began: threading.Event = field(default_factory=threading.Event)


@contextmanager
def recorder(target_port: int) -> Iterator[Recorder]:
    """In front of the server at ``target_port`` of 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.recorder = found = Recorder(server.server_port, target_port)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="recorder")
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not on standard error."""

    def _pass(self) -> None:
        known: Recorder = self.server.recorder  # type: ignore[attr-defined]
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        exchange = Exchange(self.path, _object(content), self.headers.get("User-Agent") or "")
        known.exchanges.append(exchange)
        if exchange.body:
            content = json.dumps({**exchange.body, **known.overrides}).encode()
        begun = time.monotonic()
        there = http.client.HTTPConnection("127.0.0.1", known.target_port, timeout=600)
        try:
            kept = {name: text for name, text in self.headers.items() if name.lower() not in _OWN}
            there.request(self.command, self.path, content or None, kept)
            self._answer(there.getresponse(), exchange, known)
        except OSError:
            self.close_connection = True  # the program has gone, and so does its request
        finally:
            there.close()
            exchange.seconds = time.monotonic() - begun

    def _answer(self, found: http.client.HTTPResponse, exchange: Exchange, known: Recorder) -> None:
        exchange.status = found.status
        self.send_response_only(found.status)
        for name, text in found.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, text)
        self.end_headers()  # HTTP/1.0: it ends with the connection
        while data := found.read1(65536):
            exchange.answer += data.decode(errors="replace")
            self.wfile.write(data)
            if exchange.body and b": ping" not in data:
                known.began.set()

    do_GET = do_POST = do_HEAD = _pass  # noqa: N815 - the names that http.server wants


_OWN = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}


def _object(content: bytes) -> Json:
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
