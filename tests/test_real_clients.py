"""What scripts/real-clients is made of, without the programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import real_clients
from tests.support.client_bodies import Anonymous, write_bodies
from tests.support.real_models import UnavailableError
from tests.support.recorder import Exchange, Json, recorder
from tests.support.scripted_calls import make_scripted_target
from tests.support.served import Client, Served


def test_what_is_written_down_is_what_the_program_sent_and_got(tmp_path: Path) -> None:
    target = make_scripted_target(tmp_path / "target.gguf", {}, "note.txt", "Told.")
    with Served(target) as served, recorder(served.port) as known:
        client = Client(known.port)
        known.overrides = {"max_tokens": 3}
        first = client.chat("What is a draft model?", max_tokens=500)
        parts = client.streamed("What is a draft model?")
    assert [one.status for one in known.exchanges] == [200, 200]
    assert known.exchanges[0].body["max_tokens"] == 500 and known.began.is_set()
    assert first["usage"]["completion_tokens"] == 3 and parts
    cached, whole = known.exchanges[1].cached
    assert 0 < cached < whole == first["usage"]["prompt_tokens"]


def test_texts_of_others_and_personal_parts_are_replaced(tmp_path: Path) -> None:
    session = "01a22147-9306-7070-9497-e66a6739b5a5"
    secret = "You are a helpful agent of somebody, who lives in /home/ann/notes and whose name is Ann."
    body: Json = {
        "messages": [
            {"role": "system", "content": secret},
            {"role": "user", "content": f"<reminder>{secret}</reminder>"},
            {
                "role": "assistant",
                "tool_calls": [{"id": session, "function": {"arguments": '{"p": "/tmp/x/note.txt"}'}}],
            },
            {"role": "tool", "tool_call_id": session, "content": "The harbor opens at nine."},
        ],
        "tools": [
            {
                "name": "read",
                "description": "Reads.",
                "input_schema": {"properties": {"p": {"enum": ["one kind " * 9]}}},
            }
        ],
    }
    write_bodies("one", [Exchange("/v1/messages", {}, ""), Exchange("/v1/messages", body, "")], tmp_path)
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_bytes())["body"]
    assert path.name == "one-1.json"
    for part in ("Ann", "/root", "/tmp", session, "helpful", "Reads."):
        assert part not in path.read_text()
    call, result = kept["messages"][2]["tool_calls"][0], kept["messages"][3]
    assert call["id"] == result["tool_call_id"] and json.loads(call["function"]["arguments"])["p"].endswith("/note.txt")
    assert kept["messages"][1]["content"].startswith("<reminder>") and result["content"] == "The harbor opens at nine."
    assert kept["tools"][0]["input_schema"] == body["tools"][0]["input_schema"]
    assert Anonymous().of({"date": "2026-11-28"}) == {"date": "2026-01-02"}


def test_without_npm_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"^npm, which installs @anthropic-ai/claude-code@"):
        real_clients.installed(real_clients.CLIENTS[0], tmp_path / "kept")
