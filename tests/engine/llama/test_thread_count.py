"""Which cores are counted; the files of sysfs are those of real processors, cut down."""

from __future__ import annotations

from pathlib import Path

from app.engine.llama.backend import _linux_cores, default_threads


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


def test_the_number_is_the_same_at_every_start() -> None:
    """Another number rounds differently: the same seed would give another text."""
    assert len({default_threads() for _ in range(5)}) == 1
