"""The process itself: questions beside an answer, several requests, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from app.protocol.commands import (
    Cancel,
    ChatPart,
    CountTokens,
    Generate,
    Load,
    MeasurePlain,
    Message,
    Ping,
    Quit,
    ScoreTokens,
)
from app.protocol.events import (
    PROTOCOL_VERSION,
    GenerationFailed,
    GenerationFinished,
    Hello,
    LoadFailed,
    PlainMeasured,
    Pong,
    TokensCounted,
)
from app.protocol.remote import FindServers, Probe, ServerProbed
from app.remote import connecting
from app.remote.http import Limits
from tests.support import remote_streams
from tests.support.model_server import Answer, ModelServer, Reply, Wait
from tests.support.remote_engine import QUESTION, RemoteEngine
from tests.support.remote_streams import TEXT

CHAT = "/v1/chat/completions"


def test_the_greeting_and_before_a_server_is_connected() -> None:
    with RemoteEngine() as engine:
        hello = engine.until(Hello)
        assert hello.protocol == PROTOCOL_VERSION
        assert not hello.devices
        if sys.platform == "linux":
            loaded = {Path(entry.path).name for entry in psutil.Process(engine.process.pid).memory_maps()}
            assert not [name for name in loaded if "llama" in name or "ggml" in name or "Qt" in name]
        assert engine.answer().failed.message == "No server is connected."
        engine.send(Load(request=5, target="x.gguf"))
        assert "can't load a file" in engine.until(LoadFailed).message


def test_a_chat_in_parts(engine: RemoteEngine) -> None:
    turns = [Message(role="user", content=f"{number}") for number in range(4)]
    with ModelServer(remote_streams.openai()) as server:
        engine.connect(server.url)
        engine.send(ChatPart(messages=turns[:2]))
        engine.send(Generate(request=900, messages=turns[2:3], kept=2))
        engine.until(GenerationFinished)
        engine.send(Generate(request=901, messages=turns[3:], kept=1))
        engine.until(GenerationFinished)
        first, second = server.bodies(CHAT)
    assert [one["content"] for one in first["messages"]] == ["0", "1", "2"]
    assert [one["content"] for one in second["messages"]] == ["0", "3"]


def test_probing_beside_an_answer(engine: RemoteEngine) -> None:
    wait = Wait()
    routes = {**remote_streams.openai(), CHAT: Reply.stream(*remote_streams.words(), wait)}
    with ModelServer(routes) as server, ModelServer(remote_streams.vllm()) as other:
        engine.connect(server.url)
        engine.ask()
        assert wait.reached.wait(60)
        engine.send(Probe(request=3, address=other.url), Probe(request=4, address="ftp://x"))
        found = {event.request: event for event in (engine.until(ServerProbed), engine.until(ServerProbed))}
        engine.send(Cancel())
        engine.end()
    assert found[3].server is not None
    assert (found[3].server.kind, [one.id for one in found[3].server.models]) == ("vllm", ["m"])
    assert (found[3].cause, found[3].message) == ("", "")
    assert (found[4].server, found[4].cause) == (None, "address")
    with ModelServer({"/v1/models": Reply.of({}, 401, Server="llama.cpp")}) as server:
        engine.send(Probe(request=5, address=server.url))
        probed = engine.until(ServerProbed)
    assert probed.server is not None
    assert (probed.server.kind, probed.server.needs_key, probed.cause) == ("llama.cpp", True, "key")


def test_servers_of_this_machine_are_found() -> None:
    """At the ports of a test, since the usual ones may belong to somebody."""
    keyless: dict[str, Answer] = {"/v1/models": Reply.of({}, 401)}
    with (
        ModelServer(remote_streams.vllm()) as one,
        ModelServer(keyless) as two,
        ModelServer({"/": Reply([b"hello"])}) as none,
    ):
        ports = (none.port, one.port, 1, two.port)
        found = asyncio.run(connecting.find(FindServers(request=1), Limits(find=30.0), ports)).servers
        assert [(server.kind, server.needs_key) for server in found] == [("vllm", False), ("openai", True)]
        assert all("authorization" not in asked.headers for asked in [*one.asked, *two.asked, *none.asked])


def test_counting(engine: RemoteEngine) -> None:
    chat = [Message(role="system", content="12345"), Message(role="user", content="123")]
    with ModelServer(remote_streams.llama_server()) as server:
        pair = engine.connect(server.url)
        assert pair.remote is not None and pair.remote.can_count
        engine.send(CountTokens(request=7, messages=chat, text="12"))
        counted = engine.until(TokensCounted)
        assert (counted.system, counted.messages, counted.text, counted.context_length) == (5, 3, 2, 2048)
        engine.send(CountTokens(request=8, messages=chat))
        counted = engine.until(TokensCounted)
        assert (counted.system, counted.messages, counted.text) == (5, 3, 0)
    with ModelServer(remote_streams.openai()) as server:
        pair = engine.connect(server.url)
        assert pair.remote is not None and not pair.remote.can_count
        engine.send(CountTokens(request=9, messages=chat), Ping())  # not answered
        engine.until(Pong)


def test_measuring_without_a_draft(engine: RemoteEngine) -> None:
    with ModelServer(remote_streams.ollama()) as server:
        engine.connect(server.url)
        engine.send(MeasurePlain(request=950, messages=QUESTION, max_tokens=50))
        measured = engine.until(PlainMeasured)
        assert measured.tokens == 298
        assert server.bodies("/api/chat")[-1]["options"]["draft_num_predict"] == 0
    with ModelServer(remote_streams.vllm()) as server:
        engine.connect(server.url)
        engine.send(MeasurePlain(request=951, messages=QUESTION))
        engine.send(ScoreTokens(request=952, messages=QUESTION, answer=[1], candidates=[2]))
        assert "without drafting" in engine.until(GenerationFailed).message
        assert engine.until(GenerationFailed).request == 952
        assert not server.bodies(CHAT)


def test_the_answer_after_a_canceled_one(engine: RemoteEngine) -> None:
    wait = Wait()
    with ModelServer({**remote_streams.openai(), CHAT: Reply.stream(wait)}) as server:
        engine.connect(server.url)
        engine.ask()
        assert wait.reached.wait(60)
        server.routes[CHAT] = remote_streams.openai()[CHAT]
        engine.send(Cancel())
        engine.end()
        assert engine.answer().text() == TEXT


@pytest.mark.parametrize("is_told", [True, False])
def test_it_ends_in_the_middle_of_an_answer_when_it_is_told_to_and_with_the_window(is_told: bool) -> None:
    wait = Wait()
    with ModelServer({**remote_streams.openai(), CHAT: Reply.stream(wait)}) as server, RemoteEngine() as engine:
        engine.connect(server.url)
        engine.ask()
        assert wait.reached.wait(60)
        assert engine.process.stdin is not None
        if is_told:
            engine.send(Quit())
        else:
            engine.process.stdin.close()
        assert engine.wait() == 0
        assert wait.left.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_interrupts_are_for_the_window(engine: RemoteEngine) -> None:
    engine.send(Ping())
    engine.until(Pong)
    os.kill(engine.process.pid, signal.SIGINT)
    engine.send(Ping())
    engine.until(Pong)


def test_a_key_is_nowhere_else() -> None:
    key = "s3cret-0123456789"
    uncounted = Reply.of({"error": {"message": f"{key} isn't allowed to count."}}, 400)
    with RemoteEngine() as engine, ModelServer({**remote_streams.vllm(), "/tokenize": uncounted}) as server:
        engine.connect(server.url, key=key)
        engine.answer()
        server.routes[CHAT] = Reply.of({"error": "no"}, 500)
        failed = engine.answer().failed
        process = psutil.Process(engine.process.pid)
        assert key not in " ".join(process.cmdline())
        assert key not in str(process.environ())
        assert key not in failed.message
        engine.send(CountTokens(request=9, messages=QUESTION))
        assert engine.process.stderr is not None
        logged = b""
        while b"to count" not in logged:
            logged += engine.process.stderr.readline()
        engine.send(Quit())
        engine.wait()
        logged += engine.process.stderr.read()
    assert "… isn't allowed to count." in logged.decode() and key.encode() not in logged
