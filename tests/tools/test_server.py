"""What a server offers, and what comes of calls: the real process and a real server, on stdio."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil
import pytest

from app.protocol import frames
from app.tools.messages import (
    MAX_RESULT_TEXT,
    CallEnded,
    CallProgressed,
    CallTool,
    CancelCall,
    GetPrompt,
    QuestionWithdrawn,
    ReadResource,
    Reply,
    ResultImage,
    ServerEntry,
    StopServer,
    UserAsked,
)
from tests.support.tool_process import ROOT, Process, entry
from tests.support.tool_server import PNG


def test_what_it_offers(tools: Process) -> None:
    offered = tools.servers["test"]
    assert (offered.state, offered.version) == ("ready", "Test server 1.2")
    add = next(tool for tool in offered.tools if tool.name == "add")
    assert (add.description, add.approach) == ("Add two numbers.", "read_only")
    assert add.parameters["properties"].keys() == {"a", "b"}
    (prompt,) = offered.prompts
    assert (prompt.name, prompt.description, prompt.arguments[0].name) == ("review", "Review some code.", "code")
    assert prompt.arguments[0].is_required
    assert {one.uri: one.media_type for one in offered.resources} == {
        "memo://today": "text/plain",
        "memo://picture": "image/png",
    }


def test_a_result_is_the_servers_text(tools: Process) -> None:
    assert tools.run("add", a=19, b=23).text == "42"
    text = "Ünïcødé \U0001f600 \x1b[31m </s> \u202e"
    ended = tools.run("echo", text=text)
    assert (ended.state, ended.text, ended.images) == ("done", text, [])


def test_what_cannot_be_shown_is_named(tools: Process) -> None:
    ended = tools.run("picture")
    assert ended.text == "Here it is:\n[Audio, audio/wav, not shown]\n[Resource memo://1]\nA memo."
    assert ended.images == [ResultImage(media_type="image/png", data=PNG)]


def test_a_structured_result_is_its_json(tools: Process) -> None:
    assert json.loads(tools.run("weather").text) == {"degrees": 21}


def test_a_tool_that_fails(tools: Process) -> None:
    ended = tools.run("fail", text="The disk is full.")
    assert (ended.state, ended.text) == ("failed", "Error executing tool fail: The disk is full.")


@pytest.mark.parametrize("arguments", ["[1]", "{", "7", '"text"', "[" * 10_000])
def test_arguments_that_are_no_object_do_not_reach_it(tools: Process, arguments: str) -> None:
    assert tools.call("test", "echo", arguments).state == "failed"


def test_a_long_text_is_cut_and_says_so(tools: Process) -> None:
    ended = tools.run("large", characters=3_000_000)
    assert len(ended.text.encode()) <= MAX_RESULT_TEXT
    assert ended.text.endswith("x\n[The result was cut here. In full, it has 3 MB.]")


def test_a_message_that_is_too_long_costs_only_the_call(tools: Process) -> None:
    ended = tools.run("large", characters=26_000_000)
    assert (ended.state, "too large" in ended.text) == ("failed", True)
    assert tools.run("add", a=1, b=1).text == "2"


def test_many_long_answers_are_no_flood(tools: Process) -> None:
    assert {tools.run("large", characters=20_000_000).state for _ in range(6)} == {"done"}


def test_progress(tools: Process) -> None:
    assert tools.run("count", steps=2).text == "counted"
    request = tools.progress[0].request
    assert tools.progress[:1] == [CallProgressed(request=request, done=1, total=2, message="step 1")]


def test_calls_at_once(tools: Process) -> None:
    for number in range(100, 110):
        text = json.dumps({"text": str(number)})
        tools.send(CallTool(request=number, server="test", tool="echo", arguments=text))
    ended = [tools.next(CallEnded) for _ in range(10)]
    assert {one.request: one.text for one in ended} == {number: str(number) for number in range(100, 110)}


def test_stopping_a_call_cancels_it_at_the_server(tools: Process, tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = json.dumps({"file": str(log)})
    tools.send(CallTool(request=1000, server="test", tool="wait", arguments=arguments))
    while not log.is_file() or not log.read_text():
        tools.run("add", a=1, b=1)
    tools.send(CancelCall(request=1000))
    assert tools.next(CallEnded).state == "stopped"
    while log.read_text() != "begun\ncanceled\n":
        assert tools.run("add", a=1, b=1).text == "2"


def test_a_call_that_is_stopped_before_it_begins_has_an_end(tools: Process) -> None:
    messages = CallTool(request=1100, server="test", tool="add", arguments="{}"), CancelCall(request=1100)
    tools.write(b"".join(map(frames.encode_frame, messages)))
    assert (tools.next(CallEnded).state, tools.run("add", a=1, b=1).text) == ("stopped", "2")


def test_a_prompt(tools: Process) -> None:
    tools.send(GetPrompt(request=2000, server="test", name="review", arguments={"code": "x = 1"}))
    assert tools.next(CallEnded).text == "Please review: x = 1"
    tools.send(GetPrompt(request=2001, server="test", name="nothing"))
    assert tools.next(CallEnded).state == "failed"


def test_resources(tools: Process) -> None:
    tools.send(ReadResource(request=2100, server="test", uri="memo://today"))
    assert tools.next(CallEnded).text == "Water the plants."
    tools.send(ReadResource(request=2101, server="test", uri="memo://picture"))
    assert tools.next(CallEnded).images == [ResultImage(media_type="image/png", data=PNG)]


def test_roots_are_the_users_folders(tools: Process) -> None:
    (root,) = tools.run("roots").text.splitlines()
    assert root.startswith("file:///")
    assert root.endswith("folder%20of%20the%20user0")


def test_an_added_tool_is_offered(tools: Process) -> None:
    assert tools.run("grow").state == "done"
    while "grown" not in [tool.name for tool in tools.servers["test"].tools]:
        tools.receive()
    assert tools.run("grown").text == "grown"


def test_its_environment_has_nothing_of_ours(tools: Process) -> None:
    found = json.loads(tools.run("environment").text)
    own = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
    assert found["variables"].keys() - own - {"LC_CTYPE"} == {"ONLY_HERE"}
    assert found["folder"] == ROOT
    if sys.platform == "linux":
        assert found["memory"] == [-1, -1]
        assert psutil.Process(tools.process_id).rlimit(psutil.RLIMIT_AS)[0] > 0


def test_its_log_has_control_characters_made_visible(tools: Process) -> None:
    tools.run("chat", text="red: \x1b[31m, left: \u202e")
    while "red: \\x1b[31m, left: \\u202e" not in tools.servers["test"].log:
        tools.receive()


# ------------------------------------------------------------ questions


def test_a_question_to_the_user(tools: Process) -> None:
    tools.replies = [Reply(question=0, action="accept", content={"date": "Friday"})]
    assert tools.run("book").text == "accept: Friday for 2"
    (asked,) = tools.asked
    assert (asked.server, asked.kind, asked.message) == ("test", "elicitation", "Which date?")
    assert asked.fields["properties"].keys() == {"date", "seats"}
    assert tools.run("book").text == "decline"


def test_a_question_to_the_model(tools: Process) -> None:
    tools.replies = [Reply(question=0, action="accept", content={"text": "Love."})]
    assert tools.run("think").text == "Love."
    assert (tools.asked[0].kind, tools.asked[0].message) == ("sampling", "System: Be brief.\n\nUser: What is love?")
    assert tools.run("think").state == "failed"


def test_a_question_ends_with_its_call(tools: Process) -> None:
    tools.replies = [None]
    tools.send(CallTool(request=3000, server="test", tool="book", arguments="{}"))
    asked = tools.next(UserAsked)
    tools.send(CancelCall(request=3000))
    messages = [tools.next((CallEnded, QuestionWithdrawn)) for _ in range(2)]
    assert QuestionWithdrawn(question=asked.question) in messages
    assert [one.state for one in messages if isinstance(one, CallEnded)] == ["stopped"]


# ------------------------------------------------------------ starting and ending


def test_a_server_that_ends_in_the_middle_of_a_call_can_start_again(tools: Process) -> None:
    tools.start([entry("mortal")])
    ended = tools.run("die", "mortal")
    assert (ended.state, ended.text) == ("failed", "The server ended before it answered.")
    failed = tools.servers["mortal"] if tools.servers["mortal"].state == "failed" else tools.until("mortal", "failed")
    assert failed.message == "It has ended, with status 7."
    assert tools.run("add", "mortal", a=1, b=1).text == "The server “mortal” isn't running."
    assert tools.start([entry("mortal")])["mortal"].state == "ready"
    assert tools.run("add", "mortal", a=1, b=1).text == "2"
    tools.send(StopServer(name="mortal"))
    tools.until("mortal", "stopped")


def test_all_that_a_server_started_ends_with_it(tools: Process, tmp_path: Path) -> None:
    tools.start([entry("parent")])
    child = psutil.Process(int(tools.run("start_child", "parent", file=str(tmp_path / "pid")).text))
    tools.send(StopServer(name="parent"))
    tools.until("parent", "stopped")
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_command_that_does_not_exist(tools: Process) -> None:
    found = tools.start([ServerEntry(name="missing", command="no-such-program")])["missing"]
    assert found.state == "failed"
    assert found.message == "“no-such-program” wasn't found. Install it, or enter the full path of the program."


def test_a_folder_that_does_not_exist(tools: Process, tmp_path: Path) -> None:
    nowhere = ServerEntry(name="nowhere", command=sys.executable, cwd=str(tmp_path / "gone"))
    assert "doesn't exist" in tools.start([nowhere])["nowhere"].message
