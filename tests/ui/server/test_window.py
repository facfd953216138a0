"""A window of its own process that serves: its end is the server's end, however it comes."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from tests.support.serve_process import window_that_serves

PATIENCE = 60


def test_a_window_that_is_closed(wordy_pair: tuple[Path, Path], home: Path) -> None:
    with window_that_serves(*wordy_pair, home=home) as window:
        assert window.chat(max_tokens=5)["usage"]["completion_tokens"] == 5
        started = window.window.children(recursive=True)
        assert any("--role=server" in one.cmdline() for one in started)
        assert any("--role=engine" in one.cmdline() for one in started)
    assert psutil.wait_procs(started, timeout=PATIENCE)[1] == []


@pytest.mark.skipif(sys.platform == "win32", reason="the engine and the server end by their pipes there as well")
def test_a_window_that_is_killed(wordy_pair: tuple[Path, Path], home: Path) -> None:
    with window_that_serves(*wordy_pair, home=home) as window, window.connected() as client:
        client.ask({"messages": [{"role": "user", "content": "Well?"}], "stream": True})
        client.receive(b"data: ")
        started = window.window.children(recursive=True)
        window.window.kill()
        assert psutil.wait_procs(started, timeout=PATIENCE)[1] == []
        assert b"[DONE]" not in client.rest()
