"""An engine that ends is started again; one that ends all the time ends the server."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.support.served import PATIENCE, Served


def engines() -> set[psutil.Process]:
    """Those that this process started."""
    return {one for one in psutil.Process().children() if "--role=engine" in " ".join(one.cmdline())}


@pytest.mark.allow_logs
def test_an_engine_that_ends_is_started_again(endless_pair: tuple[Path, Path]) -> None:
    asked = {"messages": [{"role": "user", "content": "Well?"}], "stream": True}
    before = engines()
    with Served(*endless_pair, context_length=32_768) as server:
        (first,) = engines() - before
        with server.connected() as client:
            client.ask(asked)
            client.receive(b"so then")
            first.kill()
            broken = client.receive(b"unavailable_error")
            assert b"[DONE]" not in broken
        codes, end = set[int](), time.monotonic() + PATIENCE
        while 503 not in codes and time.monotonic() < end:
            answer = server.post("/v1/chat/completions", {**asked, "stream": False, "max_tokens": 1})
            codes.add(answer.status_code)
        assert codes <= {200, 503} and 503 in codes, "there is none: the answer is to come again"
        assert int(answer.headers["retry-after"]) > 0
        server.wait_until_healthy()
        psutil.wait_procs([first])
        (second,) = engines() - before
        assert second.pid != first.pid
        assert server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2
