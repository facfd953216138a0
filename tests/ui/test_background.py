"""Futures of other threads, called back in the window's."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pytestqt.qtbot import QtBot

from app.errors import KnownError
from app.ui.background import Doorbell


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
