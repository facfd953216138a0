"""The limit and the speed, by a clock that the test sets."""

from __future__ import annotations

import threading

from app.models.downloads.rate import RateLimiter, SpeedMeter


class Clock:
    """Time passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


def test_the_limit_is_kept() -> None:
    clock = Clock()
    limiter = RateLimiter(100_000, clock)
    for _ in range(200):
        limiter.take(10_000, clock.wait)
    seconds = clock.now - 1000.0
    assert 200 * 10_000 / 100_000 - 0.5 <= seconds <= 200 * 10_000 / 100_000 + 0.5


def test_several_share_one_limit() -> None:
    clock = Clock()
    limiter = RateLimiter(100_000, clock)

    def take() -> None:
        for _ in range(50):
            limiter.take(10_000, clock.wait)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now - 1000.0 >= 4 * 50 * 10_000 / 100_000 - 0.5


def test_no_limit_waits_for_nothing() -> None:
    clock = Clock()
    RateLimiter(None, clock).take(10**12, clock.wait)
    assert clock.now == 1000.0


def test_idle_time_is_not_saved_up() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, clock)
    clock.now += 3600
    limiter.take(10_000, clock.wait)
    assert clock.now - 4600.0 >= 9.5


def test_a_new_limit_holds_for_who_waits() -> None:
    clock = Clock()
    limiter = RateLimiter(1024, clock)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.wait(seconds)
        limiter.limit = None

    limiter.take(10**9, wait)
    assert len(waits) == 1 and waits[0] <= 0.5
    limiter.limit = 1024
    limiter.take(1, clock.wait)


def test_pieces_fit_the_limit() -> None:
    assert [RateLimiter(limit).piece() for limit in (None, 1024, 100_000, 10**9)] == [524288, 1024, 25_000, 524288]


def test_speed_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    meter = SpeedMeter(clock)
    assert meter.speed() is None
    for _ in range(100):
        meter.add(1000)
        clock.now += 0.1
    speed = meter.speed()
    assert speed is not None and 9_500 <= speed <= 11_000
    clock.now += 60
    assert meter.speed() is None
