"""What other programs say is theirs: nothing of it is stored or logged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.support.served import Served

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
        wrong = {"messages": [{"role": SECRET, "content": SECRET}], "stop": SECRET}
        assert server.post("/v1/chat/completions", wrong).status_code == 400
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("slipstream")]
    assert any("/v1/chat/completions" in line and "300 tokens" in line for line in logged)
    assert not any("xyzzy" in line for line in logged)
    assert b"xyzzy" not in stored(home) and b"so then" not in stored(home)
    assert not (home / "chats.sqlite").exists() and not list((home / "cache").glob("chats/*"))
    history = home / "cache" / "history.json"
    assert not history.exists() or b"kinds" not in history.read_bytes()
