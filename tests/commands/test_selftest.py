"""``slipstream selftest``: all that it finds well, and all that it must not take for well or die of."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app import system, words
from app.commands import selftest
from app.commands.selftest import CHECKS, Workplace, report
from app.system import KnownError
from tests.support.command_line import ROOT, slipstream

NAMES = "program engine guide format formula chats folders resources starter keyring TLS window"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how processes end there")


@pytest.mark.usefixtures("guide_pair")
def test_this_copy_works(home: Path, tmp_path: Path) -> None:
    (tmp_path / "0a1b2c3d.0").touch()  # the machine may have no certificates
    result = slipstream("selftest", LC_ALL="C", PYTHONIOENCODING="ascii", SSL_CERT_FILE="", SSL_CERT_DIR=str(tmp_path))
    lines = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert " ".join(name for _, name, _ in lines) == NAMES
    assert {state for state, _, _ in lines} == {"ok"}, result.stdout
    assert (result.returncode, result.stderr) == (0, "")
    details = {name: detail for _, name, detail in lines}
    assert "llama.cpp" in details["engine"] and "on the CPU; instruction sets: " in details["engine"]
    assert "draft tokens accepted" in details["guide"] and "tok/s" in details["guide"]
    assert "offscreen" in details["window"]
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_a_failed_check_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def bug(_: Workplace) -> str:
        raise LookupError("nobody\nexpected it")

    def known(_: Workplace) -> str:
        raise KnownError("The disk is full.")

    assert report({"one": bug, "two": known, "three": lambda _: words.speed(74)}) == 1
    out, errors = capsys.readouterr()
    assert out.splitlines() == [
        "failed  one        LookupError: nobody expected it",
        "failed  two        The disk is full.",
        "ok      three      74 tok/s",
    ]
    assert errors == ""
    assert report({"one": bug}, verbose=True) == 1
    assert "Traceback" in capsys.readouterr().err
    assert report({"three": lambda _: "fine"}) == 0


@pytest.mark.usefixtures("guide_pair")
def test_a_damaged_guide_is_found(tmp_path: Path) -> None:
    folder = shutil.copytree(system.resource("guide"), tmp_path / "guide")
    assert selftest._check_guide(folder) > 1e6
    with (folder / "guide-draft.gguf").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\0\1\2\3")
    with pytest.raises(KnownError, match=r"guide-draft\.gguf is damaged"):
        selftest._check_guide(folder)


@linux
def test_a_window_that_cannot_open_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QT_QPA_PLATFORM", "nonsense")
    with Workplace() as work, pytest.raises(KnownError, match=r"The window ended with SIGABRT\. .*nonsense"):
        CHECKS["window"](work)


@linux
def test_a_window_that_is_not_ready_in_time_is_ended_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "WINDOW_SECONDS", 0.3)
    before = psutil.Process().children(recursive=True)  # such as the helper process that tests share
    with Workplace() as work, pytest.raises(KnownError, match="wasn't ready"):
        CHECKS["window"](work)
    assert set(psutil.Process().children(recursive=True)) <= set(before)


@linux
@pytest.mark.usefixtures("guide_pair")
def test_ended_from_outside_it_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "app", "selftest"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as run:
        deadline = time.monotonic() + 60
        while not (computing := [one for one in psutil.Process(run.pid).children() if _has_guide(one)]):
            assert time.monotonic() < deadline
        run.terminate()
        assert run.wait(60) == 128 + signal.SIGTERM
    assert psutil.wait_procs(computing, timeout=60)[1] == []
    assert list(tmp_path.iterdir()) == []


def _has_guide(process: psutil.Process) -> bool:
    try:
        return any(part.path.endswith("guide-target.gguf") for part in process.memory_maps())
    except psutil.Error:
        return False
