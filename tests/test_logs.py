from __future__ import annotations

import faulthandler
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import system
from app.system import KnownError

ROOT = Path(__file__).parent.parent


def run(code: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, that logs and ends as ``code`` says."""
    start = "import faulthandler, logging, os, sys, threading\nfrom app import system\nlog = system.start_log()\n"
    return subprocess.run([sys.executable, "-c", start + code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def _faulthandler_after() -> Iterator[None]:
    """There is one fault handler a process, and pytest wants it back."""
    enabled = faulthandler.is_enabled()
    yield
    if enabled and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


@pytest.fixture
def started(_faulthandler_after: None) -> Iterator[system.Logs]:
    log = system.start_log()
    yield log
    log.close()


def test_records_go_to_the_file(started: system.Logs, home: Path) -> None:
    logging.getLogger("app.some.part").info("the engine is %s", "ready")
    logging.getLogger("app.some.part").debug("too much")
    text = (home / "logs" / "slipstream.log").read_text(encoding="utf-8")
    assert "INFO    app.some.part: the engine is ready" in text
    assert "Slipstream 0" in text
    assert "too much" not in text
    assert started.file == home / "logs" / "slipstream.log"


def test_a_clean_end_leaves_no_crash(home: Path) -> None:
    assert run("log.close()").returncode == 0
    assert [file.name for file in (home / "logs").iterdir()] == ["slipstream.log"]
    assert run("print(log.previous_crash)").stdout == "None\n"


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("faulthandler._sigsegv()", "Segmentation fault"),
        ("os.abort()", "Aborted"),
        ("def work():\n    raise ZeroDivisionError('bug')\nwork()", "ZeroDivisionError: bug"),
        (
            "t = threading.Thread(target=lambda: 1 // 0)\nt.start()\nt.join()\nos._exit(1)",
            "ZeroDivisionError: integer division",
        ),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_is_told_once_at_the_next_start_and_kept(code: str, trace: str, home: Path) -> None:
    assert run(code).returncode != 0
    told = run("print(log.previous_crash)\nlog.close()").stdout
    assert trace in told
    assert trace in (home / "logs" / "slipstream-previous-crash.txt").read_text(encoding="utf-8")
    assert run("print(log.previous_crash)").stdout == "None\n"


def test_a_known_error_is_logged_without_a_traceback(home: Path) -> None:
    assert run("from app.system import KnownError\nraise KnownError('the disk is full')").returncode == 1
    text = (home / "logs" / "slipstream.log").read_text(encoding="utf-8")
    assert "ERROR   app.system: the disk is full" in text
    assert "Traceback" not in text
    assert run("print(log.previous_crash)").stdout == "None\n"


@pytest.mark.allow_logs
def test_a_bug_in_a_thread_is_logged_with_its_traceback(started: system.Logs) -> None:
    def work() -> None:
        raise ZeroDivisionError("in the thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    text = started.file.read_text(encoding="utf-8")
    assert "ZeroDivisionError: in the thread" in text
    assert "Traceback" in text


def test_the_home_folder_is_not_in_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    text = "File /home/ann/models/a.gguf, /home/ann, /home/anna/b, /home/ann."
    assert system.redact(text) == "File ~/models/a.gguf, ~, /home/anna/b, ~."
    monkeypatch.setattr(Path, "home", lambda: Path("/"))
    assert system.redact(text) == text


def test_the_home_folder_is_not_in_the_log(started: system.Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    logging.getLogger("app").info("opened %s", "/home/ann/models/a.gguf")
    assert started.file.read_text(encoding="utf-8").endswith("opened ~/models/a.gguf\n")


def test_a_log_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "logs" / "slipstream.log").mkdir(parents=True)
    with pytest.raises(KnownError, match="can't write its log"):
        system.start_log()
