"""What a server, the way to it, or somebody on that way can do wrong: through the real process."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from app.protocol.commands import Cancel, Message, Ping
from app.protocol.events import LoadFailed, LoadProgressed, PairLoaded, Pong
from app.protocol.remote import Connect, ServerFailure
from tests.support import remote_streams
from tests.support.model_server import Answer, Asked, Cut, ModelServer, Reply, Wait
from tests.support.remote_engine import QUESTION, RemoteEngine
from tests.support.remote_streams import DONE, TEXT, WORDS, chunk, event, words
from tests.support.vision_models import make_image

CHAT = "/v1/chat/completions"
END = [chunk({}, finish_reason="stop"), DONE]


def serving(*pieces: Any, **headers: str) -> ModelServer:
    """A server with one answer."""
    return ModelServer({**remote_streams.openai(), CHAT: Reply.stream(*pieces, **headers)})


# ------------------------------------------------------------ a stream of another shape


def odd(text: bytes) -> bytes:
    """As other programs end their lines, with pings in between."""
    return b": ping\r\n\r\n" + text.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        [*words(), chunk({}, finish_reason="stop")],
        [b"".join([*words(), *END])],
        [bytes([one]) for one in b"".join([*words(), *END])],
        [odd(one) for one in [*words(), *END]],
        [b"event: message\nid: 1\nretry: 5\n" + one for one in [*words(), *END]],
        [one.replace(b"data: ", b"data:") for one in [*words(), *END]],
        [event({"choices": []}), event({}), event({"choices": None}), *words(), DONE],
        [*words(), chunk({"content": None}, finish_reason="stop"), chunk(usage=None), DONE],
        [b"data: not JSON\n\n", b"data: [1]\n\n", b'data: "x"\n\n', *words(), *END],
        [
            chunk({"content": 5, "reasoning_content": [], "reasoning": {}}, timings=[], usage="x", metrics=3),
            event({"choices": [5]}),
            event({"choices": {"delta": 1}}),
            event({"choices": [{"delta": "x", "finish_reason": 7}], "prompt_progress": {"total": "a"}}),
            *words(),
            chunk(timings={"predicted_n": -1, "predicted_ms": "x", "draft_n": 1.5, "draft_n_accepted": True}),
            chunk(usage={"prompt_tokens": "5", "completion_tokens": None}, sglext={"spec_tokens_details": [1]}),
            *END,
        ],
        [chunk({"content": [{"type": "text", "text": word}, 5]}) for word in WORDS] + END,
        [*words(), b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}'],
        [json.dumps({"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}).encode()],
        [event({"choices": [], "padding": "x" * 10_000_000}), *words(), *END],
    ],
    ids=[
        *("no DONE", "at once", "byte by byte", "CRLF and pings", "other fields", "no space", "no choices", "nulls"),
        *("no objects", "wrong types", "content in parts", "no last line end", "not streamed", "10 MB line"),
    ],
)
def test_read_all_the_same(hasty: RemoteEngine, pieces: list[bytes]) -> None:
    with serving(*pieces) as server:
        hasty.connect(server.url)
        answered = hasty.answer()
    assert answered.text() == TEXT
    assert answered.finished.finish_reason == "end"


def test_compressed_and_thinking_inside_the_answer(hasty: RemoteEngine) -> None:
    with serving(gzip.compress(b"".join([*words(), *END])), Content_Encoding="gzip") as server:
        hasty.connect(server.url)
        assert hasty.answer().text() == TEXT
    parts = [chunk({"content": part}) for part in ("\n<th", "ink>\nHm", "? </thi", "nk>\n\nYes")]
    with serving(*parts, *END) as server:
        hasty.connect(server.url)
        answered = hasty.answer()
    assert (answered.text(thinking=True), answered.text()) == ("Hm? ", "Yes")


def test_why_it_ended(hasty: RemoteEngine) -> None:
    with serving(*words(), chunk({}, finish_reason="stop", choice={"stop_reason": "##"}), DONE) as server:
        hasty.connect(server.url)
        finished = hasty.answer(stop=["##"]).finished
    assert (finished.finish_reason, finished.stop_string) == ("stop_string", "##")
    with serving(*words(), chunk({}, finish_reason="length"), DONE) as server:
        hasty.connect(server.url)
        assert hasty.answer(max_tokens=6).finished.finish_reason == "length"
        assert hasty.answer(max_tokens=None).finished.finish_reason == "context"


# ------------------------------------------------------------ an answer that ends too early


@pytest.mark.parametrize(
    "ending", [[Cut], [], [chunk({}, finish_reason="abort"), DONE]], ids=["reset", "closed", "aborted"]
)
def test_a_cut_keeps_what_came(hasty: RemoteEngine, ending: list[Any]) -> None:
    with serving(*words(), *ending) as server:
        hasty.connect(server.url)
        answered = hasty.answer()
        assert len(server.bodies(CHAT)) == 1  # never sent twice
    assert (answered.text(), answered.failed.cause) == (TEXT, "cut")
    assert answered.failed.figures is not None
    assert answered.failed.figures.completion_tokens == len(WORDS)
    assert answered.failed.message.endswith("The part that had arrived was kept.")


def test_a_server_that_falls_silent() -> None:
    with serving(*words(), Wait()) as server, RemoteEngine("tests.support.hasty_remote", "stalls") as engine:
        engine.connect(server.url)
        answered = engine.answer()
    assert TEXT.startswith(answered.text())
    assert answered.failed.cause in ("cut", "timeout")
    assert "sent nothing" in answered.failed.message


@pytest.mark.parametrize(
    "line", [b'data: {"error": {"message": "CUDA error"}}\n\n', b'error: {"error": "CUDA error"}\n\n']
)
def test_an_error_in_the_middle(hasty: RemoteEngine, line: bytes) -> None:
    with serving(*words(), line, DONE) as server:
        hasty.connect(server.url)
        answered = hasty.answer()
    assert answered.text() == TEXT
    assert answered.failed.cause == "refused"
    assert "CUDA error" in answered.failed.message


@pytest.mark.parametrize("piece", [b"x" * 13_000_000, b": ping\n\n" * 3_000_000], ids=["line", "answer"])
def test_too_much(hasty: RemoteEngine, piece: bytes) -> None:
    with serving(piece) as server:
        hasty.connect(server.url)
        failed = hasty.answer().failed
    assert (failed.cause, "too long" in failed.message) == ("not_a_server", True)


@pytest.mark.parametrize("begun", [words(), []], ids=["in the middle", "before anything comes"])
def test_canceling_closes_the_connection(hasty: RemoteEngine, begun: list[bytes]) -> None:
    wait = Wait()
    with serving(*begun, wait) as server:
        hasty.connect(server.url)
        hasty.ask()
        assert wait.reached.wait(60)
        hasty.send(Ping())
        assert hasty.until(Pong).busy
        hasty.send(Cancel())
        answered = hasty.end()
        assert wait.left.wait(60)
    assert answered.finished.finish_reason == "cancelled"
    assert answered.text() in TEXT  # its beginning may have come before the ping was answered


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("reply", "cause", "words_in_it"),
    [
        (Reply.of({"error": "Unauthorized"}, 401), "key", "needs a key, or refused"),
        (Reply.of({"error": {"message": "Invalid API Key", "code": 401}}, 403), "key", "needs a key, or refused"),
        (
            Reply.of(
                {
                    "error": {
                        "code": 400,
                        "message": "the request exceeds the available context size",
                        "type": "exceed_context_size_error",
                        "n_prompt_tokens": 5000,
                        "n_ctx": 4096,
                    }
                },
                400,
            ),
            "context",
            "5,000 tokens",
        ),
        (
            Reply.of({"object": "error", "message": "This model's maximum context length is 4096 tokens."}, 400),
            "context",
            "4096",
        ),
        (Reply.of({"error": {"message": "Loading model", "type": "unavailable_error"}}, 503), "loading", "loading"),
        (Reply.of({"error": {"message": "model 'x' not found", "type": "model_not_found"}}, 404), "model", "have this"),
        (Reply.of({"error": "slow down"}, 429, Retry_After="7"), "busy", "in 7 s"),
        (Reply.of({"detail": [{"msg": "top_k must be -1"}]}, 422), "refused", "top_k must be -1"),
        (Reply.of({"error": "text", "error_type": "validation"}, 500), "refused", "status 500"),
        (Reply([b"<html>Bad gateway</html>"], 502), "unreachable", "502"),
        (Reply([b"\x00\xff" * 100_000], 418), "refused", "418"),
        (Reply.of({"error": {"message": "evil\u202e\x1b[31m" + "x" * 9000}}, 400), "refused", "\\u202e\\x1b"),
    ],
)
def test_refusals(hasty: RemoteEngine, reply: Reply, cause: ServerFailure, words_in_it: str) -> None:
    with ModelServer({**remote_streams.openai(), CHAT: reply}) as server:
        hasty.connect(server.url)
        failed = hasty.answer().failed
    assert failed.cause == cause
    assert words_in_it in failed.message
    assert len(failed.message) < 600
    assert failed.prompt_tokens == (5000 if words_in_it.startswith("5,000") else 0)


def test_nobody_is_there(hasty: RemoteEngine) -> None:
    for address, cause in (("localhost:1", "unreachable"), ("ftp://localhost", "address")):
        failed = hasty.try_to_connect(address)
        assert isinstance(failed, LoadFailed)
        assert failed.cause == cause


def test_something_else_is_there_and_models_that_are_not(hasty: RemoteEngine) -> None:
    def cause(routes: dict[str, Answer], model: str = "") -> str:
        with ModelServer(routes) as server:
            failed = hasty.try_to_connect(server.url, model=model)
        assert isinstance(failed, LoadFailed)
        return failed.cause

    assert cause({"/v1/models": Reply([b"<html>"]), "/": Reply([b"<html>"])}) == "not_a_server"
    assert cause(remote_streams.openai(), "gone") == "model"
    assert cause({"/v1/models": Reply.of({"data": []})}) == "model"
    assert cause(router(["unloaded"], failed=True), "b") == "model"


# ------------------------------------------------------------ loading


def test_a_server_that_is_still_loading(hasty: RemoteEngine) -> None:
    loading = Reply.of({"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, 503)
    routes = remote_streams.llama_server()
    replies = iter([loading, loading, routes["/v1/models"]])
    with ModelServer({**routes, "/v1/models": lambda asked: next(replies)}) as server:  # type: ignore[dict-item, return-value]
        hasty.send(Connect(request=10_001, address=server.url))
        assert [hasty.until(LoadProgressed).stage for _ in range(2)] == ["server", "server"]
        assert hasty.until(PairLoaded).remote is not None
    with ModelServer({"/v1/models": loading}) as server:
        hasty.send(Connect(request=10_002, address=server.url))
        hasty.until(LoadProgressed)
        hasty.send(Cancel())
        assert hasty.until(LoadFailed).cancelled


def router(states: list[str], *, failed: bool = False) -> dict[str, Answer]:
    """A llama-server with several models, the second of which goes through ``states``."""
    left = list(states)

    def listed(asked: Asked) -> Reply:
        state = left.pop(0) if len(left) > 1 else left[0]
        status = {"value": state, **({"failed": True, "exit_code": 1} if failed and state == "unloaded" else {})}
        entries = [{"id": "a", "owned_by": "llamacpp", "status": {"value": "unloaded"}}]
        entries.append({"id": "b", "owned_by": "llamacpp", "status": status})
        return Reply.of({"data": entries}, Server="llama.cpp")

    routes = remote_streams.llama_server()
    return {**routes, "/v1/models": listed, "/models": listed, "/models/load": Reply.of({"success": True})}


def test_a_model_on_a_router_is_loaded_when_it_is_chosen(hasty: RemoteEngine) -> None:
    with ModelServer(router(["unloaded", "loading", "loading", "loaded"])) as server:
        pair = hasty.connect(server.url, model="b")
        assert server.bodies("/models/load") == [{"model": "b"}]
        assert next(one for one in server.asked if one.path == "/props").query == {"model": ["b"]}
        hasty.answer()
        assert server.bodies(CHAT)[-1]["model"] == "b"
    assert pair.remote is not None
    assert [(one.id, one.state) for one in pair.remote.server.models] == [("a", "unloaded"), ("b", "loaded")]


def test_the_loaded_model_is_taken(hasty: RemoteEngine) -> None:
    with ModelServer(router(["loaded"])) as server:
        pair = hasty.connect(server.url)
        assert not server.bodies("/models/load")
    assert pair.remote is not None
    assert pair.remote.model == "b"


# ------------------------------------------------------------ images


def test_images(hasty: RemoteEngine, tmp_path: Path) -> None:
    file = tmp_path / "dots.png"
    shown = Message(role="user", content="What is this?", images=(make_image(file),))
    with ModelServer(remote_streams.llama_server()) as server:
        pair = hasty.connect(server.url)
        hasty.answer([shown])
        content = server.bodies(CHAT)[-1]["messages"][0]["content"]
        file.unlink()
        missing = hasty.answer([shown]).failed
    assert pair.remote is not None and "images" not in pair.remote.refused
    assert [part["type"] for part in content] == ["image_url", "text"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert "missing" in missing.message
    with ModelServer(remote_streams.vllm()) as server:
        hasty.connect(server.url)
        failed = hasty.answer([*QUESTION, shown]).failed
        assert not server.bodies(CHAT)
    assert failed.cause == "refused"
