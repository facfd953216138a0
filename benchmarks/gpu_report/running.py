"""Runs the steps on the machine with the GPU, within one call's time; the next call goes on where this one stopped.

The models are made with a build for the processor while llama.cpp is built for the GPU, and while steps run that don't
need them. Each step has a process of its own and a time limit: one that crashes or hangs costs only itself, and what it
had measured stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu_report import building
from benchmarks.gpu_report.packing import MANIFEST, PACK, RESULTS, ROOT, WORK
from benchmarks.gpu_report.results import Results, StepResult, now
from benchmarks.gpu_report.timetable import Entry, entries

MOST_ATTEMPTS = 2
INCOMPLETE = 3
"""The exit status if another call is needed."""
_STEPS = "benchmarks.gpu_report.steps"
_RESERVE = 8.0
"""Seconds at the end of a call, to write what there is."""
_ERROR_CHARACTERS = 1500
_SMALL_PATIENCE = 5
"""Limits are this many times as long where the report is only tried out, perhaps on a device made of software."""
_MODELS = Entry("models", 3600, 5)


class Running:
    """The process of a step, which has been started."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._figures, self._said = WORK / f"{name}.jsonl", WORK / f"{name}.log"
        self._figures.unlink(missing_ok=True)
        self._begun = time.monotonic()
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, "--figures", str(self._figures)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def finish(self, limit: float) -> StepResult:
        """What came of it; ends it after ``limit`` seconds, and then it is too slow."""
        code: int | None = None
        try:
            code = self._process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _kill(self._process)
        seconds = time.monotonic() - self._begun
        result = StepResult("done", _merged(self._figures), seconds, date=now())
        if code is None:
            result.state, result.error = "too slow", f"ended after {seconds:.0f} s"
        elif code:
            result.state = "failed"
            result.error = self._said.read_text("utf-8", "replace")[-_ERROR_CHARACTERS:]
            if code < 0:
                result.error += f"\nended by signal {-code}"
        return result


@dataclass
class Call:
    """One call of ``scripts/gpu-report run``."""

    backend: str
    seconds: float
    """How long it may take."""
    small: bool = False
    only: tuple[str, ...] = ()
    """Names of steps to run, even if they were done."""
    out: Path | None = None
    """Where results and built libraries are put besides `WORK`."""

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds - _RESERVE
        name = "small" if self.small else "usual"
        self._folder, self._file = WORK / f"models-{name}", WORK / f"results-{self.backend}-{name}.json"
        self._results = Results()
        self._models: Running | None = None
        self._has_models = False
        self._tried: set[str] = set()
        self._background: list[subprocess.Popen[bytes]] = []
        """Builds, which also pack what they have built."""

    def run(self) -> int:
        """Everything there is time for; returns 0 if no step is left, otherwise `INCOMPLETE`."""
        WORK.mkdir(parents=True, exist_ok=True)
        self._results = Results.read(self._file)
        self._take_over(Results.read(PACK / RESULTS))
        try:
            if self._prepare():
                while entry := self._next():
                    self._carry_out(entry)
            self._finish_packing()
        finally:
            for process in self._background:
                _kill(process)
            self._finish_models(0)
            self._write()
        return self._summary()

    # ------------------------------------------------------------ what there is already

    def _take_over(self, earlier: Results) -> None:
        """Results of an earlier call, if they are of this kind; the GPU is compared when it is known."""
        is_same = (earlier.machine.get("backend"), earlier.machine.get("small")) == (self.backend, self.small)
        if earlier.steps and is_same:
            self._results.machine = self._results.machine or earlier.machine
            self._results.add(earlier)
        self._results.machine |= {"backend": self.backend, "small": self.small, "commit": _commit()}

    def _is_wanted(self, entry: Entry) -> bool:
        if entry.name in self._tried:
            return False
        if self.only:
            return entry.name in self.only
        known = self._results.steps.get(entry.name)
        # The devices are cheap to ask, and tell whether the results so far are of this machine.
        return entry.name == "devices" or not _is_settled(known)

    def _possible(self) -> list[Entry]:
        """What is to be done, and there is time for."""
        left = self._left()
        return [entry for entry in entries(self.backend) if entry.least <= left and self._is_wanted(entry)]

    def _left(self) -> float:
        return self._end - time.monotonic()

    # ------------------------------------------------------------ libraries and models

    def _prepare(self) -> bool:
        """Whether there are libraries, and models are being made; if not, there was not enough time."""
        if self.backend == building.INSTALLED:
            return True
        building.unpack()
        missing = [backend for backend in dict.fromkeys((self.backend, "cpu")) if not building.is_built(backend)]
        builds = {backend: building.start(backend, self.out) for backend in missing}
        self._background += builds.values()
        if "cpu" in builds:
            self._wait_for(builds["cpu"], "cpu")
        if building.is_built("cpu"):
            self._make_models()
        if self.backend in builds:
            self._wait_for(builds[self.backend], self.backend)
        return building.is_built(self.backend)

    def _make_models(self) -> None:
        """Begin with it if a step needs them: this call may be the first one on this machine."""
        if self._models is None and any(entry.needs_models for entry in self._possible()):
            self._models = self._start(_MODELS)

    def _finish_models(self, limit: float) -> None:
        """Keep what came of them, at most ``limit`` seconds from now."""
        if self._models and not self._has_models:
            self._keep(_MODELS, self._models.finish(limit), is_cut_short=True)
            self._has_models = True

    def _wait_for(self, process: subprocess.Popen[bytes], backend: str) -> None:
        """Until it is built; packing goes on in the background. Raises `SystemExit` if that fails."""
        begun = time.monotonic()
        while process.poll() is None and not building.is_built(backend):
            if self._left() <= 0:
                print(f"there was no time to finish the build for {backend}", flush=True)
                return
            time.sleep(0.2)
        if process.returncode:
            raise SystemExit(f"{building.log(backend).read_text('utf-8', 'replace')[-3000:]}\nThe build failed.")
        print(f"built for {backend} (waited {time.monotonic() - begun:.0f} s)", flush=True)

    def _finish_packing(self) -> None:
        """Of the libraries that were built; what isn't built by now goes on in the next call."""
        for process in self._background:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(self._left(), 0) + _RESERVE / 2)

    # ------------------------------------------------------------ steps

    def _next(self) -> Entry | None:
        """The first there is time for; while models are being made, the first one that doesn't need them."""
        while possible := self._possible():
            self._make_models()
            if self._models and self._models.is_over():
                self._finish_models(0)
            ready = (entry for entry in possible if self._has_models or not entry.needs_models)
            if found := next(ready, None):
                return found
            self._finish_models(self._left())
        return None

    def _carry_out(self, entry: Entry) -> None:
        """Run a step and write what came of it."""
        self._tried.add(entry.name)
        own_limit = entry.limit * (_SMALL_PATIENCE if self.small else 1)
        limit = min(own_limit, self._left())
        self._keep(entry, self._start(entry).finish(limit), is_cut_short=limit < own_limit)

    def _start(self, entry: Entry) -> Running:
        is_models = entry is _MODELS
        backend = "cpu" if is_models and self.backend != building.INSTALLED else self.backend
        # What is being built, or measured, goes first.
        first = ["nice", "-n", "10"] if is_models and shutil.which("nice") else []
        command = [*first, sys.executable, "-m", _STEPS, entry.name, "--folder", str(self._folder)]
        environment = {**building.environment(backend), "SLIPSTREAM_HOME": str(WORK / "home"), **entry.environment}
        return Running(entry.name, [*command, *["--small"] * self.small], environment)

    def _keep(self, entry: Entry, result: StepResult, *, is_cut_short: bool) -> None:
        """Write what came of a step; ``is_cut_short``: if it had no time, it is because the call has none."""
        name = entry.name
        known = self._results.steps.get(name)
        if result.state != "done":
            result.attempts = known.attempts if known and known.state != "interrupted" else 0
            if result.state == "too slow" and is_cut_short:
                result.state = "interrupted"
            else:
                result.attempts += 1
        if name == "devices" and result.state == "done":
            if not result.figures["devices"] and not self.small:
                raise SystemExit("llama.cpp finds no GPU here, so there is nothing to measure.")
            self._compare_device(_device(result.figures))
        if known and result.state != "done":
            if known.state == "done":
                print(f"{name}: {result.state}; what was measured before stays", flush=True)
                return
            result.figures = known.figures | result.figures
        self._results.steps[name] = result
        print(f"{result.state:12}{name:34}{result.seconds:7.1f} s", flush=True)
        self._write()

    def _compare_device(self, device: str) -> None:
        """Results of another GPU don't belong here."""
        before = self._results.machine.get("device", device)
        if before != device:
            print(f"the results so far are of {before}: they are left out", flush=True)
            self._results.steps.clear()
        self._results.machine["device"] = device

    def _write(self) -> None:
        copies = [self.out / RESULTS] if self.out else []
        self._results.write(self._file, *copies)

    def _summary(self) -> int:
        steps = self._results.steps
        left = [entry.name for entry in entries(self.backend) if not _is_settled(steps.get(entry.name))]
        print(f"\n{sum(step.state == 'done' for step in steps.values())} steps done; results in {self._file}")
        for name, step in steps.items():
            if step.state != "done":
                print(f"{name}: {step.state}: {step.error.strip().splitlines()[-1]}")
        if left:
            print(f"left for the next call: {', '.join(left)}")
        return INCOMPLETE if left else 0


def _is_settled(known: StepResult | None) -> bool:
    return known is not None and (known.state == "done" or known.attempts >= MOST_ATTEMPTS)


def _merged(path: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                figures |= json.loads(line)
            except ValueError:
                break  # its process was ended while it wrote
    return figures


def _device(figures: dict[str, Any]) -> str:
    names = [device["description"] for device in figures["devices"]]
    return ", ".join(names) if names else f"no GPU ({figures['processor']})"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything it started, which may be in a session of its own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _commit() -> str:
    """Of the code that measures: from the pack, or from git."""
    if (PACK / MANIFEST).is_file():
        return str(json.loads((PACK / MANIFEST).read_text(encoding="utf-8"))["commit"])
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
