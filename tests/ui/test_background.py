"""Futures of other threads, called back in the window's."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pytestqt.qtbot import QtBot

from app.errors import KnownError
from app.ui.background import Doorbell, Workers


def test_results_come_back_in_the_window_thread_and_in_order(qtbot: QtBot) -> None:
    bell = Doorbell()
    seen: list[tuple[int, bool]] = []
    with ThreadPoolExecutor(max_workers=1) as pool:
        for number in range(50):
            bell.when_done(
                pool.submit(lambda number=number: number),  # type: ignore[misc]
                lambda value: seen.append((value, threading.current_thread() is threading.main_thread())),
            )
        qtbot.waitUntil(lambda: len(seen) == 50)
    assert seen == [(number, True) for number in range(50)]


def test_known_errors_reach_whoever_asked(qtbot: QtBot) -> None:
    bell = Doorbell()
    future: Future[None] = Future()
    errors: list[str] = []
    bell.when_done(future, None, lambda error: errors.append(str(error)))
    future.set_exception(KnownError("The disk is full."))
    qtbot.waitUntil(lambda: errors == ["The disk is full."])


@pytest.mark.allow_logs
def test_bugs_are_logged_and_nobody_waits_for_ever(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    bell = Doorbell()
    future: Future[None] = Future()
    errors: list[KnownError] = []
    bell.when_done(future, None, errors.append)
    future.set_exception(ZeroDivisionError())
    qtbot.waitUntil(lambda: len(errors) == 1)
    assert "ZeroDivisionError" in caplog.text


def test_workers_answer_and_say_what_went_wrong() -> None:
    workers = Workers(2, "test")
    both = threading.Barrier(2)
    futures = [workers.submit(both.wait) for _ in range(2)]  # each waits for the other
    assert sorted(future.result() for future in futures) == [0, 1]
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result()
    workers.shutdown(wait=True)


def test_what_has_not_begun_is_not_done_after_the_end() -> None:
    workers = Workers(1, "test")
    begun, may_end = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return may_end.wait()

    first = workers.submit(wait)
    second = workers.submit(lambda: 2)
    begun.wait()
    workers.shutdown()
    may_end.set()
    assert first.result()
    assert second.cancelled()


def test_workers_that_wait_for_ever_do_not_keep_the_process() -> None:
    code = (
        "import threading; from app.ui.background import Workers; begun = threading.Event()\n"
        "Workers(1, 'test').submit(lambda: begun.set() or threading.Event().wait()); begun.wait()"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
