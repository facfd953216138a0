"""What other programs say is theirs: nothing of it is stored or logged."""

from __future__ import annotations

import base64
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest

from app.server.guard import Guard
from tests.support.served import Json, Served
from tests.support.tool_models import make_tool_model
from tests.support.vision_models import make_image, make_projector, make_seeing_model

SECRET = "The password is xyzzy"


def stored(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def test_nothing_is_stored_or_logged(
    endless_pair: tuple[Path, Path], home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), Served(*endless_pair) as server:
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 300, "stream": stream}
            assert server.post("/v1/chat/completions", body).status_code == 200
        assert server.post("/v1/completions", {"prompt": SECRET, "max_tokens": 4}).status_code == 200
        assert server.post("/tokenize", {"content": SECRET}).status_code == 200
        assert server.get(f"/{SECRET.split()[-1]}").status_code == 404
        odd = {"messages": [{"role": SECRET, "content": [{"type": SECRET}]}], "stop": SECRET, "max_tokens": 4}
        answer = server.post("/v1/chat/completions", odd).json()
        assert len(answer["slipstream"]["warnings"]) == 2, "the log has them without what is quoted"
        wrong = {"messages": [{"role": "user", "content": "Hi", "tool_calls": SECRET, SECRET: SECRET}], "stop": SECRET}
        assert server.post("/v1/chat/completions", wrong).status_code == 400
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("slipstream")]
    assert any("/v1/chat/completions" in line and "300 tokens" in line for line in logged)
    assert not any("xyzzy" in line for line in logged)
    assert b"xyzzy" not in stored(home) and b"so then" not in stored(home)
    assert not (home / "chats.sqlite").exists() and not list((home / "cache").glob("chats/*"))
    history = home / "cache" / "history.json"
    assert not history.exists() or b"kinds" not in history.read_bytes()


KEY = "a-key-with-xyzzy-in-it"
TOOL: Json = {"name": "xyzzy_tool", "description": SECRET, "parameters": {"properties": {"xyzzy": {"enum": ["xyzzy"]}}}}
CALL: Json = {"id": "xyzzy", "function": {"name": "xyzzy_tool", "arguments": '{"xyzzy": "xyzzy"}'}}


def test_nor_of_tools_and_responses(tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = make_tool_model(tmp_path / "calling.gguf", "hermes")
    authorized = {"Authorization": f"Bearer {KEY}"}
    turns = [
        {"role": "user", "content": SECRET},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "xyzzy", "content": SECRET},
    ]
    tools = [{"type": "function", "function": TOOL}]
    items = [
        {"role": "user", "content": SECRET},
        {"type": "function_call", "call_id": "xyzzy", **CALL["function"]},
        {"type": "function_call_output", "call_id": "xyzzy", "output": SECRET},
    ]
    broken = [{"type": "function", "function": {"name": "xyzzy", "parameters": {"type": "xyzzy"}}}]
    asked: list[tuple[str, dict[str, Any], int]] = [
        ("/v1/chat/completions", {"messages": turns, "tools": tools, "tool_choice": "required"}, 200),
        ("/v1/chat/completions", {"messages": turns, "tools": broken}, 200),
        ("/v1/chat/completions", {"messages": turns[:1], "logprobs": True, "logit_bias": {"5": 1}}, 200),
        ("/v1/responses", {"input": items, "instructions": SECRET, "tools": [{"type": "function", **TOOL}]}, 200),
        ("/v1/responses", {"input": SECRET, "previous_response_id": SECRET}, 501),
        ("/v1/messages", {"messages": turns[:1], "tools": [{"name": "f", "description": SECRET}]}, 200),
        ("/v1/messages/count_tokens", {"messages": turns[:1], "system": SECRET}, 200),
    ]
    with caplog.at_level(logging.DEBUG), Served(target, guard=Guard(key=KEY)) as server:
        for path, body, code in asked:
            for stream in (False, True):
                answer = server.post(path, {**body, "max_tokens": 60, "stream": stream}, **authorized)
                assert answer.status_code == code, answer.text
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("slipstream")]
    assert any("/v1/responses" in line for line in logged)
    assert not any("xyzzy" in line for line in logged)
    assert b"xyzzy" not in stored(home)


def test_nor_of_images(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    target = make_seeing_model(tmp_path / "seeing.gguf", "llava")
    image = Path(make_image(tmp_path / "picture.png").path).read_bytes()
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": SECRET}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 3}
    projector = make_projector(tmp_path / "mmproj.gguf", "llava")
    with caplog.at_level(logging.DEBUG), Served(target, projector=projector, context_length=1024) as server:
        for stream in (False, True):
            assert server.post("/v1/chat/completions", {**body, "stream": stream}).status_code == 200
            assert list(temporary.iterdir()) == []
        with server.connected() as client:  # one that goes away in the middle of its answer
            client.ask({**body, "max_tokens": 900, "stream": True})
            client.receive(b"data: ")
        assert server.post("/v1/chat/completions", {**body, "max_tokens": 1}).status_code == 200
        assert list(temporary.iterdir()) == []
    assert image not in stored(home)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("slipstream")]
    assert not any("xyzzy" in line or str(temporary) in line for line in logged)
