"""A server on loopback that speaks what Slipstream uses of Hugging Face, and misbehaves on demand.

Two hosts, as there: the hub answers the API and sends who asks for a file on to the CDN. The shapes of the answers
follow what huggingface_hub 2.4 reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest

from app.models.hub.repository import RemoteFile
from tests.support.hub_faults import PIECE, Fault, Faults
from tests.support.hub_repository import HostedFile, HostedRepository

WAIT_S = 30


def _second_host() -> str:
    """Another name of this machine. A system without /etc/hosts does not know ``localhost``."""
    try:
        socket.getaddrinfo("localhost", None, socket.AF_INET)
    except OSError:
        return "127.0.0.2"
    return "localhost"


def without_settings_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no hub that the environment names."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


CDN_HOST = _second_host()
_PAGE = 1000
_SEND = 4 * 1024 * 1024


@dataclass
class Request:
    """One request and what was answered."""

    host: Literal["hub", "cdn"]
    method: str
    path: str
    """Of the URL, with the query."""
    headers: dict[str, str]
    """Names in lower case."""
    status: int = 0
    start: int = 0
    """Where in the file the content begins."""
    sent: int = 0
    """Bytes of the content that went out."""

    @property
    def authorization(self) -> str | None:
        return self.headers.get("authorization")

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class HubServer:
    """The two hosts, from ``with`` to its end. ``tokens`` are the users' that may read gated repositories."""

    cdn: bool = True
    """Whether files come from the second host; else the hub sends them itself."""
    tokens: set[str] = field(default_factory=lambda: {"hf_good"})
    strangers: set[str] = field(default_factory=lambda: {"hf_stranger"})
    """Sound tokens of users who did not accept any terms."""
    certificate: Path | None = None
    """A PEM file with a key and a certificate, to speak TLS."""

    def __post_init__(self) -> None:
        self.repositories: dict[str, HostedRepository] = {}
        self.faults = Faults()
        self.requests: list[Request] = []
        self.changed = threading.Condition()
        self._released = threading.Event()
        self._servers: list[_Server] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> HubServer:
        for host in ("hub", "cdn"):
            server = _Server(self, host)
            thread = threading.Thread(target=server.serve_forever, args=(0.005,), name=host, daemon=True)
            thread.start()
            self._servers.append(server)
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            server.hang_up()
            server.server_close()
            thread.join()

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn_endpoint(self) -> str:
        """The same machine by another name: another host for who keeps a token from others."""
        return f"{self._scheme}://{CDN_HOST}:{self._servers[1].server_port}"

    @property
    def _scheme(self) -> str:
        return "https" if self.certificate else "http"

    def add(self, id: str, files: Mapping[str, bytes | Path], **about: Any) -> HostedRepository:
        """Host a repository, in place of an earlier one of that name; ``about`` as in `HostedRepository`."""
        hosted = {path: HostedFile.of(content) for path, content in files.items()}
        text = json.dumps([id, {path: file.sha256 for path, file in hosted.items()}])
        about.setdefault("commit", hashlib.sha1(text.encode()).hexdigest())
        repository = HostedRepository(id=id, files=hosted, **about)
        self.repositories[id] = repository
        return repository

    def remote_file(self, id: str, path: str) -> RemoteFile:
        """A file as Slipstream knows it after it asked for the repository."""
        repository = self.repositories[id]
        file = repository.files[path]
        return RemoteFile(repository=id, commit=repository.commit, path=path, size=file.size, sha256=file.sha256)

    def release(self) -> None:
        """Let all stalled answers go on, and those to come."""
        self._released.set()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until what the server did makes this true; `AssertionError` after half a minute."""
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), "the server was not asked for what the test waits for"

    def bodies(self, path: str = "") -> list[Request]:
        """The answers so far that sent the content of files, in order; all or one file's."""
        with self.changed:
            mine = [request for request in self.requests if request.method == "GET" and request.status in (200, 206)]
        return [one for one in mine if "/api/" not in one.path and unquote(urlsplit(one.path).path).endswith(path)]

    def note(self, request: Request | None = None) -> None:
        with self.changed:
            if request is not None:
                self.requests.append(request)
            self.changed.notify_all()

    def wait_for_release(self) -> None:
        self._released.wait(WAIT_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, hub: HubServer, host: Literal["hub", "cdn"]) -> None:
        super().__init__((CDN_HOST if host == "cdn" else "127.0.0.1", 0), _Handler)
        if hub.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(hub.certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.hub = hub
        self.host: Literal["hub", "cdn"] = host
        self._connections: set[Any] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep for a next request, and with them the threads that wait for it."""
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    record: Request

    def log_message(self, format: str, *arguments: Any) -> None:
        """The requests are recorded instead."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.record = Request(self.server.host, self.command, self.path, headers)
        self.server.hub.note(self.record)
        path = unquote(urlsplit(self.path).path)
        if self.server.host == "cdn":
            self._file_of(path.removeprefix("/cdn/"), "body")
        elif path.startswith("/api/"):
            self._api(path)
        else:
            self._file_of(path.removeprefix("/").replace("/resolve/", "/", 1), "resolve")

    @property
    def _hub(self) -> HubServer:
        return self.server.hub

    # --- the API

    def _api(self, path: str) -> None:
        fault = self._hub.faults.take(path, "api")
        if fault.stall_at is not None:
            self._hub.wait_for_release()
        if fault.status is not None:
            self._answer(fault.status, dict(fault.headers))
        elif fault.content is not None:
            self._answer(200, {"Content-Length": str(len(fault.content)), **dict(fault.headers)})
            self.wfile.write(fault.content)
        elif path == "/api/models":
            self._search(parse_qs(urlsplit(self.path).query))
        elif path == "/api/whoami-v2":
            self._json({"type": "user", "name": "somebody", "auth": {"type": "access_token"}})
        elif path.startswith("/api/models/"):
            self._about(path.removeprefix("/api/models/"))
        else:
            self._refuse(404, "", "Not found")

    def _search(self, query: dict[str, list[str]]) -> None:
        words = " ".join(query.get("search", [])).lower().split()
        found = [
            repository
            for repository in self._hub.repositories.values()
            if all(word in repository.id.lower() for word in words)
            and query.get("author", [repository.id.split("/")[0]])[0] == repository.id.split("/")[0]
            and all(tag in repository.info()["tags"] for tag in query.get("filter", []))
            and not repository.private
        ]
        order = query.get("sort", ["downloads"])[0]
        keys: dict[str, Callable[[HostedRepository], Any]] = {
            "likes": lambda repository: repository.likes,
            "lastModified": lambda repository: repository.modified,
            "createdAt": lambda repository: repository.modified,
        }
        found.sort(key=keys.get(order, lambda repository: repository.downloads), reverse=True)
        start, size = int(query.get("cursor", ["0"])[0]), int(query.get("limit", [str(_PAGE)])[0])
        headers = {}
        if start + size < len(found):
            rest = self.path.split("&cursor=")[0]
            headers["Link"] = f'<{self._hub.endpoint}{rest}&cursor={start + size}>; rel="next"'
        self._json([repository.info(blobs=False) for repository in found[start : start + size]], headers)

    def _about(self, rest: str) -> None:
        parts = rest.split("/")
        repository = self._repository("/".join(parts[:2]))
        if repository is None:
            return
        what, revision, folder = ([*parts[2:4], "", ""])[0], "/".join(parts[3:4]), "/".join(parts[4:])
        if revision not in ("", "main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif what == "tree":
            self._json(repository.tree(folder, recursive="recursive=true" in self.path.lower()))
        else:
            query = parse_qs(urlsplit(self.path).query)
            info = repository.info(blobs="blobs" in query)
            wanted = {"_id", "id", *query.get("expand", info)}
            self._json({key: value for key, value in info.items() if key in wanted})

    # --- files

    def _file_of(self, path: str, at: Literal["resolve", "body"]) -> None:
        """Answer for ``owner/name/commit/path``."""
        owner, name, revision, inside = ([*path.split("/", 3), "", "", ""])[:4]
        repository = (
            self._hub.repositories.get(f"{owner}/{name}") if at == "body" else self._repository(f"{owner}/{name}")
        )
        if repository is None:
            if at == "body":
                self._refuse(404, "", "")
            return
        fault = self._hub.faults.take(inside, at)
        if fault.status is not None:
            self._answer(fault.status, dict(fault.headers))
        elif fault.redirect is not None:
            self._answer(302, {"Location": fault.redirect})
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif inside not in repository.files:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif at == "body" or self._may_read(repository):
            self._send_on(repository, inside, at, fault)

    def _send_on(self, repository: HostedRepository, path: str, at: str, fault: Fault) -> None:
        file = repository.files[path]
        if at == "body":
            self._body(file, {}, fault)
            return
        headers = {
            "X-Repo-Commit": repository.commit,
            "X-Linked-Size": str(file.size),
            "X-Linked-ETag": f'"{file.sha256}"',
            "Accept-Ranges": "bytes",
        }
        if self._hub.cdn:
            where = f"{self._hub.cdn_endpoint}/cdn/{repository.id}/{repository.commit}/{quote(path)}"
            headers["Location"] = f"{where}?Signature={len(self._hub.requests)}"
            self._answer(302, headers | dict(fault.headers))
        else:
            self._body(file, headers, self._hub.faults.take(path, "body"))

    def _body(self, file: HostedFile, headers: dict[str, str], fault: Fault) -> None:
        if fault.content is not None:
            file = HostedFile.of(fault.content)
        asked = None if fault.ignore_range else self._range(file.size)
        start, end = asked or (0, file.size)
        headers |= {"ETag": f'"{file.sha256}"', "Content-Length": str(end - start)}
        if asked is not None:
            if start >= file.size:
                self._answer(416, {"Content-Range": f"bytes */{file.size}"})
                return
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
        self.record.start = start
        self._answer(200 if asked is None else 206, headers | dict(fault.headers))
        if self.command == "GET":
            self._send(file, start, end, fault)

    def _range(self, size: int) -> tuple[int, int] | None:
        text = self.headers.get("Range", "")
        if not text.startswith("bytes="):
            return None
        first, _, last = text.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, size - int(last)), size
        return int(first), min(size, int(last) + 1) if last else size

    def _send(self, file: HostedFile, start: int, end: int, fault: Fault) -> None:
        for position, action in sorted(
            (position, action)
            for position, action in ((fault.stall_at, "stall"), (fault.cut_at, "cut"))
            if position is not None and start <= position < end
        ):
            self._piece(file, start, position, fault)
            start = position
            if action == "cut":
                self.close_connection = True
                return
            self._hub.wait_for_release()
        self._piece(file, start, end, fault)

    def _piece(self, file: HostedFile, start: int, end: int, fault: Fault) -> None:
        step = PIECE if fault.bytes_per_second else _SEND
        if fault.bytes_per_second:
            # What waits in buffers has been sent, but has not arrived anywhere.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)
        source = None if isinstance(file.content, bytes) else file.content.open("rb")
        try:
            while start < end:
                count = min(step, end - start)
                if source is not None and hasattr(os, "sendfile") and self.server.hub.certificate is None:
                    self.wfile.flush()
                    count = os.sendfile(self.connection.fileno(), source.fileno(), start, count)
                elif source is not None:
                    source.seek(start)
                    self.wfile.write(source.read(count))
                else:
                    assert isinstance(file.content, bytes)
                    self.wfile.write(memoryview(file.content)[start : start + count])
                start += count
                self.record.sent += count
                self._hub.note()
                if fault.bytes_per_second:
                    time.sleep(count / fault.bytes_per_second)
        finally:
            if source is not None:
                source.close()

    # --- who may, and answers

    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _repository(self, id: str) -> HostedRepository | None:
        """The repository, or ``None`` after refusing."""
        token = self._token()
        repository = self._hub.repositories.get(id)
        if token and token not in self._hub.tokens | self._hub.strangers:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token not in self._hub.tokens):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        else:
            return repository
        return None

    def _may_read(self, repository: HostedRepository) -> bool:
        if not repository.gated or self._token() in self._hub.tokens:
            return True
        text = f"Access to model {repository.id} is restricted."
        self._refuse(403 if self._token() else 401, "GatedRepo", text)
        return False

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(status, {name: value for name, value in headers.items() if value})

    def _json(self, value: Any, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        size = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        self._answer(200, size | dict(headers or {}))
        if self.command == "GET":
            self.wfile.write(data)

    def _answer(self, status: int, headers: Mapping[str, str]) -> None:
        self.record.status = status
        self.send_response(status)
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()
        self._hub.note()
