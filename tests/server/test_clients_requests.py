"""What real programs sent, as `scripts/real-clients` wrote it down: texts of others are replaced, the rest is theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import ROOT
from tests.support.scripted_calls import make_scripted_target
from tests.support.served import Served

TOLD = "It says that the harbor opens at nine."
NOTE = "/home/someone/project/note.txt"
CALLS = {"Read": {"file_path": NOTE}, "read": {"filePath": NOTE}, "exec_command": {"cmd": "cat note.txt"}}
SENT = sorted((ROOT / "tests" / "data" / "clients").glob("*.json"))


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("scripted")
    target = make_scripted_target(folder / "target.gguf", CALLS, "note.txt", TOLD)
    with Served(target, context_length=65_536, home=folder / "home") as served:
        yield served


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_requests_of_programs_are_answered(scripted: Served, path: Path) -> None:
    sent = json.loads(path.read_bytes())
    answer = scripted.post(sent["path"], sent["body"])
    assert answer.status_code == 200, answer.text
    assert '"error":{' not in answer.text and '"type":"error"' not in answer.text
    assert TOLD in answer.text or "file" not in path.stem or "aider" in path.stem


def test_a_program_gets_the_call_that_it_can_carry_out(scripted: Served) -> None:
    sent = json.loads((ROOT / "tests" / "data" / "clients" / "claude-question.json").read_bytes())
    body = sent["body"]
    body["messages"][0]["content"][1]["text"] = "Read note.txt and tell me what it says"
    answer = scripted.post(sent["path"], {**body, "stream": False}).json()
    (call,) = (block for block in answer["content"] if block["type"] == "tool_use")
    assert (call["name"], call["input"], answer["stop_reason"]) == ("Read", {"file_path": NOTE}, "tool_use")
