"""Runs the steps on the machine with the GPU, within one call's time; the next call goes on where this one stopped.

While llama.cpp is built for the GPU, the models are made with a build for the processor. Each step has a process of its
own and a time limit: one that crashes or hangs costs only itself, and what it had measured stays.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.gpu_report import building
from tests.benchmarks.gpu_report.packing import MANIFEST, PACK, RESULTS, ROOT, WORK
from tests.benchmarks.gpu_report.results import Results, StepResult, now
from tests.benchmarks.gpu_report.timetable import Entry, entries

MOST_ATTEMPTS = 2
INCOMPLETE = 3
"""The exit status if another call is needed."""
_STEPS = "tests.benchmarks.gpu_report.steps"
_RESERVE = 8.0
"""Seconds at the end of a call, to write what there is."""
_ERROR_CHARACTERS = 1500
_SMALL_PATIENCE = 5
"""Limits are this many times as long where the report is only tried out, perhaps on a device made of software."""
_MODELS = Entry("models", 3600, 5)


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
        self._has_models = False
        self._background: list[subprocess.Popen[bytes]] = []
        """Builds, which also pack what they have built."""

    def run(self) -> int:
        """Everything there is time for; returns 0 if no step is left, otherwise `INCOMPLETE`."""
        WORK.mkdir(parents=True, exist_ok=True)
        self._results = Results.read(self._file)
        self._take_over(Results.read(PACK / RESULTS))
        try:
            steps = entries(self.backend)
            if self._prepare(any(entry.needs_models for entry in steps if self._is_wanted(entry))):
                for entry in steps:
                    if self._is_wanted(entry) and self._left() >= entry.least:
                        self._make_models(entry.needs_models)
                        self._carry_out(entry)
            self._finish_packing()
        finally:
            for process in self._background:
                _kill(process)
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
        if self.only:
            return entry.name in self.only
        known = self._results.steps.get(entry.name)
        # The devices are cheap to ask, and tell whether the results so far are of this machine.
        return entry.name == "devices" or not _is_settled(known)

    def _left(self) -> float:
        return self._end - time.monotonic()

    # ------------------------------------------------------------ libraries and models

    def _prepare(self, needs_models: bool) -> bool:
        """Whether libraries and models are there; if not, there was not enough time."""
        if self.backend == building.INSTALLED:
            return True
        building.unpack()
        missing = [backend for backend in dict.fromkeys((self.backend, "cpu")) if not building.is_built(backend)]
        builds = {backend: building.start(backend, self.out) for backend in missing}
        self._background += builds.values()
        if "cpu" in builds:
            self._wait_for(builds["cpu"], "cpu")
        if building.is_built("cpu"):
            self._make_models(needs_models)
        if self.backend in builds:
            self._wait_for(builds[self.backend], self.backend)
        return building.is_built(self.backend)

    def _make_models(self, are_needed: bool) -> None:
        """Once a call, because it may be the first one on this machine."""
        if are_needed and not self._has_models:
            self._carry_out(_MODELS)
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

    def _carry_out(self, entry: Entry) -> None:
        """Run a step and write what came of it."""
        figures = WORK / "figures.jsonl"
        figures.unlink(missing_ok=True)
        known = self._results.steps.get(entry.name)
        own_limit = entry.limit * (_SMALL_PATIENCE if self.small else 1)
        limit = min(own_limit, self._left())
        begun = time.monotonic()
        try:
            code, said = self._process(entry, figures, limit)
        except subprocess.TimeoutExpired:
            code, said = None, f"ended after {limit:.0f} s"
        result = StepResult("done", _merged(figures), time.monotonic() - begun, date=now())
        attempts = known.attempts if known and known.state != "interrupted" else 0
        if code is None and limit < own_limit:
            result.state, result.attempts, result.error = "interrupted", attempts, said
        elif code != 0:
            result.state, result.attempts, result.error = "too slow" if code is None else "failed", attempts + 1, said
        self._keep(entry.name, result)
        print(f"{result.state:12}{entry.name:34}{result.seconds:7.1f} s", flush=True)
        self._write()

    def _process(self, entry: Entry, figures: Path, limit: float) -> tuple[int, str]:
        """Exit status, and the end of what it said. Raises `TimeoutExpired`."""
        is_first = entry is _MODELS
        backend = "cpu" if is_first and self.backend != building.INSTALLED else self.backend
        command = [sys.executable, "-m", _STEPS, entry.name, "--folder", str(self._folder), "--figures", str(figures)]
        command += ["--small"] * self.small
        if is_first and shutil.which("nice"):
            command = ["nice", "-n", "10", *command]  # what is being built is waited for
        home = {"SLIPSTREAM_HOME": str(WORK / "home")}
        with (WORK / "step.log").open("w+b") as said:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**building.environment(backend), **home, **entry.environment},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            finally:
                _kill(process)
            said.seek(0)
            end = said.read().decode("utf-8", "replace")[-_ERROR_CHARACTERS:]
            return code, f"{end}\nended by signal {-code}" if code < 0 else end * (code > 0)

    def _keep(self, name: str, result: StepResult) -> None:
        known = self._results.steps.get(name)
        if name == "devices" and result.state == "done":
            self._compare_device(_device(result.figures))
        if known and result.state != "done":
            if known.state == "done":
                return  # it was run again, and that failed
            result.figures = known.figures | result.figures
        self._results.steps[name] = result

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
