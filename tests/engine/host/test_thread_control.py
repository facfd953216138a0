"""Fewer threads while other programs are busy: simulated computers with clocks of their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.engine.host.threads import ThreadControl, Usage
from app.engine.llama.backend import container_cores


@dataclass
class Computer:
    """Passes take ``seconds`` with all ``cores``; threads that share a core with another program delay the others."""

    cores: int
    busy: float = 0.0
    """Cores that other programs use."""
    seconds: float = 0.02
    quota: float = 1e9
    disturbed: float = 1.0
    """How many times as long passes take with all threads, for a reason that nobody sees."""
    now: float = 100.0
    all: float = 0.0
    own: float = 0.0
    history: list[tuple[float, int]] = field(default_factory=list)

    def usage(self) -> Usage:
        return Usage(self.all, self.own, self.now)

    def run(self, control: ThreadControl, passes: int) -> None:
        for _ in range(passes):
            count = control.count
            took = self.seconds * self.cores / count
            if count + self.busy > self.cores + 0.5 or count > self.quota:
                took *= 4.0
            took *= self.disturbed if count == self.cores else 1.0
            self.now += took
            self.own += took * min(count, self.cores - self.busy)
            self.all += took * min(count + self.busy, self.cores)
            self.history.append((self.now, control.passed(self.now, took, self.seconds)))


def started(computer: Computer) -> ThreadControl:
    control = ThreadControl(computer.cores, computer.usage)
    control.begin()
    computer.run(control, 50)
    return control


@pytest.mark.parametrize(("cores", "busy", "expected"), [(2, 1.0, 1), (8, 1.0, 7), (8, 3.0, 5), (4, 2.0, 2)])
def test_others_get_their_cores_and_give_them_back(cores: int, busy: float, expected: int) -> None:
    computer = Computer(cores)
    control = started(computer)
    assert control.count == cores and control.slowdown == 1.0
    computer.busy = busy
    computer.run(control, 200)
    counts = [count for _, count in computer.history[-100:]]
    assert counts.count(expected) > 70
    assert control.slowdown > 1.05
    computer.busy, ended = 0.0, computer.now
    computer.run(control, 100)
    assert control.count == cores and control.slowdown == 1.0
    assert next(time for time, count in computer.history if time > ended and count == cores) - ended < 2.0


def test_slow_passes_alone_are_a_reason_to_try() -> None:
    """A quota, or heat: nobody else is busy."""
    computer = Computer(4)
    control = started(computer)
    computer.quota = 2.0
    computer.run(control, 400)
    counts = [count for _, count in computer.history[-200:]]
    assert counts.count(2) > 0.7 * len(counts)
    computer.quota = 1e9
    computer.run(control, 3000)
    assert control.count == 4


def test_prompts_give_way_at_once() -> None:
    computer = Computer(4)
    control = started(computer)
    computer.busy = 2.0
    for _ in range(3):
        computer.now += 1.0
        computer.all, computer.own = computer.all + 4.0, computer.own + 2.0
        count = control.processed(computer.now)
    assert count == 2
    computer.now, computer.all, computer.own = computer.now + 1.0, computer.all + 2.0, computer.own + 2.0
    assert control.processed(computer.now) == 4


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"cpu.max": "max 100000"}, 0),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "400000 100000", "app/cpu.max": "250000 100000"}, 2),
        ({"app/cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 0),
        ({"cpu.max": "nonsense"}, 0),
    ],
)
def test_a_container_has_as_many_cores_as_it_may_use(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    own = tmp_path / "own"
    own.write_text("0::/app\n")
    assert container_cores(tmp_path, own) == expected
