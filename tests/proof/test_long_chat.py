"""Somebody chats for an hour: what the app takes of memory, threads, files and disk doesn't grow."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.proof.conftest import Proof, StartWindow
from tests.proof.data_folder import bugs, size, strays
from tests.proof.window_process import WindowProcess

pytestmark = [pytest.mark.timeout(8 * 3600)]

QUESTIONS = ("Hello", "What is a draft model?", "How do I stop an answer?", "Where are my chats?", "What is a preset?")
KEPT = 10
"""Chats. Older ones are deleted for good, so that what is stored stays the same."""
TURNS = 4
"""Of a chat."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """What the app takes. Bytes but for the numbers of threads and open files; of the window, and of all others."""

    at: float
    memory: int
    other_memory: int
    threads: int
    open_files: int
    processes: int
    disk: int

    @classmethod
    def of(cls, window: WindowProcess, began: float) -> Sample:
        memory = other_memory = threads = open_files = count = 0
        for processes in window.tree().values():
            for process in processes:
                try:
                    own, its_threads, its_files = _memory(process), process.num_threads(), process.num_fds()
                except psutil.Error:
                    continue
                if process.pid == window.process.pid:
                    memory += own
                else:
                    other_memory += own
                threads, open_files, count = threads + its_threads, open_files + its_files, count + 1
        return cls(time.monotonic() - began, memory, other_memory, threads, open_files, count, size(window.home))


def _memory(process: psutil.Process) -> int:
    """What the process has for itself: files that are mapped can be read again."""
    found = process.memory_info()
    return int(found.rss - found.shared)


def test_long_chat(proof: Proof, tmp_path: Path, start_window: StartWindow) -> None:
    minutes = proof.count(1, 2, 60)
    warm = min(10.0, minutes / 3)
    window = start_window(tmp_path / "home", "idle")
    window.wait_for("ready")
    window.say("forget_steps")
    began, samples, turns = time.monotonic(), list[Sample](), 0
    while time.monotonic() - began < 60 * minutes:
        if turns % TURNS == 0:
            window.say("new")
            window.say("erase_old", KEPT)
        answered, settled = window.counts["answered"], window.counts["settled"]
        window.say("ask", QUESTIONS[turns % len(QUESTIONS)])
        window.wait_for("answered", answered)
        if turns % 7 == 0:
            window.say("show_code")
        window.say("settle")
        window.wait_for("settled", settled)
        turns += 1
        samples.append(Sample.of(window, began))
        proof.progress(f"{turns} turns, {samples[-1].at / 60:.1f} of {minutes} min, {_shown(samples[-1])}")
    slow = window.slow()
    assert window.end() == (0, [])
    assert not bugs(window.home) and not strays(window.home)
    early = _median([one for one in samples if warm * 60 <= one.at < warm * 60 + max(60, minutes * 6)])
    late = _median([one for one in samples if one.at >= 54 * minutes])
    proof.found(
        f"{turns} turns in {minutes} min; after {warm:.1f} min {_shown(early)}; at the end {_shown(late)}; {slow}"
    )
    if proof.form == "long":  # in a few minutes nothing has settled yet
        assert late.memory < 1.1 * early.memory + 10 * MIB
        assert late.other_memory < 1.1 * early.other_memory + 10 * MIB
        assert late.threads <= early.threads + 2
        assert late.open_files <= early.open_files + 4
        assert late.disk < 1.1 * early.disk + 4 * MIB


def _median(samples: list[Sample]) -> Sample:
    assert samples
    fields = ("at", "memory", "other_memory", "threads", "open_files", "processes", "disk")
    return Sample(*(statistics.median(getattr(one, name) for one in samples) for name in fields))


def _shown(sample: Sample) -> str:
    return (
        f"{sample.memory / MIB:.0f} MiB in the window, {sample.other_memory / MIB:.0f} MiB in the others of "
        f"{sample.processes:.0f} processes, {sample.threads:.0f} threads, {sample.open_files:.0f} open files, "
        f"{sample.disk / MIB:.1f} MiB on disk"
    )
