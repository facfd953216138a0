"""Servers at an address that do what no server should."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.tools.messages import ServerEntry, StopServer
from tests.support.hostile_server import HELLO, TOOL
from tests.support.tool_process import Process

Answer = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON as it should, except to what the test names."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert isinstance(self.server, Server)
        method = asked.get("method", "")
        self.close_connection = True
        with contextlib.suppress(OSError):
            if method in self.server.answers:
                self.server.answers[method](self, asked)
            elif "id" not in asked:
                self.reply(202, "text/plain", b"")
            else:
                results = {"initialize": HELLO, "tools/list": {"tools": [TOOL]}, "tools/call": {"content": []}}
                self.answer(asked, results.get(method, {}))

    def do_GET(self) -> None:
        with contextlib.suppress(OSError):
            self.reply(405, "text/plain", b"no")

    def answer(self, asked: dict[str, Any], result: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        self.reply(200, "application/json", body)

    def reply(self, status: int, kind: str, body: bytes, **headers: str) -> None:
        self.begin(status, kind, **headers, Content_Length=str(len(body)))
        self.wfile.write(body)

    def begin(self, status: int, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    answers: dict[str, Answer]


def without_end(kind: str, data: bytes) -> Answer:
    def answer(handler: Handler, _asked: dict[str, Any]) -> None:
        handler.begin(200, kind)
        while True:
            handler.wfile.write(data)

    return answer


def fixed(status: int, kind: str, body: bytes, **headers: str) -> Answer:
    return lambda handler, asked: handler.reply(status, kind, body, **headers)


def asking(handler: Handler, asked: dict[str, Any]) -> None:
    """Events without end, each a question."""
    handler.begin(200, "text/event-stream")
    while True:
        body = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "ping"})
        handler.wfile.write(f"data: {body}\n\n".encode() * 100)


SSE, JSON = "text/event-stream", "application/json"
CASES: dict[str, tuple[str, Answer, str]] = {
    # what is asked, what it answers, and a part of what the user is told
    "a body without end": ("tools/call", without_end(JSON, b"x" * 65536), "too large"),
    "an event without end": ("tools/call", without_end(SSE, b"data: " + b"x" * 65536 + b"\n"), ""),
    "empty events without end": ("tools/call", without_end(SSE, b":\n\n" * 1000), ""),
    "questions without end": ("tools/call", asking, ""),
    "lists without end": ("tools/call", without_end(JSON, b"[" * 65536), "too large"),
    "a web page": ("tools/call", fixed(200, "text/html", b"<html>Log in</html>"), "content type"),
    "nothing": ("tools/call", fixed(202, "text/plain", b""), "202"),
    "an error of its own": ("tools/call", fixed(500, "text/html", b"<h1>Oops</h1>"), "HTTP 500"),
    "too many requests": ("tools/call", fixed(429, "text/plain", b"slow down"), "HTTP 429"),
    "no JSON": ("tools/call", fixed(200, JSON, b"\xff\xfe{"), ""),
    "a redirection elsewhere": (
        "tools/call",
        fixed(307, "text/plain", b"", Location="http://192.0.2.1/"),
        "not followed",
    ),
    "a redirection to itself": ("tools/call", fixed(307, "text/plain", b"", Location="/mcp"), ""),
    "half a body": ("tools/call", lambda handler, asked: handler.begin(200, JSON, Content_Length="1000"), ""),
    "a web page at the start": ("initialize", fixed(200, "text/html", b"<html>"), "content type"),
    "not found at the start": ("initialize", fixed(404, "text/html", b"<html>"), "HTTP 404"),
    "a wrong version": (
        "initialize",
        lambda handler, asked: handler.answer(asked, {**HELLO, "protocolVersion": "1"}),
        "version",
    ),
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_address(tools: Process, server: Server, name: str) -> None:
    method, answer, told = CASES[name]
    server.answers = {method: answer}
    entry = ServerEntry(name="hostile", url=f"http://127.0.0.1:{server.server_port}/mcp")
    found = tools.start([entry])["hostile"]
    if method == "initialize":
        assert (found.state, told in found.message) == ("failed", True), found.message
    else:
        assert found.state == "ready", found.message
        ended = tools.run("act", "hostile")
        assert (ended.state, told in ended.text) == ("failed", True), ended
        assert len(ended.text) < 1000
    assert tools.run("add", a=1, b=1).text == "2"
    tools.send(StopServer(name="hostile"))
    tools.until("hostile", "stopped")
