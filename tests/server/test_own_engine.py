"""An engine that ends is started again; one that ends all the time ends the server."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from app.errors import KnownError
from tests.support.served import PATIENCE, Served


def engine() -> psutil.Process:
    """The engine that this process started."""
    (found,) = [one for one in psutil.Process().children() if "--role=engine" in " ".join(one.cmdline())]
    return found


@pytest.mark.allow_logs
def test_an_engine_that_ends_is_started_again(endless_pair: tuple[Path, Path]) -> None:
    with Served(*endless_pair, context_length=32_768) as server:
        first = engine()
        with server.connected() as client:
            client.ask({"messages": [{"role": "user", "content": "Well?"}], "stream": True})
            client.receive(b"so then")
            first.kill()
            broken = client.receive(b"unavailable_error")
            assert b"[DONE]" not in broken
        psutil.wait_procs([first])
        server.wait_until_healthy()
        assert engine().pid != first.pid
        assert server.chat(max_tokens=2)["usage"]["completion_tokens"] == 2


@pytest.mark.allow_logs
def test_while_there_is_none_the_answer_is_to_come_again(endless_pair: tuple[Path, Path]) -> None:
    with Served(*endless_pair) as server:
        engine().kill()
        codes = set()
        end = time.monotonic() + PATIENCE
        while 503 not in codes and time.monotonic() < end:
            answer = server.post(
                "/v1/chat/completions", {"messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
            )
            codes.add(answer.status_code)
        assert codes <= {200, 503} and 503 in codes
        assert int(answer.headers["retry-after"]) > 0
        server.wait_until_healthy()


def test_a_pair_that_can_not_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(KnownError, match=r"gone\.gguf"), Served(tmp_path / "gone.gguf"):
        pass
