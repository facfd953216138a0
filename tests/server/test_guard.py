"""Who may ask: names of this computer, web pages, keys. First the checks alone, then over the wire."""

from __future__ import annotations

import pytest

from app.server.guard import ApiError, Guard, check_json, is_loopback, preflight_headers
from tests.server.conftest import KEY
from tests.support.served import Served, request, status

CHAT = b'{"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 2}'
KEYED = f"Authorization: Bearer {KEY}"
OUR_NAMES = [
    *("localhost", "LOCALHOST:1234", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8642", "slipstream.localhost"),
    *("a.b.localhost:1", "192.168.1.5:8642", "tower:8642"),
]
FOREIGN_NAMES = [
    *("evil.example", "evil.example:8642", "localhost.evil.example", "127.0.0.1.evil.example", "evillocalhost"),
    *("192.168.1.6", "0.0.0.0", "127.0.0.2", "2130706433", "[::2]", "[::ffff:127.0.0.1]"),
]
BAD_NAMES = [
    *("", " ", "local host", "localhost:", "localhost:x", "localhost/", "user@localhost", "[::1"),
    "localhost,evil.example",
]
OUR_PAGES = [
    *("http://localhost", "https://localhost:3000", "http://127.0.0.1:5173", "http://[::1]:80"),
    *("app://obsidian.md", "file://", "tauri://localhost", "vscode-webview://1gq2", "vscode-file://vscode-app"),
    "https://notes.example",
]
OTHER_PAGES = [
    *("", "null", "https://evil.example", "http://localhost.evil.example", "http://evil.example#localhost"),
    *("http://localhost@evil.example", "http://localhost:1@evil.example", "https://notes.example.evil.example"),
    *("chrome-extension://abc", "ftp://localhost", "app", "http://"),
]
GUARD = Guard(key=KEY, hosts=frozenset({"tower"}), origins=frozenset({"https://notes.example"}))


def host(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", value.encode())]


def origin(value: str) -> list[tuple[bytes, bytes]]:
    return [(b"origin", value.encode())]


def refused(headers: list[tuple[bytes, bytes]]) -> int:
    with pytest.raises(ApiError) as error:
        GUARD.check_host(headers, "192.168.1.5")
    return error.value.status


def test_names_of_this_computer_and_others() -> None:
    for name in OUR_NAMES:
        GUARD.check_host(host(name), "192.168.1.5")
    assert [name for name in FOREIGN_NAMES if refused(host(name)) != 403] == []
    assert [name for name in BAD_NAMES if refused(host(name)) != 400] == []
    for headers in ([], host("localhost") * 2, host("localhost") + host("evil.example")):
        assert refused(headers) == 400


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


def test_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.8.8", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.5", "tower", ""]))


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
    "kinds",
    [
        [],
        ["text/plain"],
        ["application/x-www-form-urlencoded"],
        ["multipart/form-data; boundary=application/json"],
        ["application/json", "text/plain"],
    ],
)
def test_only_json(kinds: list[str]) -> None:
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        check_json([(b"content-type", kind.encode())])
    with pytest.raises(ApiError) as refused:
        check_json([(b"content-type", kind.encode()) for kind in kinds])
    assert refused.value.status == 415


def test_a_preflight_allows_what_the_clients_send() -> None:
    wanted = "authorization,content-type,x-stainless-os,anthropic-version,x-evil"
    headers = preflight_headers([(b"access-control-request-headers", wanted.encode())], "POST")
    assert headers["Access-Control-Allow-Headers"] == "authorization, content-type, x-stainless-os, anthropic-version"
    assert headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    assert "Access-Control-Allow-Private-Network" not in headers


# ---------------------------------------------------------------- over the wire


def asked(server: Served, method: str, path: str, body: bytes = b"", *lines: str, host: str = "localhost") -> bytes:
    with server.connected() as client:
        client.send(request(method, path, body, *lines, host=host))
        return client.receive()


def test_rebinding_gets_nowhere(locked: Served) -> None:
    """The browser takes it for the page's own host, so there is no Origin, and the page may read the answer."""
    for method in ("GET", "POST", "OPTIONS", "HEAD", "DELETE"):
        for path in ("/health", "/v1/models", "/v1/chat/completions", "/nothing"):
            answer = asked(locked, method, path, CHAT, KEYED, host="localhost.evil.example:80")
            assert status(answer) == 403
            assert b"endless" not in answer and b"access-control" not in answer.lower()


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_other_pages_get_nothing(locked: Served, page: str) -> None:
    lines = f"Origin: {page}", KEYED, "Access-Control-Request-Method: POST"
    for path, method in (("/v1/models", "GET"), ("/v1/chat/completions", "POST"), ("/health", "OPTIONS")):
        answer = asked(locked, method, path, CHAT, *lines)
        assert status(answer) == 403
        assert b"access-control" not in answer.lower()


def test_forms_of_pages_are_refused(locked: Served) -> None:
    """What a page can send without asking first."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        lines = KEYED, f"Content-Type: {kind}", "Content-Length: 0"
        assert status(asked(locked, "POST", "/v1/chat/completions", b"", *lines)) == 415


def test_a_page_that_may_ask(locked: Served) -> None:
    page = "vscode-webview://1gq2"
    allowed = f"access-control-allow-origin: {page}".encode()
    lines = f"Origin: {page}", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization"
    preflight = asked(locked, "OPTIONS", "/v1/chat/completions", b"", *lines)  # without a key, as browsers do
    assert status(preflight) == 204 and b"access-control-allow-credentials" not in preflight.lower()
    answer = asked(locked, "POST", "/v1/chat/completions", CHAT, lines[0], f"X-Api-Key: {KEY}")
    keyless = asked(locked, "POST", "/v1/chat/completions", CHAT, lines[0])
    assert (status(answer), status(keyless)) == (200, 401)
    assert all(allowed in one.lower() for one in (preflight, answer, keyless))


def test_only_health_needs_no_key(locked: Served) -> None:
    assert status(asked(locked, "GET", "/health")) == 200
    for path, code in (("/v1/models", 200), ("/props", 200), ("/metrics", 200), ("/nothing", 404)):
        assert status(asked(locked, "GET", path)) == 401
        assert status(asked(locked, "GET", path, b"", KEYED)) == code
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
        assert status(asked(locked, "POST", path, CHAT)) == 401


def test_paths_and_methods(locked: Served) -> None:
    assert status(asked(locked, "GET", "/v1/chat/completions", b"", KEYED)) == 405
    assert status(asked(locked, "POST", "/v1/models", CHAT, KEYED)) == 405
    assert status(asked(locked, "GET", "http://evil.example/v1/models", b"", KEYED)) == 404
    assert status(asked(locked, "GET", "/v1/models?x=1", b"", KEYED)) == 200
    with locked.connected() as client:
        client.send(request("HEAD", "/v1/models", b"", KEYED) + request("GET", "/health"))
        answers = client.receive(b'"ok"')
    assert answers.count(b"HTTP/1.1 200 ") == 2 and b"endless" not in answers
