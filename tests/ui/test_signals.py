"""The system's request to end."""

from __future__ import annotations

import signal

from pytestqt.qtbot import QtBot

from app.ui.signals import EndSignals


def test_the_end_begins_in_the_event_loop_and_not_in_the_middle_of_what_runs(qtbot: QtBot) -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = EndSignals()
    asked: list[bool] = []
    signals.end_requested.connect(lambda: asked.append(True))
    try:
        with qtbot.waitSignal(signals.end_requested, timeout=20_000):
            signal.raise_signal(signal.SIGTERM)
            assert not asked
        assert asked == [True]
    finally:
        signals.close()
    assert signal.getsignal(signal.SIGTERM) is before
