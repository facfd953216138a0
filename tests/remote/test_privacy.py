"""Keys stay with the server that they are for, and requests go only where they may: through the real process."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.protocol.events import LoadFailed
from app.protocol.remote import Connect
from tests.support import remote_streams
from tests.support.certificates import self_signed
from tests.support.model_server import Answer, Asked, ModelServer, Reply
from tests.support.remote_engine import RemoteEngine
from tests.support.remote_streams import TEXT

CHAT = "/v1/chat/completions"


def test_a_key(hasty: RemoteEngine) -> None:
    def models(asked: Asked) -> Reply:
        is_right = asked.headers.get("authorization") == "Bearer s3cret"
        return Reply.of({"data": [{"id": "o"}]}) if is_right else Reply.of({}, 401, Server="llama.cpp")

    with ModelServer({**remote_streams.openai(), "/v1/models": models}) as server:
        missing = hasty.try_to_connect(server.url)
        wrong = hasty.try_to_connect(server.url, key="other")
        hasty.connect(server.url, key="s3cret")
        assert hasty.answer().text() == TEXT
        assert server.asked[-1].headers["authorization"] == "Bearer s3cret"
    assert isinstance(missing, LoadFailed) and isinstance(wrong, LoadFailed)
    assert (missing.cause, wrong.cause) == ("key", "key")
    assert "needs a key" in missing.message
    assert "refused the key" in wrong.message


def test_a_key_that_the_server_repeats(hasty: RemoteEngine) -> None:
    """Also where the server's words are too long, and end in the middle of the key."""
    key = "sk-0123456789-abcdefghij"
    with ModelServer(remote_streams.openai()) as server:
        hasty.connect(server.url, key=key)
        for before in (0, 270, 280, 290, 299, 300):
            words = f"{'no ' * before}"[:before] + f"{key} isn't allowed to do this. " + "Why? " * 100
            server.routes[CHAT] = Reply.of({"error": {"message": words}}, 400)
            failed = hasty.answer().failed
            assert "…" in failed.message and "400" in failed.message
            assert not any(key[at : at + 4] in failed.message for at in range(len(key) - 4)), before


def test_a_key_that_cannot_be_sent(hasty: RemoteEngine) -> None:
    with ModelServer(remote_streams.openai()) as server:
        for key in ("s3cret\nx", " s3cret", "ключ"):
            failed = hasty.try_to_connect(server.url, key=key)
            assert isinstance(failed, LoadFailed)
            assert failed.cause == "key"
            assert key not in failed.message
        assert not server.asked


def test_keys_are_not_shown() -> None:
    assert "s3cret" not in repr(Connect(request=1, address="http://s3cret", key="s3cret"))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_to_another_server(hasty: RemoteEngine, status: int) -> None:
    with ModelServer(remote_streams.openai()) as other:
        elsewhere = {"Location": f"{other.url}{CHAT}"}
        with ModelServer({**remote_streams.openai(), CHAT: Reply((), status, elsewhere)}) as server:
            hasty.connect(server.url, key="s3cret")
            failed = hasty.answer().failed
        with ModelServer({"/v1/models": Reply((), status, {"Location": f"{other.url}/v1/models"})}) as server:
            refused = hasty.try_to_connect(server.url, key="s3cret")
        assert not other.asked
    assert failed.cause == "refused"
    assert isinstance(refused, LoadFailed)
    assert "redirects to another server" in refused.message


def test_redirects_within_a_server(hasty: RemoteEngine) -> None:
    routes: dict[str, Answer] = {
        "/v1/models": Reply((), 301, {"Location": "/v1/models/"}),
        "/v1/models/": remote_streams.openai()["/v1/models"],
        CHAT: Reply((), 307, {"Location": "/other"}),
        "/other": remote_streams.openai()[CHAT],
    }
    with ModelServer(routes) as server:
        hasty.connect(server.url, key="s3cret")
        assert hasty.answer().text() == TEXT
        assert server.asked[-1].headers["authorization"] == "Bearer s3cret"
        server.routes[CHAT] = Reply((), 302, {"Location": "/other"})
        assert hasty.answer().failed.cause == "not_a_server"
        server.routes[CHAT] = Reply((), 307, {"Location": CHAT})
        assert "circles" in hasty.answer().failed.message


def test_offline_only_this_machine_is_asked(hasty: RemoteEngine) -> None:
    for address in ("http://192.0.2.1:8080", "https://example.com", "http://0x7f.example"):
        failed = hasty.try_to_connect(address, loopback_only=True)
        assert isinstance(failed, LoadFailed)
        assert failed.cause == "offline"
    with ModelServer(remote_streams.openai()) as server:
        hasty.connect(f"http://localhost:{server.port}", loopback_only=True)
        assert hasty.answer().text() == TEXT
        assert server.asked[-1].headers["host"] == f"localhost:{server.port}"


def test_a_certificate_that_nobody_trusts_and_https_where_there_is_none(hasty: RemoteEngine, tmp_path: Path) -> None:
    with ModelServer(remote_streams.openai(), certificate=str(self_signed(tmp_path))) as server:
        failed = hasty.try_to_connect(server.url, key="s3cret")
        plain = hasty.try_to_connect(server.url.replace("https", "http"))
        assert not server.asked
    with ModelServer(remote_streams.openai()) as server:
        only_plain = hasty.try_to_connect(server.url.replace("http", "https"))
    assert isinstance(failed, LoadFailed) and isinstance(plain, LoadFailed) and isinstance(only_plain, LoadFailed)
    assert failed.cause == "certificate"
    assert "only http" in only_plain.message
