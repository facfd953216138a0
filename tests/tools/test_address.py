"""Servers at an address, on loopback: streamable HTTP with the library's server side, keys, and a login."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.tools.messages import (
    CallEnded,
    CallTool,
    CancelCall,
    Reply,
    SecretChanged,
    ServerEntry,
    StartServer,
    StopServer,
    UserAsked,
)
from tests.support.tool_process import Process, http_server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http_server() as found:
        yield found


@pytest.fixture
def web(tools: Process, address: str) -> Process:
    """A process with the server ``web``."""
    if "web" not in tools.servers or tools.servers["web"].state != "ready":
        tools.start([ServerEntry(name="web", url=address, folders=["/"])])
    assert tools.servers["web"].state == "ready", tools.servers["web"].message
    return tools


def test_tools_over_http(web: Process) -> None:
    assert web.servers["web"].version == "Test server 1.2"
    assert web.run("add", "web", a=20, b=22).text == "42"
    assert web.run("count", "web", steps=2).text == "counted"
    assert web.progress[0].message == "step 1"


def test_large_results_over_http(web: Process) -> None:
    assert web.run("large", "web", characters=2_000_000).text.endswith("it has 2 MB.]")
    assert web.run("large", "web", characters=26_000_000).state == "failed"
    assert web.run("add", "web", a=1, b=1).text == "2"


def test_questions_over_http(web: Process) -> None:
    web.replies = [Reply(question=0, action="accept", content={"date": "Friday"})]
    assert web.run("book", "web").text == "accept: Friday for 2"
    assert web.run("roots", "web").text == "file:///"


def test_stopping_a_call_over_http(web: Process, tmp_path: Path) -> None:
    log = tmp_path / "log"
    web.send(CallTool(request=1000, server="web", tool="wait", arguments=json.dumps({"file": str(log)})))
    while not log.is_file() or not log.read_text():
        web.run("add", "web", a=1, b=1)
    web.send(CancelCall(request=1000))
    assert web.next(CallEnded).state == "stopped"
    while log.read_text() != "begun\ncanceled\n":
        assert web.run("add", "web", a=1, b=1).text == "2"


def test_a_server_that_was_started_anew_is_connected_to_again(tools: Process) -> None:
    with http_server() as address:
        port = int(address.split(":")[2].split("/")[0])
        tools.start([ServerEntry(name="again", url=address)])
    gone = tools.run("add", "again", a=1, b=1)
    assert (gone.state, gone.text.startswith("127.0.0.1 can't be reached")) == ("failed", True)
    assert tools.servers["again"].state == "ready"
    with http_server(port=port):
        assert tools.run("add", "again", a=1, b=1).text == "The server was restarted. Try again."
        while (ended := tools.run("add", "again", a=1, b=1)).state == "failed":
            pass
        assert ended.text == "2"
        tools.send(StopServer(name="again"))
        tools.until("again", "stopped")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://127.0.0.1/mcp", "Its address must begin with https:// or http://."),
        ("127.0.0.1", "Its address must begin with https:// or http://."),
        ("http://127.0.0.1:1/mcp", "127.0.0.1 can't be reached: All connection attempts failed."),
        ("http://[::1/mcp", "Its address must begin with https:// or http://."),
    ],
)
def test_addresses_that_cannot_be_reached(tools: Process, url: str, message: str) -> None:
    found = tools.start([ServerEntry(name="nowhere", url=url)])["nowhere"]
    assert (found.state, found.message) == ("failed", message)


def test_offline_refuses_addresses_but_not_this_computer(tools: Process, address: str) -> None:
    entries = [ServerEntry(name="far", url="https://example.com/mcp"), ServerEntry(name="near", url=address)]
    found = tools.start(entries, is_offline=True)
    assert found["near"].state == "ready"
    expected = "Slipstream is offline and only connects to servers on this computer; example.com isn't on it."
    assert (found["far"].state, found["far"].message) == ("failed", expected)
    tools.send(StopServer(name="near"))
    tools.until("near", "stopped")


# ------------------------------------------------------------ keys and logins


@pytest.fixture(scope="module")
def private() -> Iterator[str]:
    with http_server("login_server", is_login=True) as found:
        yield found


def test_a_wrong_key_is_told(tools: Process, private: str) -> None:
    entry = ServerEntry(name="private", url=private, headers={"Authorization": "Bearer wrong"})
    found = tools.start([entry])["private"]
    assert found.state == "failed"
    assert tools.asked == []


def test_a_login_in_the_browser(tools: Process, private: str) -> None:
    entry = ServerEntry(name="private", url=private)
    tools.replies = [Reply(question=0, action="accept")]
    tools.send(StartServer(entry=entry))
    asked = tools.next(UserAsked)
    assert (asked.kind, asked.message) == ("login", "The server “private” wants you to log in.")
    with urllib.request.urlopen(asked.url) as page:  # what the browser does
        assert b"go back to Slipstream" in page.read()
    first = tools.next(SecretChanged)
    assert first.server == "private"
    tools.until("private", "ready")
    assert tools.run("secret", "private").text == "42"

    # With the secret, it starts without a question: with the token, and with one that has expired.
    tools.asked.clear()
    tools.send(StartServer(entry=entry, secret=first.secret))
    tools.until("private", "ready")
    old = {**json.loads(first.secret), "expires": 1.0}
    tools.send(StartServer(entry=entry, secret=json.dumps(old)))
    second = tools.next(SecretChanged)
    tools.until("private", "ready")
    assert json.loads(second.secret)["tokens"] != json.loads(first.secret)["tokens"]
    assert tools.run("secret", "private").text == "42"
    assert tools.asked == []

    # But not where the entry has another address by now: that server gets no token of this one.
    tools.send(
        StartServer(entry=entry, secret=json.dumps({**json.loads(first.secret), "url": "https://elsewhere/mcp"}))
    )
    assert tools.next(UserAsked).kind == "login"
    tools.send(StopServer(name="private"))
    tools.until("private", "stopped")


def test_a_refused_login(tools: Process, private: str) -> None:
    found = tools.start([ServerEntry(name="private", url=private)])["private"]
    assert (found.state, found.message) == ("failed", "You declined to log in.")
    assert len(tools.asked) == 1


def test_a_damaged_secret_is_none(tools: Process, private: str) -> None:
    tools.send(StartServer(entry=ServerEntry(name="private", url=private), secret='{"port": "x"'))
    assert tools.until("private", "failed").message == "You declined to log in."
