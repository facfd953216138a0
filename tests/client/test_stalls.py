"""`StallWatch` alone; what the connection makes of it is in `test_connection`."""

from __future__ import annotations

import pytest

from app.client.stalls import Stalled, StallWatch, Timings
from app.client.state import EngineState
from app.protocol.events import Pong

pytestmark = pytest.mark.allow_logs
TIMINGS = Timings(tick=2.0, silence=6.0, no_progress=20.0, start=8.0, cancel=4.0)


@pytest.fixture
def watch() -> StallWatch:
    return StallWatch(TIMINGS)


def ticks(watch: StallWatch, state: EngineState, count: int) -> list[Stalled | None]:
    return [watch.tick(state) for _ in range(count)]


def test_a_process_that_does_not_start(watch: StallWatch) -> None:
    assert ticks(watch, EngineState.STARTING, 5) == [None, None, None, Stalled(8.0), None]


@pytest.mark.parametrize("state", [state for state in EngineState if state.is_busy])
def test_silence_and_what_ends_it(watch: StallWatch, state: EngineState) -> None:
    pong = Pong(busy=True, seconds_since_progress=20.0)
    for _ in range(4):
        assert ticks(watch, state, 3) == [None] * 3
        assert watch.answered(pong, state) is None
    assert ticks(watch, state, 5) == [None, None, None, Stalled(6.0), None]
    watch.begin()
    assert ticks(watch, state, 4)[-1] == Stalled(6.0), "once for each request"


def test_an_idle_engine_is_never_stalled(watch: StallWatch) -> None:
    assert ticks(watch, EngineState.READY, 50) == [None] * 50
    assert watch.answered(Pong(busy=False, seconds_since_progress=50.0), EngineState.READY) is None


def test_no_progress(watch: StallWatch) -> None:
    assert watch.answered(Pong(busy=False, seconds_since_progress=50.0), EngineState.ANSWERING) is None
    assert watch.answered(Pong(busy=True, seconds_since_progress=20.5), EngineState.ANSWERING) == Stalled(20.5)


def test_a_cancel_without_effect(watch: StallWatch) -> None:
    assert ticks(watch, EngineState.ANSWERING, 2) == [None, None]
    watch.cancel()
    assert watch.is_canceled and ticks(watch, EngineState.ANSWERING, 2) == [None, Stalled(4.0)]
    watch.begin()
    assert not watch.is_canceled
