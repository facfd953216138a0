"""What the exports of other apps have besides plain questions and answers: it is taken, or counted by kind."""

from __future__ import annotations

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

import pytest

from app.chats.formats import claude, lm_studio, open_webui
from app.chats.formats.reading import ChatReading
from app.chats.formats.records import ChatRecord, LeftOut
from tests.chats.formats.test_formats import assert_sound, calls, shown
from tests.support.vision_models import make_image

THOUGHT = 'First:\n\n> Is 85 < 90?\n```\ncode & more\n```\nIt\'s "fine".'
QUOTED = "\n".join(line if line.startswith(">") else f"> {line}" for line in THOUGHT.splitlines())
SEEN = THOUGHT.replace("> Is", "Is")
"""A line that was a quotation isn't told from the others."""


def counted(left_out: LeftOut) -> dict[str, int]:
    return {reason: count for reason, count in left_out.items() if count}


def webui(*messages: dict[str, Any]) -> tuple[ChatRecord, dict[str, int]]:
    left_out = LeftOut()
    entries = {str(at): {"parentId": str(at - 1) if at else None, **one} for at, one in enumerate(messages)}
    history = {"currentId": str(len(messages) - 1), "messages": entries}
    chat = open_webui.read({"chat": {"history": history}}, left_out)
    assert_sound(chat)
    return chat, counted(left_out)


def details(kind: str, body: str, attributes: str = "") -> str:
    begin = f'<details type="{kind}" done="true"{attributes}>'
    return f"{begin}\n<summary>Thought for 2 seconds</summary>\n{body}\n</details>\n"


@pytest.mark.parametrize(
    "body",
    [QUOTED, escape(QUOTED), "\n".join(f"> {escape(line)}" for line in SEEN.splitlines()), escape(SEEN)],
    ids=["as it is", "escaped as a whole", "line by line", "without quotation"],
)
def test_thinking_in_open_webui(body: str) -> None:
    chat, left_out = webui({"role": "assistant", "content": f"{details('reasoning', body)}Yes."})
    assert (shown(chat), left_out) == ([("assistant", SEEN, "Yes.")], {})


def test_several_thoughts_and_tools_in_open_webui() -> None:
    call = '<details type="tool_calls" done="true" name="f" arguments="{}">\n<summary>Done</summary>\n</details>\n'
    answer = f"{details('reasoning', '&gt; One.')}Well.\n{call}{details('reasoning', '&gt; Two.')}Yes."
    chat, left_out = webui({"role": "assistant", "content": answer})
    assert (shown(chat), left_out) == ([("assistant", "One.\n\nTwo.", "Well.\nYes.")], {})
    [call_f] = chat.messages[0].calls
    assert (call_f.name, call_f.text, call_f.thinking, call_f.state) == ("f", len("Well.\n"), len("One."), "stopped")


def test_programs_that_open_webui_ran_are_calls() -> None:
    output = escape(json.dumps({"stdout": "85 < 90", "stderr": None, "result": ""}))
    ran = details("code_interpreter", "```python\nprint('85 < 90')\n```", f' output="{output}"')
    chat, left_out = webui({"role": "assistant", "content": f"{ran}Yes."})
    assert (shown(chat), left_out) == ([("assistant", "", "Yes.")], {})
    assert calls(chat) == [("code_interpreter", '{"code": "print(\'85 < 90\')"}', "done", "85 < 90")]


def test_files_of_open_webui(tmp_path: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(Path(make_image(tmp_path / "a.png").path).read_bytes()).decode()
    files = [
        {"type": "file", "name": "notes.txt", "file": {"data": {"content": "Two litres."}}},
        {"type": "file", "file": {"filename": "b.md", "data": {"content": "# B"}}},
        {"type": "image", "url": url},
        {"type": "image", "url": "/api/v1/files/1/content"},
        {"type": "file", "content_type": "image/png", "url": "1"},
        {"type": "collection", "name": "Teas"},
    ]
    content = [{"type": "text", "text": "How much?"}, {"type": "image_url", "image_url": {"url": url}}]
    chat, left_out = webui(
        {"role": "user", "content": content, "files": files}, {"role": "user", "content": "", "files": files[:1]}
    )
    assert [(one.name, one.text) for one in chat.messages[0].attachments if one.kind == "text"] == [
        ("notes.txt", "Two litres."),
        ("b.md", "# B"),
    ]
    assert [one.kind for one in chat.messages[0].attachments].count("image") == 2
    assert chat.messages[0].text == "How much?"
    assert [one.name for one in chat.messages[1].attachments] == ["notes.txt"]
    assert left_out == {"images": 2, "files": 1}


def test_answers_that_are_only_in_the_output() -> None:
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hot?"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "80"}]},
        {"type": "open_webui:code_interpreter", "lang": "python", "code": "print(80)"},
        {"type": "message", "content": [{"type": "output_text", "text": "80 °C."}]},
    ]
    chat, left_out = webui(
        {"role": "assistant", "content": "", "output": output},
        {"role": "assistant", "content": "80 °C.", "output": output},
    )
    assert shown(chat) == [("assistant", "Hot?", "80 °C.")] * 2
    assert calls(chat) == [("f", "{}", "done", "80"), ("code_interpreter", '{"code": "print(80)"}', "done", "")] * 2
    assert left_out == {}


def test_answers_of_several_models_are_versions() -> None:
    left_out = LeftOut()
    entries = {
        "q": {"parentId": None, "role": "user", "content": "Hot?", "merged": {"status": True, "content": "Both: yes."}},
        "a": {"parentId": "q", "role": "assistant", "content": "Yes.", "model": "m1", "modelIdx": 0},
        "b": {"parentId": "q", "role": "assistant", "content": "Very.", "model": "m2", "sources": [{}, {}]},
        "c": {"parentId": "q", "role": "assistant", "content": "", "model": "m3", "error": {"content": "no memory"}},
        "d": {"parentId": "q", "role": "assistant", "content": "Half", "model": "m3", "error": True},
    }
    chat = open_webui.read({"chat": {"history": {"currentId": "b", "messages": entries}}}, left_out)
    assert [(one.model, one.text, one.status) for one in chat.messages[1:]] == [
        ("m1", "Yes.", "complete"),
        ("m2", "Very.", "complete"),
        ("m3", "Half", "failed"),
        ("", "Both: yes.", "complete"),
    ]
    assert shown(chat)[-1][2] == "Very."
    assert counted(left_out) == {"references": 2, "failed": 1}


def of_claude(*content: dict[str, Any], **more: Any) -> tuple[ChatRecord, dict[str, int]]:
    left_out = LeftOut()
    messages = [{"sender": "human", "text": "Write."}, {"sender": "assistant", "content": list(content), **more}]
    return claude.read({"chat_messages": messages}, left_out), counted(left_out)


def call(name: str, **given: str) -> dict[str, Any]:
    return {"type": "tool_use", "name": name, "input": given}


def test_artifacts_of_claude_stand_in_the_answer() -> None:
    chat, left_out = of_claude(
        {"type": "text", "text": "Here:\n```\nThis block is not supported on your current device yet.\n```\n\n"},
        call("artifacts", command="create", id="1", type="text/markdown", title="Poem", content="Soft rain."),
        {"type": "tool_result", "name": "artifacts", "content": [{"type": "text", "text": "OK"}]},
        call("artifacts", command="update", id="1", old_str="Soft", new_str="Hard"),
        call("artifacts", command="update", id="2", old_str="a", new_str="b"),
        call("create_file", path="/mnt/rain.py", file_text="print(1)", description="x"),
        call("str_replace", path="/mnt/rain.py", old_str="1", new_str="2"),
        call("web_search", query="rain"),
        {"type": "token_budget"},
        {"type": "voice_note", "title": "Note", "text": "Done.", "citations": [{"url": "https://a.org"}]},
    )
    parts = ["`Poem`", "```markdown\nSoft rain.\n```", "`Poem`", "```markdown\nHard rain.\n```"]
    parts += ["`rain.py`", "```\nprint(1)\n```", "`rain.py`", "```\nprint(2)\n```"]
    assert shown(chat)[1] == ("assistant", "", "\n\n".join(["Here:\n", *parts, "Done."]))
    lost = '{"command": "update", "id": "2", "old_str": "a", "new_str": "b"}'
    assert calls(chat) == [("artifacts", lost, "stopped", ""), ("web_search", '{"query": "rain"}', "stopped", "")]
    assert left_out == {"changes": 1, "references": 1}


def test_older_artifacts_of_claude() -> None:
    written = (
        '<antThinking>Worth one.</antThinking>Here: <antArtifact identifier="p" type="application/vnd.ant.code" '
        'language="python" title="Rain &amp; roof">\nprint(1)\n</antArtifact> Done.'
    )
    chat, _ = of_claude(text=written)
    assert shown(chat)[1] == (
        "assistant",
        "Worth one.",
        "Here: \n\n`Rain & roof`\n\n```python\nprint(1)\n```\n\n Done.",
    )


def test_files_of_claude_are_counted_once() -> None:
    files = [{"file_name": "notes.txt"}, {"file_name": "a.PNG"}, {"file_name": "b.pdf"}]
    attachments = [{"file_name": "notes.txt", "extracted_content": "Two."}, {"file_name": "c.jpg"}]
    chat, left_out = of_claude({"type": "text", "text": "See."}, files=files, attachments=attachments)
    assert [one.text for one in chat.messages[1].attachments] == ["Two."]
    assert left_out == {"images": 2, "files": 1}


def test_parts_of_an_answer_of_lm_studio() -> None:
    content = [
        {"type": "text", "text": "<think>", "isStructural": True},
        {"type": "text", "text": "Hot?"},
        {"type": "text", "text": "</think>", "isStructural": True},
    ]
    steps = [
        {"type": "contentBlock", "style": {"type": "thinking"}, "content": content},
        {
            "type": "contentBlock",
            "content": [
                {"type": "text", "text": "80 ", "fromDraftModel": False},
                {"type": "text", "text": "°C.", "fromDraftModel": True},
            ],
        },
        {"type": "contentBlock", "content": [{"type": "text", "text": "Or 90."}]},
    ]
    chat = lm_studio.read({"messages": [{"versions": [{"role": "assistant", "steps": steps}]}]}, LeftOut())
    assert shown(chat) == [("assistant", "Hot?", "80 °C.\n\nOr 90.")]


def test_files_of_jan(tmp_path: Path) -> None:
    url = "data:image/png;base64," + base64.b64encode(Path(make_image(tmp_path / "a.png").path).read_bytes()).decode()
    message = {
        "thread_id": "t",
        "role": "user",
        "content": [
            {"type": "text", "text": {"value": "How much?"}},
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "input_audio", "input_audio": {"data": ""}},
        ],
        "metadata": {"inline_file_contents": [{"name": "notes.txt", "content": "Two."}, {"name": "empty"}]},
    }
    path = tmp_path / "messages.jsonl"
    path.write_text(json.dumps(message))
    batch = ChatReading([path]).next()
    [read] = batch.chats[0].messages
    assert [(one.kind, one.text) for one in read.attachments] == [("image", ""), ("text", "Two.")]
    assert batch.left_out == {"recordings": 1}
