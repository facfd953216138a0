"""The helper process from outside: its limits, its end, and that nothing of it stays."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from app import system
from app.helper import MEMORY_LIMIT, Died, Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory
from app.helper.messages import Highlight, Highlighted, Message, Rendered, RenderTemplate

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
GROWING = "{% set x = namespace(a='x') %}{% for i in range(60) %}{% set x.a = x.a ~ x.a %}{% endfor %}"
PATIENT = 100.0
"""Seconds: what ends by itself may take its time on a busy machine."""


def render(source: str) -> RenderTemplate:
    return RenderTemplate(source, "", "", [Message("user", "Hi")], "2026-11-22T10:00:00")


@pytest.fixture
def helper() -> Iterator[Helper]:
    process = Helper(PATIENT)
    yield process
    process.stop()


@pytest.fixture
def hasty() -> Iterator[Helper]:
    """For requests that never end."""
    process = Helper(seconds=0.2)
    yield process
    process.stop()


def wait_until_begun(helper: Helper) -> psutil.Process:
    """Until the helper computes."""
    while (pid := helper.process_id) is None or psutil.Process(pid).cpu_times().user < 0.3:
        time.sleep(0.005)
    return psutil.Process(pid)


def test_it_can_be_started_ahead_and_stays_for_the_next_request(helper: Helper) -> None:
    large = bytearray(200_000_000)  # what starts it may itself have taken much memory
    helper.start()
    first = helper.process_id
    assert first is not None
    assert helper.ask(render("{{ messages[0].content }}!")) == Rendered("Hi!")
    assert helper.ask(Highlight("python", "return")) == Highlighted([[0, 6, 1]])
    assert helper.process_id == first
    del large


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_AS")
def test_its_memory_can_never_pass_the_limit(helper: Helper) -> None:
    helper.ask(render("{{ messages[0].content }}"))
    process = psutil.Process(helper.process_id)
    soft, hard = process.rlimit(psutil.RLIMIT_AS)
    assert soft == hard
    # What may still be reserved, together with what is there.
    assert soft - process.memory_info().vms + process.memory_info().rss < MEMORY_LIMIT + 64 * 2**20


def test_one_that_was_killed_is_replaced_without_a_word(helper: Helper) -> None:
    helper.ask(render("{{ messages[0].content }}"))
    first = psutil.Process(helper.process_id)
    first.kill()
    assert helper.ask(render("{{ messages[0].content }}")) == Rendered("Hi")
    assert helper.process_id != first.pid
    assert not first.is_running()  # and reaped


def test_dying_in_a_request_is_told(helper: Helper) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(helper.ask, render(ENDLESS))
        wait_until_begun(helper).kill()
        assert type(answer.exception()) is Died
    assert helper.ask(render("{{ messages[0].content }}")) == Rendered("Hi")


def test_it_can_be_stopped_in_a_request() -> None:
    helper = Helper(PATIENT)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(helper.ask, render(ENDLESS))
        process = wait_until_begun(helper)
        helper.stop()
        assert type(answer.exception()) is Died
    assert not process.is_running()
    assert helper.process_id is None


def test_many_threads_may_call(hasty: Helper) -> None:
    def ask(number: int) -> object:
        try:
            if number % 5 == 2:
                return hasty.ask(render(ENDLESS))
            return hasty.ask(render(f"{{{{ messages[0].content }}}}{number}"))
        except HelperError as error:
            return type(error)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(10)))
    assert answers == [TookTooLong if number % 5 == 2 else Rendered(f"Hi{number}") for number in range(10)]


def test_passing_the_time_costs_one_request_and_nothing_stays_open(hasty: Helper) -> None:
    hasty.ask(render("{{ messages[0].content }}"))
    hasty.stop()
    gc.collect()  # or files of other tests are closed meanwhile
    before = psutil.Process().num_fds() if sys.platform != "win32" else 0
    threads, children = threading.active_count(), psutil.Process().children()
    for _ in range(2):
        with pytest.raises(TookTooLong):
            hasty.ask(render(ENDLESS))
    hasty.seconds = PATIENT
    assert hasty.ask(render("{{ messages[0].content }}")) == Rendered("Hi"), "it cost one request"
    hasty.stop()
    assert threading.active_count() == threads
    assert (psutil.Process().num_fds() if sys.platform != "win32" else 0) == before
    assert set(psutil.Process().children()) <= set(children)


def test_passing_the_memory_costs_one_request(helper: Helper) -> None:
    with pytest.raises(TooMuchMemory):
        helper.ask(render(GROWING))
    assert helper.ask(render("{{ messages[0].content }}")) == Rendered("Hi")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_looked_at_where_the_system_does_not_limit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def footprint(pid: int) -> int:
        seen.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        return seen[-1]

    monkeypatch.setattr("app.helper.limits.MEMORY_LIMIT", 60 * 2**20)
    helper = Helper(PATIENT, footprint)
    source = GROWING.replace("range(60)", "range(27)")  # 128 MB, which the process itself may take
    with pytest.raises(TooMuchMemory):
        helper.ask(render(source + ENDLESS))
    assert seen[-1] > 60 * 2**20
    helper.stop()


@pytest.mark.parametrize(
    "code",
    [
        "import os; os._exit(0)",
        "import sys; sys.stdout.buffer.write(bytes(3)); sys.stdout.flush()",
        "import sys; sys.stdout.buffer.write(b'\\xff' * 9); sys.stdout.flush(); sys.stdin.read()",
    ],
    ids=["ends", "cut", "oversized"],
)
def test_a_program_that_is_no_helper_is_told(code: str, helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "own_command", lambda *_: [sys.executable, "-c", code])
    with pytest.raises(NotStarted, match="ended immediately"):
        helper.ask(render("x"))
    assert helper.process_id is None


def test_it_gets_no_secrets_and_ends_with_its_input(monkeypatch: pytest.MonkeyPatch, helper: Helper) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    helper.start()
    process = psutil.Process(helper.process_id)
    assert "HF_TOKEN" not in process.environ()
    command = system.own_command("--role=helper")
    result = subprocess.run(command, cwd=system.FOLDER, input=b"", capture_output=True, check=True)
    assert result.stdout == result.stderr == b""


_PARENT = """
import sys
from app.helper import Helper
from app.helper.messages import Message, RenderTemplate
helper = Helper(seconds=1000)
helper.ask(RenderTemplate("{{ messages[0].content }}", "", "", [Message("user", "Hi")], "2026-11-22"))
print(helper.process_id, flush=True)
helper.ask(RenderTemplate(sys.argv[1], "", "", [Message("user", "Hi")], "2026-11-22"))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_CPU of another process")
@pytest.mark.parametrize("source", ["{{ messages[0].content }}{{ 1 / 0 }}", ENDLESS], ids=["idle", "hanging"])
def test_it_does_not_outlive_its_parent(source: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT + "sys.stdin.read()", source],
        cwd=system.FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    helper = psutil.Process(int(parent.stdout.readline()))
    if source == ENDLESS:
        while helper.cpu_times().user < 1.1:
            time.sleep(0.005)
        soft, hard = helper.rlimit(psutil.RLIMIT_CPU)
        assert soft < helper.cpu_times().user + 5
        helper.rlimit(psutil.RLIMIT_CPU, (1, hard))  # that moment comes now
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    while helper.is_running() and helper.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.005)


def test_it_starts_without_what_others_need() -> None:
    """It is started with each window: what it imports is time and memory."""
    code = "import sys, app.helper.process; print(*sys.modules, sep=chr(10))"
    found = subprocess.run([sys.executable, "-c", code], cwd=system.FOLDER, capture_output=True, check=True, text=True)
    started = set(found.stdout.split())
    assert "app.helper.process" in started
    assert not started & {"app.protocol.commands", "app.protocol.events", "socket", "jinja2", "numpy", "psutil"}
