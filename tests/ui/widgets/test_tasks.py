"""Tasks in lanes: their results in the window's thread, their order, and their end."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot
from shiboken6 import delete, isValid

from app.system import Canceled, KnownError
from app.ui.widgets.tasks import Lane, Results


@pytest.fixture
def owner() -> Iterator[QObject]:
    owner = QObject()
    yield owner
    if isValid(owner):
        delete(owner)


class Held:
    """A task that goes on only when the test lets it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.may_end.wait()
        return "done"


@pytest.fixture
def held() -> Iterator[Held]:
    task = Held()
    yield task
    task.may_end.set()


def is_window_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def test_results_come_back_in_the_window_thread_and_in_order(qtbot: QtBot, owner: QObject) -> None:
    lane = Lane(owner, "test")
    seen: list[tuple[int, bool, bool]] = []

    def task(number: int) -> tuple[int, bool]:
        return number, is_window_thread()

    for number in range(50):
        lane.submit(lambda number=number: task(number), lambda found: seen.append((*found, is_window_thread())))  # type: ignore[misc]
    qtbot.waitUntil(lambda: len(seen) == 50)
    assert seen == [(number, False, True) for number in range(50)]
    assert lane.is_idle()


def test_a_lane_runs_as_many_at_once_as_it_may(qtbot: QtBot, owner: QObject) -> None:
    lane = Lane(owner, "test", at_once=2)
    both = threading.Barrier(2)
    seen: list[int] = []
    for _ in range(2):
        lane.submit(both.wait, seen.append)  # each waits for the other
    qtbot.waitUntil(lambda: sorted(seen) == [0, 1])


def test_known_errors_reach_whoever_asked(qtbot: QtBot, owner: QObject) -> None:
    errors: list[str] = []
    future: Future[None] = Future()
    Results(owner).when_done(future, None, lambda error: errors.append(str(error)))
    future.set_exception(KnownError("The disk is full."))

    def stop() -> None:
        raise Canceled

    Lane(owner, "test").submit(stop, None, lambda error: errors.append(str(error)))
    qtbot.waitUntil(lambda: errors == ["The disk is full.", "Stopped."])


@pytest.mark.allow_logs
def test_bugs_are_logged_and_nobody_waits_for_ever(
    qtbot: QtBot, owner: QObject, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[KnownError] = []
    Lane(owner, "test").submit(lambda: 1 // 0, None, errors.append)
    qtbot.waitUntil(lambda: len(errors) == 1)
    assert "ZeroDivisionError" in caplog.text
    assert "Traceback" in caplog.text


def test_a_task_that_is_canceled_before_it_begins_is_left_out(qtbot: QtBot, owner: QObject, held: Held) -> None:
    lane, seen = Lane(owner, "test"), list[str]()
    lane.submit(held, seen.append)
    assert lane.submit(lambda: "second", seen.append).cancel()
    lane.submit(lambda: "third", seen.append)
    held.may_end.set()
    qtbot.waitUntil(lambda: seen == ["done", "third"])
    assert lane.is_idle()


def test_of_what_is_dropped_nothing_arrives_and_what_has_not_begun_does_not_begin(
    qtbot: QtBot, owner: QObject, held: Held
) -> None:
    lane, never, seen = Lane(owner, "test"), Held(), list[str]()
    running, waiting = lane.submit(held, seen.append), lane.submit(never, seen.append)
    held.begun.wait()
    for future in (running, waiting, None):
        lane.drop(future)
    lane.submit(lambda: "last", seen.append)
    held.may_end.set()
    qtbot.waitUntil(lambda: bool(seen))
    assert seen == ["last"] and lane.is_idle() and not never.begun.is_set()
    lane.drop(running)  # it has ended
    assert lane.is_idle()


@pytest.mark.parametrize("end", ["close", "destroy"])
def test_after_the_end_of_its_owner_nothing_begins_or_arrives(
    qtbot: QtBot, owner: QObject, held: Held, end: str
) -> None:
    lane = Lane(owner, "test")
    seen: list[object] = []
    first = lane.submit(held, seen.append, seen.append)
    second = lane.submit(lambda: "second", seen.append, seen.append)
    held.begun.wait()
    if end == "close":
        assert not lane.close()
    else:
        delete(owner)
    assert lane.is_closed()
    lane.submit(lambda: "third", seen.append, seen.append)
    held.may_end.set()
    assert first.result() == "done"
    assert second.cancelled() or end == "destroy"
    qtbot.waitUntil(lane.is_idle)
    assert lane.close(10)
    assert seen == []


def test_what_waits_can_be_finished_at_the_end(owner: QObject, held: Held) -> None:
    lane, written = Lane(owner, "test"), list[int]()
    lane.submit(held)
    lane.submit(lambda: written.append(1))
    held.may_end.set()
    assert lane.close(10, finish=True)
    assert written == [1]


def test_the_end_waits_no_longer_than_it_may_and_then_drops_what_waits(owner: QObject, held: Held) -> None:
    lane, written = Lane(owner, "test"), list[int]()
    lane.submit(held)
    waiting = lane.submit(lambda: written.append(1))
    held.begun.wait()
    assert not lane.close(0.01, finish=True)
    assert waiting.cancelled()
    held.may_end.set()
    assert lane.close(10)
    assert written == []


def test_what_a_task_refers_to_is_destroyed_in_the_windows_thread(qtbot: QtBot, owner: QObject) -> None:
    lane, destroyed_in_window = Lane(owner, "test"), list[bool]()

    class Widget:
        def work(self) -> None:
            raise KnownError("A traceback would keep this frame.")

    def submit() -> None:
        widget = Widget()
        weakref.finalize(widget, lambda: destroyed_in_window.append(is_window_thread()))
        lane.submit(widget.work)

    for _ in range(20):
        submit()
    qtbot.waitUntil(lane.is_idle)
    assert lane.close(10)
    gc.collect()
    assert destroyed_in_window == [True] * 20


CODE = """
import threading
from PySide6.QtCore import QCoreApplication, QObject
from app.ui.widgets.tasks import Lane
app, owner, begun = QCoreApplication([]), QObject(), threading.Event()
Lane(owner, "test").submit(lambda: begun.set() or threading.Event().wait())
begun.wait()
"""


def test_a_task_that_waits_for_ever_does_not_keep_the_process() -> None:
    assert subprocess.run([sys.executable, "-c", CODE], timeout=60, check=False).returncode == 0
