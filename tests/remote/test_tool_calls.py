"""Tools of a model on somebody else's server: what is asked, and calls as servers stream them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.protocol.commands import Cancel, CountTokens, Generate, Message
from app.protocol.events import TokensCounted
from app.protocol.tools import ToolCall, ToolUse
from app.server.answers import Reader
from tests.support import remote_streams
from tests.support.model_server import Answer, ModelServer, Reply, Wait
from tests.support.remote_engine import QUESTION, Answered, RemoteEngine
from tests.support.remote_streams import DONE, TEXT, USAGE, chunk, words
from tests.support.scripted_calls import make_scripted_target
from tests.support.served import Served
from tests.support.tool_models import LIGHT, WEATHER

CHAT = "/v1/chat/completions"
TOOLS = ToolUse(tools=[WEATHER, LIGHT])
CALL = ToolCall("abc", WEATHER.name, '{"place": "Rome", "days": 2}')
END = [chunk({}, finish_reason="tool_calls"), chunk(usage=USAGE), DONE]


def call(
    index: int | None = None, name: str = "", arguments: Any = None, identity: str | None = None
) -> dict[str, Any]:
    """A piece of a call, with what is given."""
    function = {"name": name or None, "arguments": arguments}
    found = {"index": index, "id": identity, "type": "function", "function": function}
    found["function"] = {key: value for key, value in function.items() if value is not None}
    return {key: value for key, value in found.items() if value is not None}


def calls(*pieces: dict[str, Any]) -> list[bytes]:
    return [chunk({"tool_calls": [one]}) for one in pieces]


def answered(engine: RemoteEngine, *pieces: Any, messages: list[Message] = QUESTION) -> Answered:
    with ModelServer({**remote_streams.openai(), CHAT: Reply.stream(*pieces)}) as server:
        engine.connect(server.url)
        return engine.answer(messages, tools=TOOLS)


ROME, OSLO = '{"place": "Rome", "days": 2}', '{"place": "Oslo", "days": 1}'
BOTH = [("a1", WEATHER.name, ROME), ("b2", WEATHER.name, OSLO)]


@pytest.mark.parametrize(
    "pieces",
    [
        [
            *calls(call(0, WEATHER.name, "", "a1"), call(0, "", ROME[:9]), call(0, "", ROME[9:])),
            *calls(call(1, WEATHER.name, OSLO, "b2")),
        ],
        [*calls(call(0, WEATHER.name, ROME, "a1"), call(0, WEATHER.name, OSLO, "b2"))],
        [
            *calls(call(None, WEATHER.name, "", "a1"), call(None, "", ROME)),
            *calls(call(None, WEATHER.name, OSLO[:4], "b2"), call(None, "", OSLO[4:])),
        ],
        [
            *calls(call(0, WEATHER.name, "", "a1"), call(1, WEATHER.name, "", "b2")),
            *calls(call(0, "", ROME), call(1, "", OSLO[:5]), call(1, "", OSLO[5:])),
        ],
        [
            *calls(call(0, WEATHER.name, ROME[:3], "a1"), call(0, WEATHER.name, ROME[3:], "a1")),
            *calls(call(7, WEATHER.name, "", "b2"), call(8, "", OSLO)),
        ],
        [*calls(call(None, "", ROME, "a1"), call(None, WEATHER.name, "", "a1"), call(1, WEATHER.name, OSLO, "b2"))],
        [chunk({"tool_calls": [call(None, WEATHER.name, ROME, "a1"), call(None, WEATHER.name, OSLO, "b2")]})],
        [*calls(call(0, WEATHER.name, json.loads(ROME), "a1"), call(1, WEATHER.name, json.loads(OSLO), "b2"))],
    ],
    ids=[
        *("OpenAI's", "always index 0", "no index", "in turns", "names again, a stray index", "name last"),
        *("no index, at once", "objects"),
    ],
)
def test_calls_are_put_together(engine: RemoteEngine, pieces: list[bytes]) -> None:
    found = answered(engine, *pieces, *END)
    assert [(one.id, one.name, json.loads(one.arguments)) for one in found.finished.tool_calls] == [
        (identity, name, json.loads(arguments)) for identity, name, arguments in BOTH
    ]
    assert found.finished.finish_reason == "end" and not found.text()
    assert not found.finished.has_only_thought("Hm.", "")
    assert found.finished.figures.completion_tokens == USAGE["completion_tokens"]


def test_text_before_a_call_and_no_arguments(engine: RemoteEngine) -> None:
    found = answered(engine, *words(), *calls(call(0, LIGHT.name, "", "a")), *END)
    assert found.text() == remote_streams.TEXT
    assert found.finished.tool_calls == [ToolCall("a", LIGHT.name, "{}")]
    found = answered(engine, *calls(call(0, LIGHT.name, None, "a")), DONE)
    assert found.finished.tool_calls == [ToolCall("a", LIGHT.name, "{}")], "even where no reason is given"


def test_ids_are_those_of_one_call(engine: RemoteEngine) -> None:
    """Some servers give none, or the same in each answer; templates of Mistral's accept only their own form."""
    pieces = [call(0, LIGHT.name, "{}"), call(1, LIGHT.name, "{}", "abc"), call(2, LIGHT.name, "{}", "a\u202eb")]
    earlier = [*QUESTION, Message(role="assistant", content="", tool_calls=(CALL,))]
    result = Message(role="tool", content="Sunny.", tool_call_id=CALL.id, tool_name=CALL.name)
    found = answered(engine, *calls(*pieces), *END, messages=[*earlier, result])
    ids = [one.id for one in found.finished.tool_calls]
    assert len({*ids, CALL.id}) == 4
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in ids)


def test_a_call_that_is_no_call(engine: RemoteEngine) -> None:
    for arguments in ("[1]", "{", '"x"', "NaN"):
        found = answered(engine, *words(), *calls(call(0, LIGHT.name, arguments, "a")), *END)
        assert "with broken arguments" in found.failed.message
    assert "without a name" in answered(engine, *calls(call(0, "", "{}", "a")), *END).failed.message
    many = [call(None, LIGHT.name, "{}", f"c{number}") for number in range(200)]
    assert "too many tool calls" in answered(engine, *calls(*many), *END).failed.message
    odd: list[Any] = [5, None, {"function": 3}, {"function": {"name": 4, "arguments": 5}, "id": [], "index": "x"}]
    found = answered(engine, *words(), chunk({"tool_calls": odd[:2]}), chunk({"tool_calls": 7}), *END)
    assert found.text() == remote_streams.TEXT


def test_a_call_that_was_cut_is_none(engine: RemoteEngine) -> None:
    cut = [*words(), *calls(call(0, WEATHER.name, ROME[:12], "a"))]
    found = answered(engine, *cut, chunk({}, finish_reason="length"), DONE)
    assert found.finished.tool_calls == [] and found.finished.finish_reason in ("length", "context")
    wait = Wait()
    with ModelServer({**remote_streams.openai(), CHAT: Reply.stream(*cut, wait)}) as server:
        engine.connect(server.url)
        engine.ask(QUESTION, tools=TOOLS)
        assert wait.reached.wait(60)
        engine.send(Cancel())
        ended = engine.end()
    assert (ended.finished.finish_reason, ended.finished.tool_calls) == ("cancelled", [])


HISTORY = [
    *QUESTION,
    Message(role="assistant", content="I look.", tool_calls=(CALL,)),
    Message(role="tool", content="Sunny.", tool_call_id=CALL.id, tool_name=CALL.name),
]


@pytest.mark.parametrize("kind", ["openai", "llama.cpp"])
def test_what_is_asked(engine: RemoteEngine, kind: str) -> None:
    routes: dict[str, Answer] = remote_streams.openai() if kind == "openai" else remote_streams.llama_server()
    with ModelServer(routes) as server:
        pair = engine.connect(server.url)
        engine.answer(HISTORY, tools=TOOLS)
        engine.answer(QUESTION, tools=ToolUse(tools=[LIGHT], required=True, several=False))
        engine.answer(QUESTION, tools=ToolUse(tools=[LIGHT], required=True, only=LIGHT.name))
        first, second, third = server.bodies(CHAT)
        if kind == "llama.cpp":
            assert pair.remote is not None and pair.remote.can_count
            engine.send(CountTokens(request=7, messages=HISTORY))
            counted = engine.until(TokensCounted)
            engine.send(CountTokens(request=8, messages=HISTORY, tools=TOOLS))
            with_tools = engine.until(TokensCounted)
            assert counted.messages == with_tools.messages == sum(len(one.content) for one in HISTORY)
            assert (counted.tools, with_tools.tools) == (0, len(WEATHER.name) + len(LIGHT.name))
    function = {"name": CALL.name, "arguments": CALL.arguments}
    told = {"role": "tool", "content": "Sunny.", "tool_call_id": CALL.id}
    assert first["messages"][1:] == [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": CALL.id, "type": "function", "function": function}],
        },
        told if kind == "openai" else {**told, "name": CALL.name},
    ]
    assert [one["function"]["name"] for one in first["tools"]] == [WEATHER.name, LIGHT.name]
    assert first["tools"][0]["function"]["parameters"] == WEATHER.parameters
    assert "tool_choice" not in first and "parallel_tool_calls" not in first
    assert (second["tool_choice"], second["parallel_tool_calls"]) == ("required", False)
    assert third["tool_choice"] == {"type": "function", "function": {"name": LIGHT.name}}


def test_ollama_s_own_form(engine: RemoteEngine) -> None:
    function = {"name": WEATHER.name, "arguments": json.loads(ROME)}
    other = {"name": WEATHER.name, "arguments": json.loads(OSLO)}
    lines: list[dict[str, Any]] = [
        {"message": {"role": "assistant", "content": "", "tool_calls": [{"function": function}, {"function": other}]}},
        {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "eval_count": 20},
    ]
    answer = Reply.stream(*(json.dumps({"model": "q:8b", "done": False, **one}).encode() + b"\n" for one in lines))
    with ModelServer({**remote_streams.ollama(), "/api/chat": answer}) as server:
        engine.connect(server.url)
        found = engine.answer(HISTORY, tools=TOOLS)
        (asked,) = server.bodies("/api/chat")
    assert [json.loads(one.arguments) for one in found.finished.tool_calls] == [json.loads(ROME), json.loads(OSLO)]
    assert [one["function"]["name"] for one in asked["tools"]] == [WEATHER.name, LIGHT.name]
    assert asked["messages"][1]["tool_calls"] == [{"function": function}]
    assert asked["messages"][2] == {"role": "tool", "content": "Sunny.", "tool_name": CALL.name}


def test_another_slipstream_calls(engine: RemoteEngine, tmp_path: Path) -> None:
    """With a real model: its server forces and reads the calls, and we send the result."""
    target = make_scripted_target(tmp_path / "target.gguf", {WEATHER.name: json.loads(ROME)}, "weather", "Sunny.")
    question = [Message(role="user", content="How is the weather?")]
    with Served(target, home=tmp_path / "home") as served:
        engine.connect(served.url)
        found = engine.answer(question, tools=TOOLS)
        (one,) = found.finished.tool_calls
        assert (one.name, json.loads(one.arguments)) == (WEATHER.name, json.loads(ROME))
        asked = Message(role="assistant", content=found.text(), tool_calls=(one,))
        result = Message(role="tool", content="Sunny all day.", tool_call_id=one.id, tool_name=one.name)
        assert engine.answer([*question, asked, result], tools=TOOLS).text().strip() == "Sunny."


def test_programs_that_ask_us_get_the_calls(engine: RemoteEngine) -> None:
    with ModelServer(
        {**remote_streams.openai(), CHAT: Reply.stream(*words(), *calls(call(0, LIGHT.name)), *END)}
    ) as one:
        pair = engine.connect(one.url)
        found = engine.answer(QUESTION, tools=TOOLS)
    reader = Reader(pair, Generate(request=1, messages=QUESTION, tools=TOOLS))
    pieces = [piece for round_ in found.rounds for piece in round_.pieces]
    served = reader.whole(pieces, found.finished)
    assert (served.text, [one.name for one in served.calls], reader.has_calls) == (TEXT, [LIGHT.name], True)
