"""Search and repositories, against a real server that is kind, strict or mad."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.models.hub.api import Hub
from app.models.hub.network import MAX_API_ANSWER, Network, NetworkSettings
from app.models.hub.repository import (
    NoAccessError,
    NotFoundError,
    RefusedError,
    Sort,
    UnreachableError,
    is_commit,
    is_repository_id,
    is_safe_path,
)
from app.storage.files import is_sha256
from app.system import KnownError
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

ABOUT = "/api/models/maker/model"


@pytest.fixture
def hub(server: HubServer, network: Network) -> Hub:
    server.add(
        "maker/model",
        {
            "model-Q8_0.gguf": b"8" * 80,
            "model-Q4_K_M.gguf": b"4" * 40,
            "mmproj-F16.gguf": b"eyes",
            "README.md": b"# Model",
        },
        downloads=7,
        likes=3,
        base_models=("family/Base-8B", "quantized:family/Base-8B"),
    )
    server.add("other/model-GGUF", {"m.gguf": b"m"}, downloads=9, gated="manual", modified="2026-05-06T07:08:09.000Z")
    return Hub(network)


def test_search(server: HubServer, hub: Hub) -> None:
    first, second = hub.search("model", "downloads")
    assert (first.id, first.downloads, first.gated) == ("other/model-GGUF", 9, "manual")
    assert (second.id, second.likes, second.gated, second.license) == ("maker/model", 3, "no", "apache-2.0")
    assert second.modified == "2026-01-02T03:04:05Z"
    assert second.base_models == ("family/Base-8B",)
    assert [found.id for found in hub.search("maker")] == ["maker/model"]
    assert hub.search("nothing like it") == []
    assert "filter=gguf" in server.requests[0].path
    orders: dict[Sort, str] = {"trending": "trendingScore", "likes": "likes", "newest": "createdAt"}
    for sort, asked in orders.items():
        hub.search("model", sort)
        assert f"sort={asked}" in server.requests[-1].path
    warning = (("X-HF-Warning", "topic; visit evil.example"),)  # which does not reach the log
    server.faults.add("/api/models", Fault(content=b"[]", headers=warning), at="api")
    assert hub.search("model") == []


def test_repository(server: HubServer, hub: Hub) -> None:
    repository = hub.repository("maker/model")
    assert repository.commit == server.repositories["maker/model"].commit
    assert [(model.name, model.size, model.quantization) for model in repository.models] == [
        ("model-Q4_K_M.gguf", 40, "Q4_K_M"),
        ("model-Q8_0.gguf", 80, "Q8_0"),
    ]
    assert repository.models[0].files == (server.remote_file("maker/model", "model-Q4_K_M.gguf"),)
    assert (repository.license, repository.gated, repository.downloads) == ("apache-2.0", "no", 7)
    hub.search("model")
    assert [entry.purpose for entry in hub.network.traffic()] == ["search", "model page"]


def test_what_is_not_there(hub: Hub) -> None:
    with pytest.raises(NotFoundError, match=r"^maker/gone doesn't exist on 127\.0\.0\.1, or is private and needs"):
        hub.repository("maker/gone")
    with pytest.raises(KnownError, match="not a repository name"):
        hub.repository("https://huggingface.co/maker/model")


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        (Fault(status=429), UnreachableError, "Too many requests to .*Try again in a few minutes"),
        (Fault(status=429, headers=(("Retry-After", "30"),)), UnreachableError, "Try again in 30 s"),
        (Fault(status=429, headers=(("Retry-After", "9" * 30),)), UnreachableError, "Try again in a few minutes"),
        (Fault(status=503), UnreachableError, "has a problem"),
        (Fault(status=400), KnownError, r"127\.0\.0\.1"),
        (Fault(status=403), KnownError, r"127\.0\.0\.1"),
        (Fault(status=404), NotFoundError, r"127\.0\.0\.1"),
        (Fault(status=418), KnownError, r"^Slipstream doesn't understand the answer from .* \(status 418\)\.$"),
    ],
)
def test_a_hub_that_refuses_is_asked_once(
    server: HubServer, hub: Hub, fault: Fault, kind: type[KnownError], sentence: str
) -> None:
    server.faults.always("/api/models", fault, at="api")
    server.faults.always(ABOUT, fault, at="api")
    questions: list[Callable[[str], object]] = [hub.search, hub.repository]
    for ask in questions:
        with pytest.raises(kind, match=sentence):
            ask("maker/model")
    assert len(server.requests) == 2


def test_gated_with_and_without_a_token(server: HubServer) -> None:
    gated = (("X-Error-Code", "GatedRepo"),)
    for token, sentence in ((None, "accept its terms on its page first"), ("hf_stranger", "doesn't give you access")):
        server.faults.add("/api/models/maker/gated", Fault(status=403 if token else 401, headers=gated), at="api")
        with pytest.raises(NoAccessError, match=sentence) as caught:
            Hub(network_with(server, token)).repository("maker/gated")
        assert caught.value.page == f"{server.endpoint}/maker/gated"


def test_a_token_the_hub_does_not_know_is_not_shown(server: HubServer) -> None:
    server.add("maker/model", {"m.gguf": b"m"})
    hub = Hub(network_with(server, "hf_unknown_secret"))
    with pytest.raises(NoAccessError, match="doesn't recognize the access token") as caught:
        hub.repository("maker/model")
    assert server.requests[-1].authorization == "Bearer hf_unknown_secret"
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value) + repr(caught.value) + repr(hub) + repr(hub.network)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>Sign in to the airport's network</html>",
        b"[1, 2]",
        b'{"error": "no"}',
        b"null",
        b"[" * 100_000,
        b'[{"id": 7}]',
        b'[{"id": "a/b", "lastModified": "yesterday"}]',
        b'[{"id": "a/b", "tags": 7}]',
        b"9" * 10_000,
    ],
)
def test_answers_that_make_no_sense(server: HubServer, hub: Hub, answer: bytes) -> None:
    server.faults.always("/api/models", Fault(content=answer), at="api")
    server.faults.always(ABOUT, Fault(content=answer), at="api")
    questions: list[Callable[[str], object]] = [hub.search, hub.repository]
    for ask in questions:
        with pytest.raises(RefusedError, match=r"makes no sense. Check the address of the mirror"):
            ask("maker/model")


def test_an_answer_without_an_end_or_one_that_would_grow(server: HubServer, hub: Hub) -> None:
    packed = Fault(content=b"\x1f\x8b", headers=(("Content-Encoding", "gzip"),))
    server.faults.add("/api/models", Fault(content=b" " * (MAX_API_ANSWER + 1_000_000)), packed, at="api")
    with pytest.raises(RefusedError, match="too long to be genuine"):
        hub.search("model")
    with pytest.raises(RefusedError, match="in an unexpected format"):
        hub.search("model")


def network_with(server: HubServer, token: str | None) -> Network:
    return Network(NetworkSettings(endpoint=server.endpoint, token_to_mirror=True), lambda: token)


# ---------------------------------------------------------------- anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["id", "sha", "lastModified", "gated", "downloads", "likes", "tags", "cardData", "siblings", "createdAt"]
PATHS = st.sampled_from(["m-Q4_0.gguf", "../m.gguf", "/m.gguf", "a\\m.gguf", "nul.gguf", "m\x00.gguf"])
LARGE = st.fixed_dictionaries(
    {
        "size": st.integers() | JSON,
        "sha256": st.sampled_from(["0" * 64, "0" * 63, "G" * 64]) | JSON,
        "pointerSize": JSON,
    }
)
SIBLINGS = st.lists(st.fixed_dictionaries({"rfilename": PATHS | JSON, "size": JSON, "lfs": LARGE | JSON}), max_size=4)
INFO = st.builds(
    lambda changes, siblings, sha: {"id": "maker/model", "sha": sha, "siblings": siblings, **changes},
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3),
    SIBLINGS,
    st.sampled_from(["0" * 40, "main", "../" * 13 + "x"]),
)


def test_whatever_a_mirror_answers(server: HubServer, hub: Hub) -> None:
    @settings(max_examples=60, deadline=None)
    @given(INFO | JSON)
    def try_one(answer: Any) -> None:
        server.faults.always("/api/models", Fault(content=json.dumps([answer]).encode()), at="api")
        server.faults.always(ABOUT, Fault(content=json.dumps(answer).encode()), at="api")
        try:
            assert all(is_repository_id(found.id) for found in hub.search("model"))
            repository = hub.repository("maker/model")
        except RefusedError as error:
            assert len(str(error)) < 300
            return
        assert is_commit(repository.commit)
        for file in (file for model in repository.models for file in model.files):
            assert is_safe_path(file.path) and is_sha256(file.sha256) and file.size > 0

    try_one()
