"""The system's request to end."""

from __future__ import annotations

import signal
import sys

import pytest
from pytestqt.qtbot import QtBot

from app.ui.shell.end_signals import EndSignals

_NAMES = ["SIGINT", "SIGTERM", *(["SIGHUP"] if sys.platform != "win32" else [])]


@pytest.mark.parametrize("name", _NAMES)
def test_the_end_begins_in_the_event_loop_and_not_in_the_middle_of_what_runs(qtbot: QtBot, name: str) -> None:
    number = signal.Signals[name]
    before = signal.getsignal(number)
    signals = EndSignals()
    asked: list[bool] = []
    signals.end_requested.connect(lambda: asked.append(True))
    try:
        with qtbot.waitSignal(signals.end_requested, timeout=20_000):
            signal.raise_signal(number)
            assert not asked
        assert asked == [True]
    finally:
        signals.close()
    assert signal.getsignal(number) is before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX")
def test_who_started_it_with_nohup_may_close_the_terminal(qtbot: QtBot) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = EndSignals()
    try:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signals.close()
        signal.signal(signal.SIGHUP, before)
