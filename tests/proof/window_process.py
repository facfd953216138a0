"""A window in a process of its own, seen from outside: `tests.proof.window` says what happens in it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tests.support.command_line import ROOT, python_path

WAIT_SECONDS = 180
_NOWHERE = "http://127.0.0.1:9"
"""Nothing in a window reaches another computer."""
_ENDING_SECONDS = 60
"""What is about to end may take this long on a busy machine."""


class WindowProcess:
    """One start of the app.

    Attributes:
        acknowledged: The words that the window said are saved.
        typed: All words that were typed.
        told: What it said, by kind; the newest last.
    """

    def __init__(self, home: Path, behavior: str, **environment: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.proof.window", behavior],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": python_path(),
                "SLIPSTREAM_HOME": str(home),
                "QT_QPA_PLATFORM": "offscreen",
                "QT_NO_GLIB": "1",  # with GLib, Qt doesn't tell when it begins to handle events
                **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _NOWHERE),
                "NO_PROXY": "",
                **environment,
            },
        )
        self.acknowledged: set[str] = set()
        self.typed: set[str] = set()
        self.told: dict[str, list[Any]] = {}
        self.counts: Counter[str] = Counter()
        self.errors = ""
        self._changed = threading.Condition()
        self._is_over = False
        self._threads = [threading.Thread(target=work) for work in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    # ------------------------------------------------------------ what it says

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of it
            with self._changed:
                self._take(*json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self, kind: str, value: Any) -> None:
        self.counts[kind] += 1
        match kind:
            case "typed":
                self.typed.add(value)
            case "acknowledged":
                self.acknowledged.update(value)
            case "steps forgotten":
                self.told.pop("longest step", None)
                self.told.pop("long step", None)
            case _:
                self.told[kind] = [value] if kind == "longest step" else [*self.told.get(kind, [])[-50:], value]

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> bool:
        """Whether it came true before the process ended; an `AssertionError` if neither happens."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition() or self._is_over, seconds), f"{what}: {self._state()}"
            return condition()

    def wait_for(self, kind: str, more_than: int = 0) -> Any:
        """What it said of this kind, for the ``more_than`` + first time."""
        there = self.wait_until(lambda: self.counts[kind] > more_than, kind)
        assert there, f"the window ended before it said “{kind}”: {self._state()}"
        return self.told[kind][-1]

    def slow(self) -> str:
        """The longest step of its event loop, and where those of more than 100 ms were most often."""
        rested = self.counts["rested"]
        self.say("rest")  # a step is told when it is over
        self.wait_for("rested", rested)
        step = self.told.get("longest step", [[0, 0]])[-1]
        places = Counter(" < ".join(reversed(stack[-4:])) for stack in self.told.get("long step", ()))
        where = "".join(f"; {count} × in {place}" for place, count in places.most_common(3))
        return f"longest step {step[0]} ms ({step[1]} ms on the processor){where}"

    def _state(self) -> str:
        logs = [self.home / "logs" / name for name in ("slipstream.log", "slipstream-crash.txt")]
        lines = [line for log in logs if log.exists() for line in log.read_text(encoding="utf-8").splitlines()[-30:]]
        last = {kind: told[-1] for kind, told in self.told.items()}
        return f"{last} {dict(self.counts)} exit {self.process.poll()} {self.errors}\n" + "\n".join(lines)

    def say(self, command: str, value: Any = None) -> None:
        """Have the window do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, value]) + "\n")
        self.process.stdin.flush()

    # ------------------------------------------------------------ its processes

    def tree(self) -> dict[str, list[psutil.Process]]:
        """The processes of the app by role, the window's included."""
        found: dict[str, list[psutil.Process]] = {}
        try:
            window = psutil.Process(self.process.pid)
            for process in (window, *window.children(recursive=True)):
                try:
                    command = process.cmdline()
                except psutil.Error:
                    continue
                roles = [part.removeprefix("--role=") for part in command if part.startswith("--role=")]
                found.setdefault(roles[0] if roles else "window", []).append(process)
        except psutil.Error:
            return {}
        return found

    def kill(self) -> list[str]:
        """Kill the window. Returns the commands of those of its processes that outlive it."""
        others = [one for processes in self.tree().values() for one in processes if one.pid != self.process.pid]
        self.process.kill()
        self._reap()
        return still_alive(others)

    def end(self) -> tuple[int, list[str]]:
        """Close the window as the system does. Returns the exit status, and what outlives it."""
        others = [one for processes in self.tree().values() for one in processes if one.pid != self.process.pid]
        self.process.send_signal(signal.SIGTERM)
        self._reap()
        return self.process.returncode, still_alive(others)

    def _reap(self) -> None:
        try:
            self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # so that it says where it is
            self.process.wait(WAIT_SECONDS)
            raise AssertionError(f"the window doesn't end: {self._state()}") from None
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join(_ENDING_SECONDS)
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def still_alive(processes: list[psutil.Process]) -> list[str]:
    """The commands of those that don't end by themselves in a minute."""
    deadline = time.monotonic() + _ENDING_SECONDS
    while alive := [one for one in processes if _is_alive(one)]:
        if time.monotonic() > deadline:
            return [" ".join(one.cmdline()) for one in alive]
        time.sleep(0.02)
    return []


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
