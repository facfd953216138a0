"""Which cores are counted; the files of sysfs are those of real processors, cut down."""

from __future__ import annotations

import struct
from pathlib import Path

import psutil
import pytest

from app.engine.llama import thread_count
from app.engine.llama.thread_count import _linux_cores, _most_efficient, default_threads, other_threads


def sysfs(folder: Path, siblings: list[str], capacities: list[int] | None = None, quick: str = "") -> Path:
    cpus = folder / "devices" / "system" / "cpu"
    for number, text in enumerate(siblings):
        topology = cpus / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{text}\n")
        if capacities:
            (cpus / f"cpu{number}" / "cpu_capacity").write_text(f"{capacities[number]}\n")
    if quick:
        (folder / "devices" / "cpu_core").mkdir()
        (folder / "devices" / "cpu_core" / "cpus").write_text(f"{quick}\n")
    return cpus


HYBRID = ["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]
"""Two performance cores of two threads each, and four efficiency cores."""


def test_efficiency_cores_of_an_intel_processor_do_not_count(tmp_path: Path) -> None:
    cpus = sysfs(tmp_path, HYBRID, quick="0-3")
    assert _linux_cores(cpus, range(8)) == 2
    assert _linux_cores(cpus, [0, 1, 6]) == 1
    assert _linux_cores(cpus, [5, 6, 7]) == 3  # nothing else is allowed


def test_little_cores_of_an_arm_processor_do_not_count(tmp_path: Path) -> None:
    cpus = sysfs(tmp_path, [str(i) for i in range(6)], [446, 446, 446, 446, 1024, 984])
    assert _linux_cores(cpus, range(6)) == 2


def test_all_cores_of_an_ordinary_processor_count_once(tmp_path: Path) -> None:
    cpus = sysfs(tmp_path, ["0,2", "1,3", "0,2", "1,3"])
    assert _linux_cores(cpus, range(4)) == 2
    assert _linux_cores(cpus, [0, 2]) == 1


def test_where_the_system_says_nothing_nothing_is_guessed(tmp_path: Path) -> None:
    assert _linux_cores(tmp_path / "devices" / "system" / "cpu", range(4)) == 0
    assert _linux_cores(sysfs(tmp_path, ["0", "1"], quick="x-y"), range(2)) == 2


def test_efficiency_classes_of_windows() -> None:
    cores = b"".join(struct.pack("<IIBB22x", 0, 32, 1, efficiency) for efficiency in (0, 1, 1, 0, 0))
    assert _most_efficient(cores) == 2
    assert _most_efficient(b"") == 0


def test_the_number_is_the_same_at_every_start() -> None:
    """Another number rounds differently: the same seed would give another text."""
    assert len({default_threads() for _ in range(5)}) == 1


@pytest.mark.parametrize(
    ("usual", "cores", "expected"),
    [(1, 1, None), (1, 2, None), (2, 2, None), (3, 3, 2), (4, 4, 2), (16, 16, 8), (6, 14, 14), (4, 8, 8), (1, 3, 3)],
)
def test_the_other_number(monkeypatch: pytest.MonkeyPatch, usual: int, cores: int, expected: int | None) -> None:
    """All cores where some are slow, otherwise half of them."""
    monkeypatch.setattr(thread_count, "default_threads", lambda: usual)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 2 * cores if logical else cores)
    monkeypatch.setattr(thread_count, "allowed_processors", lambda: set(range(2 * cores)))
    assert other_threads() == expected


def test_no_more_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_count, "default_threads", lambda: 2)
    monkeypatch.setattr(thread_count, "allowed_processors", lambda: {0, 1})
    assert other_threads() is None
