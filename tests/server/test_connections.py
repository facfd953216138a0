"""Clients that are many, slow, gone or rude."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.server.guard import MAX_WAITING, Limits
from tests.support.served import PATIENCE, Json, RawClient, Served, request, status

SIZES = {"header_bytes": 4096, "body_bytes": 1_000_000, "connections": 16, "refused_connections": 24}
LIMITS = Limits(read=1.5, idle=60.0, write=1.0, ping=0.2, **SIZES)
ENDLESS: Json = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}
SHORT: Json = {**ENDLESS, "stream": False, "max_tokens": 2}


@pytest.fixture(scope="module")
def server(endless_pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    with Served(*endless_pair, limits=LIMITS, context_length=32_768, home=home) as served:
        yield served


@pytest.fixture(autouse=True)
def _nothing_is_left(server: Served) -> Iterator[None]:
    yield
    waited_until(server, running=0, waiting=0)


def waited_until(server: Served, *, running: int, waiting: int) -> None:
    """Wait until so many requests are answered and wait."""
    wanted = [f"llamacpp:requests_processing {running}\n", f"llamacpp:requests_deferred {waiting}\n"]
    end = time.monotonic() + PATIENCE
    while not all(line in server.get("/metrics").text for line in wanted):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_client_that_goes_away_frees_the_engine(server: Served) -> None:
    def whole_answers() -> list[str]:
        return [line for line in server.get("/metrics").text.splitlines() if line.startswith("vllm:request_success")]

    before = whole_answers()
    for stream in (True, False):
        with server.connected() as client:
            client.ask({**ENDLESS, "stream": stream})
            waited_until(server, running=1, waiting=0)
        waited_until(server, running=0, waiting=0)
    assert whole_answers() == before  # neither was written to its end


def test_one_that_shuts_its_side_down_or_is_reset_counts_as_gone(server: Served) -> None:
    with server.connected() as client:
        client.ask(ENDLESS)
        client.receive(b"so then")
        client.socket.shutdown(socket.SHUT_WR)
        waited_until(server, running=0, waiting=0)
        assert b"[DONE]" not in client.rest()
    with server.connected() as client:
        client.ask(ENDLESS)
        client.receive(b"so then")
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    waited_until(server, running=0, waiting=0)


def test_a_waiting_client_that_goes_away_leaves_the_queue(server: Served) -> None:
    with server.connected() as first:
        first.ask(ENDLESS)
        waited_until(server, running=1, waiting=0)
        with server.connected() as second:
            second.ask(ENDLESS)
            waited_until(server, running=1, waiting=1)
        waited_until(server, running=1, waiting=0)


def test_a_client_that_reads_nothing_keeps_nobody_waiting(server: Served) -> None:
    with server.connected(receive_buffer=4096) as slow:
        slow.ask({**ENDLESS, "timings_per_token": True, "max_tokens": 4000})
        waited_until(server, running=1, waiting=0)
        assert server.chat(max_tokens=3)["usage"]["completion_tokens"] == 3


@pytest.mark.skipif(not hasattr(select, "poll"), reason="notices a reset connection without reading from it")
def test_a_client_that_reads_nothing_is_dropped(server: Served) -> None:
    with server.connected(receive_buffer=4096) as slow:
        slow.ask({"content": "x" * 900_000, "with_pieces": True}, "/tokenize")
        poll = select.poll()
        poll.register(slow.socket, 0)
        assert poll.poll(1000 * PATIENCE)


def test_a_queue_and_then_no_more(server: Served) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connected()) for _ in range(1 + MAX_WAITING)]
        clients[0].ask(ENDLESS)
        waited_until(server, running=1, waiting=0)
        for count, client in enumerate(clients[1:], 1):
            client.ask(SHORT)
            waited_until(server, running=1, waiting=count)
        refused = server.post("/v1/chat/completions", SHORT)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        clients[0].close()
        for client in clients[1:]:
            assert status(client.receive()) == 200


def test_more_connections_than_are_served(server: Served) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connected()) for _ in range(LIMITS.connections)]
        for client in clients:
            client.send(request("GET", "/health"))
            assert status(client.receive()) == 200
        with server.connected() as surplus:
            surplus.send(request("GET", "/v1/models"))
            answer = surplus.rest()
            assert status(answer) == 429 and b"Retry-After: " in answer
        with server.connected() as foreign:
            foreign.send(request("GET", "/v1/models", host="evil.example"))
            assert status(foreign.rest()) == 403
        silent = [stack.enter_context(server.connected()) for _ in range(LIMITS.refused_connections)]
        assert silent[-1].rest() == b""
    waited_until(server, running=0, waiting=0)


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n folded: x\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /health HTTP/1.0\r\n\r\n",
    ],
)
def test_what_is_no_request(server: Served, data: bytes) -> None:
    with server.connected() as client:
        client.send(data)
        assert status(client.rest()) == 400


def test_headers_have_a_limit(server: Served) -> None:
    with server.connected() as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 8000)
        assert status(client.rest()) == 431


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_have_a_limit(server: Served, chunked: bool) -> None:
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {3_000_000}"
    with server.connected() as client:
        client.send(request("POST", "/v1/chat/completions", b"", "Content-Type: application/json", length))
        if chunked:
            client.send(b"".join(b"2710\r\n" + b" " * 10_000 + b"\r\n" for _ in range(200)))
        else:
            client.send(b" " * 3_000_000)
        answer = client.rest()
    assert status(answer) == 413 and b"Connection: close" in answer


def test_a_request_has_its_time(server: Served) -> None:
    begun = request("POST", "/v1/chat/completions", b"", "Content-Type: application/json", "Content-Length: 20")
    for data in (b"GET /heal", begun + b'{"mess'):
        with server.connected() as client:
            client.send(data)
            assert status(client.rest()) == 408


def test_requests_that_come_ahead_of_their_answers(server: Served) -> None:
    with server.connected() as client:
        body = json.dumps(SHORT).encode()
        client.send(
            request("POST", "/v1/chat/completions", body) + request("GET", "/health") + request("GET", "/health")
        )
        data = b""
        while data.count(b'"ok"') < 2:
            data += client.socket.recv(65536)
    assert data.count(b"HTTP/1.1 200 ") == 3


def test_a_client_that_waits_for_leave_to_send(server: Served) -> None:
    body = json.dumps(SHORT).encode()
    lines = "Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue"
    with server.connected() as client:
        client.send(request("POST", "/v1/chat/completions", b"", *lines))
        assert b"HTTP/1.1 100 " in client.receive()
        client.send(body)
        assert status(client.receive()) == 200


def test_many_at_once(server: Served) -> None:
    def ask(number: int) -> tuple[int, str]:
        client = RawClient(server.port)
        try:
            client.ask({**SHORT, "max_tokens": 2 + 2 * number})
            answer = client.receive(b'"finish_reason"')
            return status(answer), answer.decode()
        finally:
            client.close()

    with ThreadPoolExecutor(MAX_WAITING) as pool:
        for number, (code, text) in enumerate(pool.map(ask, range(MAX_WAITING))):
            assert code == 200
            assert f'"reasoning_content":"{(" so then" * (number + 1)).strip()}"' in text


def test_a_request_that_ends_in_its_middle(server: Served) -> None:
    with server.connected() as client:
        client.send(
            request("POST", "/v1/chat/completions", b"", "Content-Type: application/json", "Content-Length: 20")
        )
        client.socket.shutdown(socket.SHUT_WR)
        assert status(client.rest()) in (0, 400)
