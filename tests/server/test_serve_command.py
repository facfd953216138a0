"""``slipstream serve`` as a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from app.protocol.commands import Load
from app.server.guard import Guard
from app.server.serving import serve
from app.system import KnownError
from tests.support.command_line import ROOT, called, python_path
from tests.support.matrix import in_proof
from tests.support.served import Json

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
def test_how_it_drafts(endless_pair: tuple[Path, Path]) -> None:
    target, draft = endless_pair
    body: Json = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 24, "temperature": 0}
    fixed = {"slipstream": {"drafter": "model", "draft_length": 4}}
    with serving("--target", target, "--draft", draft, "--drafter", "off") as (_, url):
        usual, other = (
            httpx2.post(f"{url}/chat/completions", json=one, timeout=60).json() for one in (body, {**body, **fixed})
        )
    assert usual["slipstream"]["drafted"] == 0 < other["slipstream"]["drafted"]


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, *in_proof([signal.SIGTERM, signal.SIGHUP])])
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
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with serving("--target", endless_pair[0]) as (process, _):
            started = children_of(process)
            process.terminate()
            _, errors = process.communicate(timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.returncode == 143 and "Traceback" not in errors
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_it_makes_a_key_and_uses_no_draft_if_told_so(endless_pair: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "key"
    with serving("--target", endless_pair[0], "--no-draft", "--api-key-file", file) as (_, url):
        assert httpx2.get(f"{url}/models").status_code == 401
        key = {"Authorization": f"Bearer {file.read_text().strip()}"}
        body = {"messages": [{"role": "user", "content": "Well?"}], "max_tokens": 60}
        answer = httpx2.post(f"{url}/chat/completions", json=body, headers=key, timeout=60).json()
    assert "draft_n" not in answer["timings"] and answer["slipstream"]["tested"] == 0


def test_beyond_this_computer_a_key_is_needed(endless_pair: tuple[Path, Path]) -> None:
    done = called("serve", "--target", endless_pair[0], "--host", "0.0.0.0")
    assert done.returncode == 1 and "--api-key-file" in done.stderr


def test_where_it_cannot_listen_and_what_it_cannot_load(endless_pair: tuple[Path, Path], tmp_path: Path) -> None:
    def served(target: Path, *place: Any) -> None:
        asyncio.run(serve(Load(request=0, target=str(target)), Guard(), *place))

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(KnownError, match=f"Port {port} on 127.0.0.1 is in use"):
            served(endless_pair[0], None, port)
    for host in ("192.0.2.1", "no-such-name.invalid"):
        with pytest.raises(KnownError, match=f"{host} isn't an address of this computer"):
            served(endless_pair[0], host)
    with pytest.raises(KnownError, match=r"gone\.gguf"):
        served(tmp_path / "gone.gguf")
