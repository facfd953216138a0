"""Tool calls in chats of other apps become calls of one answer (`tests/data/tool-calls`), and nothing waits or runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.chats.formats.records import ChatRecord, StoredCall
from tests.chats.formats.test_formats import assert_sound, read, shown

DATA = Path(__file__).parent.parent.parent / "data" / "tool-calls"
QUESTION, LOOK, THOUGHT, ANSWER, THANKS = "How hot for sencha?", "Let me look.", "Look it up.", "80 °C.", "Thank you."
WHOLE = [("user", "", QUESTION), ("assistant", THOUGHT, f"{LOOK}\n\n{ANSWER}"), ("user", "", THANKS)]


def chat_in(name: str, place: int = 0) -> ChatRecord:
    chat = read(DATA / name).chats[place]
    assert_sound(chat)
    return chat


def answer_of(chat: ChatRecord) -> list[StoredCall]:
    return next(message.calls for message in chat.branch() if message.role == "assistant")


def told(calls: list[StoredCall]) -> list[tuple[str, object, str, str]]:
    return [(one.name, json.loads(one.arguments), one.state, one.result) for one in calls]


def test_chatgpt() -> None:
    chat = chat_in("chatgpt.json")
    assert shown(chat) == WHOLE
    calls = answer_of(chat)
    assert told(calls) == [
        (
            *("web.run", {"search_query": [{"q": "sencha"}]}, "done"),
            "Tea\nhttps://example.com/tea\nSencha: 80 °C\n\nMore tea\nhttps://example.com/2\n70 to 80 °C",
        ),
        ("python", {"input": "176 / 0"}, "failed", "ZeroDivisionError"),
        ("computer.do", {}, "done", ""),
        ("api_tool", {}, "done", "L0: 80"),
    ]
    assert [(one.text, one.thinking, one.tokens) for one in calls] == [(12, 11, turn) for turn in (1, 2, 3, 4)]
    versions = [message for message in chat.messages if message.role == "assistant"]
    assert [(one.text, len(one.calls)) for one in versions] == [(f"{LOOK}\n\n90 °C.", 4), (f"{LOOK}\n\n80 °C.", 4)]
    assert read(DATA / "chatgpt.json").left_out == {"images": 1}


def test_claude() -> None:
    chat = chat_in("claude.json")
    assert shown(chat) == WHOLE
    calls = answer_of(chat)
    assert told(calls) == [
        ("web_search", {"query": "sencha"}, "done", "Tea\nhttps://example.com/tea\nSencha: 80 °C"),
        ("find_tea", {"name": "x"}, "failed", "No such tea"),
    ]
    assert [(one.id, one.server, one.text) for one in calls] == [("toolu_1", "", 12), ("toolu_2", "Tea Drive", 12)]
    assert read(DATA / "claude.json").left_out == {"images": 1}


def test_open_webui() -> None:
    chat = chat_in("open-webui.json")
    assert shown(chat) == [WHOLE[0], ("assistant", THOUGHT, f"{LOOK}\n{ANSWER}"), WHOLE[2]]
    assert told(answer_of(chat)) == [
        ("look_up", {"tea": "sencha", "note": 'a > "b"'}, "done", "<b>80</b> &quot;°C&quot;"),
        ("look_up", {"tea": "x > y"}, "done", '{"error": "none > here"}'),
        ("look_up", {"input": '{"tea": '}, "stopped", ""),
    ]
    assert [one.text for one in answer_of(chat)] == [len(LOOK) + 1] * 3
    [other] = [message for message in chat.messages if message.text == f"{LOOK}\n\n{ANSWER}"]
    assert told(other.calls) == [
        ("look_up", {"tea": "sencha"}, "done", "80"),
        ("look_up", {"tea": "x"}, "done", "none"),
    ]
    assert [one.tokens for one in other.calls] == [1, 1]
    assert other.calls[0].images == tuple(one.sha256() for one in other.attachments) != ()


def test_lm_studio() -> None:
    chat = chat_in("tea.conversation.json")
    assert shown(chat) == WHOLE
    assert told(answer_of(chat)) == [
        ("look_up", {"tea": "sencha"}, "done", "80 °C\n\n[1]"),
        ("look_up", {"tea": "x"}, "failed", "none"),
    ]
    assert [(one.text, one.server, one.tokens) for one in answer_of(chat)] == [(12, "mcp/tea", 1)] * 2
    assert read(DATA / "tea.conversation.json").left_out == {}


def test_llama_cpp() -> None:
    chat = chat_in("llama-cpp.jsonl")
    assert shown(chat) == [WHOLE[0], ("assistant", f"{THOUGHT}\n\nOnce more.", WHOLE[1][2]), WHOLE[2]]
    calls = answer_of(chat)
    assert told(calls) == [
        ("look_up", {"tea": "sencha"}, "done", "80 °C"),
        ("look_up", {"input": '{"tea":'}, "done", "Error: no arguments"),
        ("look_up", {"tea": "bancha"}, "done", "90 °C"),
    ]
    assert [(one.text, one.thinking, one.tokens) for one in calls] == [(12, 11, 1), (12, 11, 1), (12, 23, 2)]
    [answer] = [message for message in chat.messages if message.calls]
    assert [one.images for one in calls] == [(answer.attachments[0].sha256(),), (), ()]
    assert answer.model == "tea-2b"


def test_jan() -> None:
    chat = chat_in("jan")
    assert shown(chat)[:3] == WHOLE
    assert told(answer_of(chat)) == [
        ("look_up", {"tea": "sencha"}, "done", "80 °C"),
        ("look_up", {"tea": "x"}, "failed", "none"),
    ]
    assert len(answer_of(chat)[0].images) == 1
    older = chat.messages[-1]
    assert (older.text, told(older.calls)) == (
        "Older.",
        [("look_up", {"tea": "sencha"}, "done", "80"), ("look_up", {}, "stopped", "")],
    )


def test_openai_and_sharegpt() -> None:
    chat = chat_in("openai.jsonl")
    assert shown(chat) == WHOLE
    assert told(answer_of(chat)) == [
        ("look_up", {"tea": "sencha"}, "done", "80 °C"),
        ("look_up", {"tea": "x"}, "done", "none"),
    ]
    for one in (chat_in("openai.jsonl", 1), chat_in("sharegpt.json")):
        assert shown(one) == [WHOLE[0], ("assistant", "", ANSWER)]
        assert told(answer_of(one)) == [("look_up", {"tea": "sencha"}, "done", "80 °C")]


def test_an_answer_that_is_only_calls_is_an_answer(tmp_path: Path) -> None:
    calls = '<details type="tool_calls" done="true" name="f" arguments="{}">\n<summary>Done</summary>\n</details>\n' * 2
    entry = {"role": "assistant", "content": calls, "output": []}
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"chat": {"history": {"messages": {"a": entry}}}}]))
    assert [one.name for one in chat_in(str(path)).messages[0].calls] == ["f", "f"]


def chain(calls: int, answers: int) -> dict[str, object]:
    """A chat of ChatGPT with these many calls in a row, and versions of the answer below them."""
    called = {"author": {"role": "assistant"}, "recipient": "f", "content": {"text": "x" * 100}}
    said = {"author": {"role": "assistant"}, "content": {"parts": ["Yes."]}}
    nodes: dict[str, object] = {"q": {"message": {"author": {"role": "user"}, "content": {"parts": ["Well?"]}}}}
    nodes |= {str(at): {"parent": str(at - 1) if at else "q", "message": called} for at in range(calls)}
    return {"mapping": nodes | {f"a{at}": {"parent": str(calls - 1), "message": said} for at in range(answers)}}


def test_calls_are_not_copied_without_end(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([chain(300, 3), chain(300, 500), chain(7000, 1)]))
    few, many, long = read(path).chats
    assert [len(one.calls) for one in few.messages] == [0, 300, 300, 300]
    assert [len(one.calls) for one in many.messages] == [0, 300, *[0] * 500]
    assert [len(one.calls) for one in long.messages] == [0, 1000, 1000, 1000]  # of 3,000, 3,000 and 1,000


def test_very_many_calls_with_results_are_several_answers(tmp_path: Path) -> None:
    one = [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, {"role": "tool", "content": "80"}]
    messages = [{"role": "user", "content": QUESTION}, *one * 1200, {"role": "assistant", "content": ANSWER}]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    chat = chat_in(str(path))
    assert [len(message.calls) for message in chat.messages] == [0, 500, 500, 200]
    assert {one.result for message in chat.messages for one in message.calls} == {"80"}


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.json*")), ids=lambda path: path.name)
def test_no_call_waits_for_anything(path: Path) -> None:
    for chat in read(path).chats:
        for message in chat.messages:
            assert all(one.has_ended and one.arguments for one in message.calls)
            assert len({one.id for one in message.calls}) == len(message.calls)
