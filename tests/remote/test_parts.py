"""The parts that read what comes, on their own: whatever a server sends, they raise nothing but `RemoteError`."""

from __future__ import annotations

import asyncio
import json
import socket
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.remote import figures as counters
from app.remote import http as address
from app.remote.figures import in_reply
from app.remote.generation import Rounds
from app.remote.http import Http, Limits, RemoteError, reported, words_of
from app.remote.replies import DONE, Lines, ThinkMarks, part_of
from tests.support import remote_streams
from tests.support.model_server import ModelServer

NAMES = [
    *("choices", "delta", "message", "content", "reasoning", "reasoning_content", "finish_reason", "usage", "timings"),
    *("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted", "metrics", "speculative_decoding", "error", "code"),
    *("acceptance_histogram", "num_draft_tokens", "num_accepted_draft_tokens", "num_spec_steps", "sglext", "stats"),
    *("spec_tokens_details", "spec_num_proposed_drafts", "avg_decoded_tokens_per_iter", "total_draft_tokens", "done"),
    *("prompt_progress", "total", "processed", "cache", "slipstream", "drafted", "accepted", "detail", "type", "msg"),
    *("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cached_tokens", "total_draft_tokens_count"),
]


def anything(random: Random, depth: int = 0) -> Any:
    """Some JSON with names that mean something, and values that rarely do."""
    kind = random.randrange(12 if depth < 4 else 7)
    if kind >= 9:
        return {random.choice(NAMES): anything(random, depth + 1) for _ in range(random.randrange(7))}
    if kind >= 7:
        return [anything(random, depth + 1) for _ in range(random.randrange(4))]
    return [None, True, random.randrange(-2, 60), random.uniform(-1, 99), 10**30, "stop", "\ud800<think>"][kind]


@pytest.mark.parametrize("seed", range(20))
def test_any_json_is_read(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        rounds = Rounds()
        for _ in range(4):
            content = {name: anything(random) for name in random.sample(NAMES, 12)}
            part = part_of(json.dumps(content).encode(), "host")
            assert part is not None
            found = [*rounds.of([part], 1.0), *rounds.rest(1.0)]
            assert all(min(one.tokens, one.drafted, one.accepted, one.verify_passes) >= 0 for one in found)
            assert all(isinstance(piece.text, str) for one in found for piece in one.pieces)
            if (figures := in_reply(content, content)) is not None:
                assert figures.draft_figures(5).verify_passes >= 0
            reported(content, 0, "host")


@given(st.binary(max_size=200))
def test_any_bytes_are_read(data: bytes) -> None:
    for content in [*(lines := Lines(1000, "host")).feed(data), *lines.end()]:
        part_of(content, "host")
    words_of(data)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("short", "short"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "…"),
        ("one " * 75, "one " * 74 + "one"),
        ("one " * 76, "one " * 75 + "…"),
        ("no " * 99 + "key and more", "no " * 99 + "key…"),
        ("no " * 99 + "keys and more", "no " * 99 + "…"),
        ("错" * 301, "错" * 300 + "…"),
    ],
)
def test_long_words_of_a_server_end_at_the_end_of_one(sent: str, shown: str) -> None:
    assert words_of({"error": sent}) == shown


WHOLE = b'data: {"a": 1}\r\n\r\n: ping\n\ndata:{"b": 2}\nevent: x\n{"c": 3}\nerror: {"d": 4}\r\ndata: [DONE]\n'


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_lines_may_be_cut_anywhere(places: list[int]) -> None:
    lines, found = Lines(1000, "host"), []
    cuts = [0, *sorted(places), len(WHOLE)]
    for start, end in pairwise(cuts):
        found += lines.feed(WHOLE[start:end])
    assert found + lines.end() == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}', b'{"d": 4}', DONE]


def test_lines_have_a_limit() -> None:
    lines = Lines(10, "host")
    assert lines.feed(b"0123456789") == []
    with pytest.raises(RemoteError, match="too long"):
        lines.feed(b"0")


@given(st.lists(st.text("<think>/ \n\\ab", max_size=12), max_size=12))
def test_no_text_is_lost_between_marks(texts: list[str]) -> None:
    marks, thinking, answer = ThinkMarks(), "", ""
    for text in texts:
        thought, said = marks.split(text)
        thinking, answer = thinking + thought, answer + said
    thought, said = marks.rest()
    whole = "".join(texts)
    if whole.lstrip().startswith("<think>"):
        inner, found, rest = whole.lstrip().removeprefix("<think>").partition("</think>")
        assert (thinking + thought).strip("\n") == inner.strip("\n")
        assert (answer + said).strip("\n") == (rest if found else "").strip("\n")
    else:
        assert (thinking + thought, answer + said) == ("", whole)


@pytest.mark.parametrize(
    ("typed", "root", "host", "loopback"),
    [
        ("localhost:8080", "http://localhost:8080", "localhost:8080", True),
        (" http://127.0.0.1:8000/v1/ ", "http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000", "127.0.0.1:8000", True),
        ("http://[::1]:30000/v1", "http://[::1]:30000", "[::1]:30000", True),
        ("http://[::]:30000", "http://[::1]:30000", "[::1]:30000", True),
        ("https://example.com/api/v1", "https://example.com/api", "example.com", False),
        ("HTTPS://Example.COM/v1/chat/completions", "https://example.com", "example.com", False),
        ("http://models.localhost:1", "http://models.localhost:1", "models.localhost:1", True),
        ("http://localhost.example.com", "http://localhost.example.com", "localhost.example.com", False),
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000", "10.0.0.5:8000", False),
        ("https://bücher.example", "https://xn--bcher-kva.example", "xn--bcher-kva.example", False),
    ],
)
def test_addresses(typed: str, root: str, host: str, loopback: bool) -> None:
    found = address.parse(typed)
    assert (found.root, found.is_loopback) == (root, loopback)
    assert found.host == host
    assert found.is_encrypted == root.startswith("https")


def test_what_is_no_address() -> None:
    wrong = ["", "http://", "ftp://localhost", "file:///etc/passwd", "http://user:password@localhost"]
    for typed in (*wrong, "http://localhost/?key=x", "http://[::1", "http://localhost:99999", "not an address"):
        with pytest.raises(RemoteError) as raised:
            address.parse(typed)
        assert raised.value.cause == "address"
        assert "password" not in str(raised.value).replace("a user name or a password", "")


def test_counters() -> None:
    names = {"a_total": "drafted", "b_total": "accepted", "c_total": "passes"}
    text = 'a_total{x="1"} 3\na_total{x="2"} 4.0 1700000000\nb_total 2\nb_total x\nc_total{y="}"} NaN\nd 1\n'
    assert counters.parse(text, names) == {"drafted": 7.0, "accepted": 2.0}
    assert counters.parse("nothing", names) is None
    idle = counters.parse("r 0\n", {"r": ""})
    assert idle is not None and not counters.is_drafting(idle) and counters.is_drafting({"": 0.0, "drafted": 0.0})
    assert counters.between({"drafted": 5}, {"drafted": 1}) is None  # started again
    place = 'p_total{engine="0",position="%s"} %s\n'
    text = "".join(place % one for one in (("0", 5), ("0", 1), ("2", 1), ("1999", 1), ("-1", 1), ("1", "x")))
    found = counters.parse(f"a_total 9\n{text}p_total 7\n", {"a_total": "drafted", "p_total": "by_position"})
    assert found is not None and found == {"drafted": 9.0, 0: 6.0, 2: 1.0}
    later = counters.between({"drafted": 5, 0: 2.0}, found)
    assert later is not None and later.draft_figures(9).accepted_per_position == [4, 0, 1]
    assert counters.between({0: 7.0}, found) is None


def test_figures_of_the_whole_answer_are_closed() -> None:
    content = {"metrics": remote_streams.VLLM_METRICS}
    figures = in_reply(content, {})
    assert figures is not None
    draft = figures.draft_figures(106)
    assert sum(draft.passes_per_accepted) == draft.verify_passes
    assert sum(draft.accepted_per_position) == draft.accepted


def test_offline_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lead to another machine. Where localhost leads is known."""

    async def ask(url: str) -> int:
        http = Http(address.parse(url), "", Limits(probe=60.0), loopback_only=True)
        try:
            return (await http.get("/v1/models")).status
        finally:
            await http.close()

    def looked_up(host: str, *rest: object, **options: object) -> list[Any]:
        assert host in ("127.0.0.1", "::1", b"127.0.0.1", b"::1")
        return real(host, *rest, **options)  # type: ignore[arg-type]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with ModelServer(remote_streams.openai()) as server:
        assert asyncio.run(ask(f"http://models.localhost:{server.port}")) == 200
        assert server.asked[0].headers["host"] == f"models.localhost:{server.port}"
        with pytest.raises(RemoteError) as raised:
            asyncio.run(ask("http://models.example:80"))
    assert raised.value.cause == "offline"
