"""``slipstream serve`` as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.support.command_line import ROOT, python_path, slipstream

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@contextmanager
def serving(*arguments: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and its base URL."""
    command = [sys.executable, "-m", "app", "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(), **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"http://\S+/v1", line)
        assert match, line + (process.stderr.read() if process.stderr else "")
        yield process, match.group()
    finally:
        process.kill()
        process.communicate()


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_all_it_started(endless_pair: tuple[Path, Path], number: signal.Signals) -> None:
    target, draft = endless_pair
    with serving("--target", target, "--draft", draft) as (process, url):
        body = {"messages": [{"role": "user", "content": "The password is xyzzy"}], "stream": True}
        with httpx2.stream("POST", f"{url}/chat/completions", json=body, timeout=60) as answer:
            assert next(answer.iter_lines()).startswith("data: ")
            started = children_of(process)
            assert any("--role=engine" in one.cmdline() for one in started)
            process.send_signal(number)
            out, errors = process.communicate(timeout=60)
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}[number]
        assert psutil.wait_procs(started, timeout=30)[1] == []
        assert "Traceback" not in errors and "xyzzy" not in errors + out


@posix
def test_one_in_the_background_ends_too(endless_pair: tuple[Path, Path]) -> None:
    """A shell has Ctrl+C ignored in what it starts in the background."""
    script = (
        "import signal, os, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, sys.executable, "-m", "app", "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(
        [*command, "--target", str(endless_pair[0])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert "Serving" in process.stdout.readline()
        started = children_of(process)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in errors
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_it_makes_a_key_and_wants_it(endless_pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "key"
    with serving("--target", endless_pair[0], "--api-key-file", file) as (_, url):
        key = file.read_text().strip()
        assert httpx2.get(f"{url}/models").status_code == 401
        assert httpx2.get(f"{url}/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_it_uses_no_draft_if_told_so(endless_pair: tuple[Path, Path]) -> None:
    with serving("--target", endless_pair[0], "--no-draft") as (_, url):
        body = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 60}
        answer = httpx2.post(f"{url}/chat/completions", json=body, timeout=60).json()
    assert "draft_n" not in answer["timings"] and answer["slipstream"]["tested"] == 0


def test_beyond_this_computer_a_key_is_needed(endless_pair: tuple[Path, Path]) -> None:
    done = slipstream("serve", "--target", endless_pair[0], "--host", "0.0.0.0")
    assert done.returncode == 1 and "--api-key-file" in done.stderr


def test_a_port_that_is_taken(endless_pair: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = slipstream("serve", "--target", endless_pair[0], "--port", str(port))
    assert done.returncode == 1 and f"Port {port} on 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-name.invalid"])
def test_an_address_that_is_not_ours(endless_pair: tuple[Path, Path], tmp_path: Path, host: str) -> None:
    key = "--api-key-file", tmp_path / "key"
    done = slipstream("serve", "--target", endless_pair[0], "--host", host, *key)
    assert done.returncode == 1 and f"{host} isn't an address of this computer" in done.stderr


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    done = slipstream("serve", "--target", tmp_path / "gone.gguf", "--port", "0")
    assert done.returncode == 1 and "gone.gguf" in done.stderr
