"""Other programs and the window's chats on one engine: who waits, what goes on, and that nobody sees it."""

from __future__ import annotations

import json
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest

from app.protocol.serving import Serve
from app.server.guard import MAX_WAITING
from app.ui import notices
from app.ui.chat import answers
from app.ui.engine import EngineState, Priority
from app.ui.engine.pair import ENGINE_NOTICES
from app.ui.engine.queue import Job
from app.ui.server.serving import NOTICE
from tests.support.matrix import in_proof
from tests.support.served import Json, status
from tests.ui.server.rig import ServingRig

SEED = 7
LONG: Json = {"max_tokens": 1200, "seed": SEED, "temperature": 1.0}
ENDLESS: Json = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}


def words(answer: Json) -> tuple[str, str]:
    message = answer["choices"][0]["message"]
    return message.get("reasoning_content") or "", message["content"] or ""


def interrupt_often(rig: ServingRig) -> list[int]:
    """Whenever some rounds have come; the list gets the tokens that there were."""
    at: list[int] = []
    calls = [0]

    def interrupt() -> None:
        calls[0] += 1
        if rig.serving.answer is not None and calls[0] % 3 == 0:
            at.append(rig.serving.answer.tokens)
            rig.queue.submit(Job(lambda: None, Priority.CHAT))

    rig.serving.answer_advanced.connect(interrupt)
    return at


def until_written(rig: ServingRig, tokens: int = 10) -> None:
    rig.until(lambda: rig.serving.answer is not None and rig.serving.answer.tokens > tokens)


def write_a_lot(rig: ServingRig) -> None:
    """The chat is being answered for a while."""
    rig.settings = rig.settings.__class__(max_tokens=3000)
    rig.begin_answer("Write a lot.")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        *in_proof(
            [
                {"thinking_budget_tokens": 400},
                {"reasoning_effort": "none"},
                {"thinking_budget_tokens": 300, "response_format": {"type": "json_object"}, "max_tokens": 900},
                {"repeat_penalty": 1.3, "repeat_last_n": 500},
            ]
        ),
    ],
)
def test_an_answer_that_is_interrupted_is_the_same(rig: ServingRig, fields: Json) -> None:
    whole = rig.ask_served(**{**LONG, **fields})
    at = interrupt_often(rig)
    parts = rig.ask_served(**{**LONG, **fields})
    assert len(set(at)) >= 2
    assert words(parts) == words(whole)
    assert parts["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert parts["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert parts["usage"]["completion_tokens_details"] == whole["usage"]["completion_tokens_details"]


def test_a_stream_goes_on_where_it_was(rig: ServingRig) -> None:
    def streamed() -> str:
        parts = rig.client.streamed(**LONG)
        assert [part["choices"][0]["delta"].get("role") for part in parts].count("assistant") == 1
        return "".join(part["choices"][0]["delta"].get("reasoning_content") or "" for part in parts)

    whole = rig.until_done(rig.submit(streamed))
    interrupt_often(rig)
    assert rig.until_done(rig.submit(streamed)) == whole


def test_a_chat_goes_before_an_answer_that_is_being_written(rig: ServingRig) -> None:
    whole = rig.ask_served(**LONG)
    served = rig.submit(rig.client.chat, **LONG)
    until_written(rig, 50)
    states: list[EngineState] = []
    rig.engine.state_changed.connect(states.append)
    rig.ask("Do I have to wait?")
    assert not served.done() and rig.serving.answer is not None
    assert states[0] is EngineState.ANSWERING
    assert words(rig.until_done(served)) == words(whole)
    assert len(rig.page.texts()) == 2


def test_a_program_waits_for_the_chat(rig: ServingRig) -> None:
    """And one that goes away meanwhile is forgotten."""
    write_a_lot(rig)
    with rig.client.connected() as client:
        client.ask(ENDLESS)
        rig.until(lambda: rig.serving.answer is not None)
    rig.until(lambda: rig.serving.answer is None)
    served = rig.submit(rig.client.chat, max_tokens=3)
    rig.until(lambda: rig.serving.answer is not None)
    assert not rig.serving.is_writing() and rig.engine.state() is EngineState.ANSWERING
    rig.settle()
    assert rig.until_done(served)["usage"]["completion_tokens"] == 3


def test_the_text_of_programs_goes_into_no_chat_and_no_cache(rig: ServingRig, home: Path) -> None:
    rig.ask("Hello")
    rig.ask_served(content="The password is xyzzy", max_tokens=300)
    tokens = rig.until_done(rig.submit(rig.client.post, "/tokenize", {"content": "xyzzy"})).json()["tokens"]
    assert len(tokens) >= 5
    rig.ask("And now?")
    rig.engine.shutdown()
    found = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert b"xyzzy" not in found
    assert np.array(tokens[-5:], "<i4").tobytes() not in found  # as KV caches have it
    history = json.loads((home / "cache" / "history.json").read_bytes())
    counted = sum(kind["tokens"] for entry in history["entries"].values() for kind in entry["kinds"])
    answers = [one for one in rig.model.messages if one.role == "assistant"]
    assert 0 < counted < sum(int(str(one.figures["completion_tokens"])) for one in answers)  # without the first of each


def test_a_client_that_goes_away_frees_the_engine(rig: ServingRig) -> None:
    with rig.client.connected() as client:
        client.ask(ENDLESS)
        until_written(rig)
    rig.until(lambda: rig.serving.answer is None and rig.engine.state() is EngineState.READY)
    rig.until(lambda: bool(rig.serving.records))
    assert rig.serving.records[-1][1].status == 0
    assert rig.ask_served(max_tokens=3)["usage"]["completion_tokens"] == 3


def test_eight_wait_and_the_next_one_is_refused(rig: ServingRig) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(rig.client.connected())
        first.ask(ENDLESS)
        until_written(rig)
        others = [stack.enter_context(rig.client.connected()) for _ in range(MAX_WAITING)]
        for other in others:
            other.ask({**ENDLESS, "max_tokens": 2})

        def refused() -> int:
            # A request that comes too early waits itself, until the others are all there.
            while True:
                with rig.client.connected() as last:
                    last.ask({**ENDLESS, "max_tokens": 2})
                    last.socket.settimeout(0.5)
                    try:
                        answer = last.receive()
                    except TimeoutError:
                        continue
                    if status(answer) == 429:
                        assert b"Retry-After: " in answer
                        return status(answer)

        assert rig.until_done(rig.submit(refused)) == 429
        first.close()
        for other in others:
            assert b"[DONE]" in rig.until_done(rig.submit(other.receive, b"[DONE]"))
    assert any(one.status == 429 for _, one in rig.serving.records)


def test_stop_in_the_window_ends_the_answer(rig: ServingRig) -> None:
    served = rig.submit(rig.client.chat)
    until_written(rig)
    rig.serving.stop_answer()
    answer = rig.until_done(served)
    assert answer["usage"]["completion_tokens"] > 10 and words(answer)[0]
    assert rig.serving.answer is None
    streamed = rig.submit(rig.client.streamed)
    until_written(rig)
    write_a_lot(rig)
    assert not rig.serving.is_writing()
    rig.serving.stop_answer()  # while it waits
    parts = rig.until_done(streamed)
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    rig.settle()


@pytest.mark.allow_logs
def test_who_loads_another_model_ends_it_and_so_does_an_engine_that_dies(rig: ServingRig) -> None:
    def load() -> None:
        rig.pair_loader.load(rig.files())

    def kill() -> None:
        psutil.Process(rig.engine.process_id()).kill()

    for end, said in ((load, b""), (kill, b"has stopped. Restart it there.")):
        with rig.client.connected() as client:
            client.ask(ENDLESS)
            until_written(rig)
            end()
            ended = rig.until_done(rig.submit(client.receive, b"unavailable_error"))
        assert b"unavailable_error" in ended and said in ended and b"[DONE]" not in ended
        if said:
            rig.pair_loader.restart()
        rig.until(lambda: rig.pair_loader.pair() is not None)
        rig.until_done(rig.submit(rig.client.wait_until_healthy))
        assert rig.ask_served(max_tokens=2)["usage"]["completion_tokens"] == 2


@pytest.mark.allow_logs
def test_a_server_that_is_killed_is_started_again_but_not_for_ever(rig: ServingRig) -> None:
    with rig.client.connected() as client:
        client.ask(ENDLESS)
        until_written(rig)
        psutil.Process(rig.serving.process_id()).kill()
        rig.until(lambda: rig.serving.answer is None and rig.engine.state() is EngineState.READY)
    rig.ask("Still there?")
    rig.until(lambda: rig.serving.state.kind == "listening")
    process = psutil.Process(rig.serving.process_id())
    process.kill()
    rig.until(lambda: rig.serving.process_id() not in (0, process.pid))
    rig.until(lambda: rig.serving.state.kind == "listening")
    assert NOTICE not in rig.notice_list.notices()
    psutil.Process(rig.serving.process_id()).kill()
    rig.until(lambda: NOTICE in rig.notice_list.notices())
    assert rig.serving.state.kind == "failed" and not rig.serving.process_id()
    rig.serving.restart()
    rig.until(lambda: rig.serving.state.kind == "listening")
    assert NOTICE not in rig.notice_list.notices()


@pytest.mark.allow_logs
def test_a_port_that_is_taken(rig: ServingRig) -> None:
    rig.serving.stop()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        rig.serving.start(Serve(host=None, port=port, key=None))
        rig.until(lambda: rig.serving.state.kind == "failed")
    assert f"Port {port} on 127.0.0.1 is in use" in rig.serving.state.message
    assert f"Port {port}" in rig.notice_list.notices()[NOTICE].text
    rig.until(lambda: not rig.serving.process_id())
    rig.serving.restart()
    rig.until(lambda: rig.serving.state.kind == "listening")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_it_is_gone_when_it_is_stopped(rig: ServingRig) -> None:
    process = psutil.Process(rig.serving.process_id())
    process.send_signal(signal.SIGINT)  # meant for the window
    assert rig.ask_served(max_tokens=2)["usage"]["completion_tokens"] == 2
    rig.serving.stop()
    assert rig.serving.state.kind == "off" and not rig.serving.process_id()
    rig.until(lambda: not process.is_running())


def test_stopped_and_started_at_once(rig: ServingRig) -> None:
    port, key = rig.serving.state.addresses[0][1], "a-key-of-twenty-letters"
    before = psutil.Process(rig.serving.process_id())
    rig.serving.stop()
    rig.serving.start(Serve(host=None, port=port, key=key))
    assert rig.serving.state.kind == "starting"
    rig.until(lambda: rig.serving.state.kind != "starting")
    assert rig.serving.state.addresses[0][1] == port and not before.is_running()
    process = psutil.Process(rig.serving.process_id())
    assert key not in " ".join(process.cmdline()) + " ".join(process.environ().values())
    assert key not in repr(Serve(host=None, port=0, key=key))
    rig.serving.stop()
    rig.serving.start(Serve(host=None, port=port, key=None))
    rig.until(lambda: rig.serving.state.kind == "listening")
    rig.until_done(rig.submit(rig.client.wait_until_healthy))
    assert rig.ask_served(max_tokens=2)["usage"]["completion_tokens"] == 2, "it was told which model is loaded"


def test_its_notices_are_not_those_of_other_peoples_servers() -> None:
    assert NOTICE not in (*ENGINE_NOTICES, *notices.PASSING, answers.SERVER)
