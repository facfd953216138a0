"""The process itself: how it ends, and what is left then: nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from app import system
from app.protocol import frames
from app.system import KnownError
from app.tools.client import command
from app.tools.messages import CallEnded, CallTool, StartServer, StopServer
from tests.support.leftovers import PATIENCE_S
from tests.support.tool_process import Process, entry


def started(folder: Path) -> tuple[Process, list[psutil.Process]]:
    """A process with a server in the middle of a call, and all processes below it."""
    process = Process()
    process.start([entry(timeout_seconds=600.0)])
    assert process.run("start_child", file=str(folder / "pid")).state == "done"
    process.send(CallTool(request=99, server="test", tool="wait", arguments=json.dumps({"file": str(folder / "log")})))
    while not (folder / "log").is_file():
        process.run("add", a=1, b=1)
    below = psutil.Process(process.process_id).children(recursive=True)
    assert len(below) >= 2
    return process, below


def all_end(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S * 3)
    return all(one.status() == psutil.STATUS_ZOMBIE for one in alive)


def test_quitting_in_a_call_ends_everything(tmp_path: Path) -> None:
    process, below = started(tmp_path)
    process.close()
    assert all_end(below)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_a_signal_ends_everything(tmp_path: Path) -> None:
    process, below = started(tmp_path)
    os.kill(process.process_id, signal.SIGTERM)
    ended = process.next(CallEnded)
    assert (ended.request, ended.state) == (99, "stopped")
    with pytest.raises(KnownError):
        process.run("add", a=1, b=1)
    assert all_end(below)
    process.close()


def test_the_end_of_its_input_ends_everything(tmp_path: Path) -> None:
    process, below = started(tmp_path)
    assert process._process.stdin is not None
    process._process.stdin.close()
    assert process._process.wait() == 0
    assert all_end(below)
    process.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_being_killed_ends_its_servers(tmp_path: Path) -> None:
    process, below = started(tmp_path)
    os.kill(process.process_id, signal.SIGKILL)
    with pytest.raises(KnownError, match="The process that runs tools has ended"):
        process.next(CallEnded)
    for one in below:  # the server sees the end of its input; what it started itself, nobody knows any more
        if "time.sleep" in " ".join(one.cmdline() if one.is_running() else []):
            one.kill()
    assert all_end(below)
    process.close()


def test_a_server_that_does_not_want_to_end_is_ended_with_it(tmp_path: Path) -> None:
    process = Process()
    process.start([entry("stubborn", "hostile_server", "does not want to end")])
    below = psutil.Process(process.process_id).children(recursive=True)
    process.send(StopServer(name="stubborn"))  # and then again, while that is under way
    process.close()
    assert len(below) == 1 and all_end(below)


@pytest.mark.parametrize("body", [b"{}", b"\xff", b'{"type": "format_disk"}', b"[" * 10_000])
def test_a_message_that_it_does_not_know_ends_it(body: bytes) -> None:
    process = system.start_process(command(), errors=subprocess.DEVNULL)
    with process:
        out, _ = process.communicate(frames.framed(body), timeout=60)
    assert (process.returncode, out) == (0, b"")


def test_starting_again_replaces_a_server(tools: Process) -> None:
    for value in ("one", "two", "three"):
        tools.send(StartServer(entry=entry("again", env={"VALUE": value})))
    tools.until("again", "ready")
    while json.loads(tools.run("environment", "again").text)["variables"]["VALUE"] != "three":
        tools.until("again", "ready")
    found = [one for one in psutil.Process(tools.process_id).children() if "tool_server" in " ".join(one.cmdline())]
    assert len(found) == 2  # this one, and the one that all tests share
    tools.send(StopServer(name="again"))
    tools.until("again", "stopped")
