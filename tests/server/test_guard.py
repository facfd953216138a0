"""Who may ask: names of this computer, web pages, keys. First the checks alone, then over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.server.errors import ApiError
from app.server.guard import Guard, check_json, is_loopback, preflight_headers
from tests.support.serve_process import window_that_serves
from tests.support.served import Client, Served, request, status

KEY = "a-key-of-twenty-letters"
CHAT = b'{"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 2}'
OUR_NAMES = [
    "localhost",
    "LOCALHOST:1234",
    "127.0.0.1",
    "127.0.0.1:80",
    "[::1]",
    "[::1]:8642",
    "slipstream.localhost",
    "a.b.localhost:1",
    "192.168.1.5:8642",
    "tower:8642",
]
FOREIGN_NAMES = [
    "evil.example",
    "evil.example:8642",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evillocalhost",
    "192.168.1.6",
    "0.0.0.0",
    "127.0.0.2",
    "2130706433",
    "[::2]",
    "[::ffff:127.0.0.1]",
]
BAD_NAMES = [
    "",
    " ",
    "local host",
    "localhost:",
    "localhost:x",
    "localhost/",
    "user@localhost",
    "[::1",
    "localhost,evil.example",
]
OUR_PAGES = [
    "http://localhost",
    "https://localhost:3000",
    "http://127.0.0.1:5173",
    "http://[::1]:80",
    "app://obsidian.md",
    "file://",
    "tauri://localhost",
    "vscode-webview://1gq2",
    "vscode-file://vscode-app",
    "https://notes.example",
]
OTHER_PAGES = [
    "null",
    "",
    "https://evil.example",
    "http://localhost.evil.example",
    "http://evil.example#localhost",
    "http://localhost@evil.example",
    "http://localhost:1@evil.example",
    "https://notes.example.evil.example",
    "chrome-extension://abc",
    "ftp://localhost",
    "app",
    "http://",
]


def host(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", value.encode())]


def origin(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"origin", value.encode())]


GUARD = Guard(key=KEY, hosts=frozenset({"tower"}), origins=frozenset({"https://notes.example"}))


@pytest.mark.parametrize("name", OUR_NAMES)
def test_names_of_this_computer(name: str) -> None:
    GUARD.check_host(host(name), "192.168.1.5")


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_names_of_others(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        GUARD.check_host(host(name), "192.168.1.5")
    assert refused.value.status == 403


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        GUARD.check_host(host(name), "127.0.0.1")
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "headers", [[], host("localhost") + host("localhost"), host("localhost") + host("evil.example")]
)
def test_one_name_is_needed(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ApiError) as refused:
        GUARD.check_host(headers, "127.0.0.1")
    assert refused.value.status == 400


@pytest.mark.parametrize("page", OUR_PAGES)
def test_pages_that_may_ask(page: str) -> None:
    assert GUARD.check_origin(origin(page)) == {"Access-Control-Allow-Origin": page, "Vary": "Origin"}


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_pages_that_may_not(page: str) -> None:
    with pytest.raises(ApiError) as refused:
        GUARD.check_origin(origin(page))
    assert refused.value.status == 403


def test_no_page_and_two() -> None:
    assert GUARD.check_origin([]) == {}
    with pytest.raises(ApiError):
        GUARD.check_origin(origin("http://localhost") * 2)


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("authorization", f"Bearer {KEY}", True),
        ("authorization", f"bearer   {KEY} ", True),
        ("x-api-key", KEY, True),
        ("authorization", KEY, False),
        ("authorization", f"Bearer {KEY}x", False),
        ("authorization", f"Basic {KEY}", False),
        ("x-api-key", "", False),
        ("x-api-key", f"Bearer {KEY}", False),
        ("cookie", KEY, False),
        ("x-api-key", "kéy", False),
    ],
)
def test_keys(name: str, value: str, fits: bool) -> None:
    headers = [(name.encode(), value.encode())]
    Guard().check_key(headers)  # where none is needed, any will do
    if fits:
        GUARD.check_key(headers)
        return
    with pytest.raises(ApiError) as refused:
        GUARD.check_key(headers)
    assert refused.value.status == 401 and KEY not in refused.value.message


@pytest.mark.parametrize(
    ("kinds", "is_json"),
    [
        (["application/json"], True),
        (["Application/JSON; charset=utf-8"], True),
        ([], False),
        (["text/plain"], False),
        (["application/x-www-form-urlencoded"], False),
        (["multipart/form-data; boundary=application/json"], False),
        (["application/json", "text/plain"], False),
    ],
)
def test_only_json(kinds: list[str], is_json: bool) -> None:
    headers = [(b"content-type", kind.encode()) for kind in kinds]
    if is_json:
        check_json(headers)
        return
    with pytest.raises(ApiError) as refused:
        check_json(headers)
    assert refused.value.status == 415


def test_a_preflight_allows_what_the_clients_send() -> None:
    wanted = "authorization,content-type,x-stainless-os,anthropic-version,x-evil"
    headers = preflight_headers([(b"access-control-request-headers", wanted.encode())], "POST")
    assert headers["Access-Control-Allow-Headers"] == "authorization, content-type, x-stainless-os, anthropic-version"
    assert headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    assert "Access-Control-Allow-Private-Network" not in headers


def test_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.8.8", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.5", "tower", ""]))


# ---------------------------------------------------------------- over the wire


@pytest.fixture(scope="module", params=["headless", "window"])
def locked(
    request: pytest.FixtureRequest, endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Both ways to start it."""
    home = tmp_path_factory.mktemp("server-home")
    with pytest.MonkeyPatch.context() as environment, ExitStack() as stack:
        environment.setenv("SLIPSTREAM_HOME", str(home))
        if request.param == "headless":
            yield stack.enter_context(Served(*endless_pair, guard=Guard(key=KEY)))
        else:
            yield stack.enter_context(window_that_serves(*endless_pair, home=home, key=KEY))


def asked(server: Client, data: bytes) -> bytes:
    with server.connected() as client:
        client.send(data)
        return client.receive()


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/nothing"])
@pytest.mark.parametrize("name", ["evil.example", "localhost.evil.example:80"])
def test_rebinding_gets_nowhere(locked: Client, method: str, path: str, name: str) -> None:
    """The browser takes it for the page's own host, so there is no Origin, and the page may read the answer."""
    answer = asked(locked, request(method, path, CHAT, f"Authorization: Bearer {KEY}", host=name))
    assert status(answer) == 403
    assert b"endless" not in answer and b"access-control" not in answer.lower()


@pytest.mark.parametrize("page", OTHER_PAGES)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/health"])
def test_other_pages_get_nothing(locked: Client, page: str, path: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        lines = f"Origin: {page}", f"Authorization: Bearer {KEY}", "Access-Control-Request-Method: POST"
        answer = asked(locked, request(method, path, CHAT, *lines))
        assert status(answer) == 403
        assert b"access-control" not in answer.lower()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_forms_of_pages_are_refused(locked: Client, kind: str) -> None:
    """What a page can send without asking first."""
    head = request(
        "POST",
        "/v1/chat/completions",
        b"",
        f"Authorization: Bearer {KEY}",
        f"Content-Type: {kind}",
        "Content-Length: 2",
    )
    assert status(asked(locked, head + b"{}")) == 415


def test_a_page_that_may_ask(locked: Client) -> None:
    page = "vscode-webview://1gq2"
    lines = f"Origin: {page}", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"
    answer = asked(locked, request("OPTIONS", "/v1/chat/completions", b"", *lines))  # without a key, as browsers do
    assert status(answer) == 204
    assert f"access-control-allow-origin: {page}".encode() in answer.lower()
    assert b"access-control-allow-credentials" not in answer.lower()
    answer = asked(locked, request("POST", "/v1/chat/completions", CHAT, f"Origin: {page}", f"X-Api-Key: {KEY}"))
    assert status(answer) == 200 and f"access-control-allow-origin: {page}".encode() in answer.lower()
    answer = asked(locked, request("POST", "/v1/chat/completions", CHAT, f"Origin: {page}"))
    assert status(answer) == 401 and f"access-control-allow-origin: {page}".encode() in answer.lower()


def test_only_health_needs_no_key(locked: Client) -> None:
    assert status(asked(locked, request("GET", "/health"))) == 200
    for method, path in (("GET", "/v1/models"), ("GET", "/props"), ("GET", "/metrics"), ("GET", "/nothing")):
        assert status(asked(locked, request(method, path))) == 401
        assert status(asked(locked, request(method, path, b"", f"Authorization: Bearer {KEY}"))) in (200, 404)
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
        assert status(asked(locked, request("POST", path, CHAT))) == 401


def test_paths_and_methods(locked: Client) -> None:
    key = f"Authorization: Bearer {KEY}"
    assert status(asked(locked, request("GET", "/v1/chat/completions", b"", key))) == 405
    assert status(asked(locked, request("POST", "/v1/models", CHAT, key))) == 405
    assert status(asked(locked, request("GET", "http://evil.example/v1/models", b"", key))) == 404
    assert status(asked(locked, request("GET", "/v1/models?x=1", b"", key))) == 200
    with locked.connected() as client:
        client.send(request("HEAD", "/v1/models", b"", key))
        client.send(request("GET", "/health"))
        answers = client.receive(b'"ok"')
    assert answers.count(b"HTTP/1.1 200 ") == 2 and b"endless" not in answers


def test_the_other_address_of_this_computer(locked: Client) -> None:
    import socket

    try:
        with socket.create_connection(("::1", locked.port), 10) as client:
            client.sendall(request("GET", "/health", host="[::1]"))
            assert status(client.recv(65536)) == 200
    except OSError:
        pytest.skip("no IPv6 here")
