"""The packaged app as one user of a clean system has it: its commands, its window, its chats and its log."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import psutil

from app.protocol.events import Hello
from app.protocol.frames import FrameReader, decode_event
from app.system import HOME_VARIABLE
from tests.packaged.clean_system import COMMAND_LIMIT_S, CleanSystem, User, inside
from tests.packaged.display import Display
from tests.packaged.waiting import wait_for

PROGRAM = "/usr/bin/slipstream"
TITLE = "^Slipstream$"
_LOG = ".local/state/Slipstream/log/slipstream.log"
T = TypeVar("T")


class PackagedApp:
    """What ``user`` starts with ``program``, by default the one the package installs.

    ``env`` is on top of what a login sets. What windows say on their standard error goes to ``said``.
    """

    def __init__(
        self,
        system: CleanSystem,
        user: User,
        said: Path,
        *,
        program: str = PROGRAM,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.system = system
        self.user = user
        self.said = said
        self.program = program
        self.env = dict(env or {})

    def run(
        self, *arguments: str, check: bool = True, seconds: float = COMMAND_LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the app to its end, without a network."""
        return self.system.run(self.program, *arguments, user=self.user, env=self.env, check=check, seconds=seconds)

    def hello(self) -> Hello:
        """What the engine's process says first."""
        said = f"{self.user.home}/said"
        self.system.run("sh", "-c", f'exec "$0" --role=engine >{said}', self.program, user=self.user, env=self.env)
        body = next(iter(FrameReader().feed(self.system.path(said).read_bytes())))
        hello = decode_event(body)
        assert isinstance(hello, Hello)
        return hello

    def open(self, display: Display | None, *arguments: str) -> OpenApp:
        """Open the window on ``display``, or where none is needed ("offscreen")."""
        where = {"DISPLAY": display.name} if display else {"QT_QPA_PLATFORM": "offscreen"}
        log_start = len(self.log())
        with self.said.open("a") as said:
            process = self.system.start(
                [self.program, *arguments], user=self.user, env=where | self.env, stdout=said, stderr=said
            )
        return OpenApp(self, process, display, log_start)

    def log(self) -> str:
        """All that the window has logged so far."""
        home = self.env.get(HOME_VARIABLE)
        return self._read(f"{home}/logs/slipstream.log" if home else f"{self.user.home}/{_LOG}")

    def answers(self) -> list[str]:
        """The complete answers that are stored, oldest first."""
        return self._stored("SELECT text FROM messages WHERE role = 'assistant' AND status = 'complete' ORDER BY seq")

    def questions(self) -> list[str]:
        """The questions that are stored, oldest first."""
        return self._stored("SELECT text FROM messages WHERE role = 'user' ORDER BY seq")

    def titles(self) -> list[str]:
        """The titles of the stored chats."""
        return self._stored("SELECT title FROM chats ORDER BY created_at")

    def processes(self) -> list[psutil.Process]:
        """What the user runs, engine and window."""
        return self.system.processes(self.user)

    def wait_until_gone(self) -> None:
        """Wait until none of the user's processes is left."""
        wait_for(lambda: not self.processes(), "the app's processes to end")

    def _read(self, file: str) -> str:
        path = self.system.path(file)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _stored(self, query: str) -> list[str]:
        """From a copy: the app lets nobody else into its file."""
        folder = self.system.path(self.env.get(HOME_VARIABLE) or f"{self.user.home}/.local/share/Slipstream")
        with tempfile.TemporaryDirectory() as copies:
            for file in folder.glob("chats.sqlite*"):
                with contextlib.suppress(FileNotFoundError):  # the app has just closed it
                    shutil.copy(file, copies)
            with contextlib.closing(sqlite3.connect(Path(copies, "chats.sqlite"))) as connection:
                try:
                    return [row[0] for row in connection.execute(query)]
                except sqlite3.DatabaseError:
                    return []  # copied amid a write, or there are no tables yet


class OpenApp:
    """One run of the app with a window."""

    def __init__(
        self, app: PackagedApp, process: subprocess.Popen[str], display: Display | None, log_start: int
    ) -> None:
        self._app = app
        self._process = process
        self._display = display
        self._log_start = log_start

    def wait_until_ready(self, times: int = 1) -> None:
        """Wait until the engine has loaded the pair for the ``times``-th time."""
        self.wait_for_log("pair loaded", times)

    def wait_for_log(self, text: str, times: int = 1) -> None:
        """Wait until this run has logged ``text`` so many times."""

        self._wait_for(lambda: self._app.log()[self._log_start :].count(text) >= times, f"“{text}” in the log")

    def window(self, title: str = TITLE) -> str:
        """The number on the display of the window with that title; waits for it."""
        return self._wait_for(lambda: next(iter(self._on_display().windows(title)), None), f"the window “{title}”")

    def ask(self, question: str) -> str:
        """Type a question and press Enter; the answer when it is complete and stored."""
        before = len(self._app.answers())
        self._on_display().type(self.window(), question)
        self._wait_for(lambda: question in self._app.questions(), "the question to be stored")
        return self._wait_for(lambda: self._app.answers()[before:], "the answer to be stored")[0]

    def main_process(self) -> psutil.Process:
        """The window's process."""
        return inside(self._process)

    def engine(self) -> psutil.Process:
        """The engine's process; waits for it."""
        return self._wait_for(self._find_engine, "the engine's process")

    def quit(self) -> int:
        """Close the window as its user does; the exit status."""
        self._on_display().press(self.window(), "ctrl+q")
        return self._process.wait(60)

    def terminate(self) -> int:
        """Ask the process to end, as the system does at shutdown; the exit status."""
        self.main_process().send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def kill(self) -> None:
        """End the window's process without a chance to do anything."""
        self.main_process().kill()
        self._process.wait(60)

    def _wait_for(self, look: Callable[[], T | None], what: str) -> T:
        def look_while_it_runs() -> T | None:
            status = self._process.poll()
            assert status is None, f"the window ended with exit status {status}:\n{self._app.said.read_text()}"
            return look()

        try:
            return wait_for(look_while_it_runs, what)
        except AssertionError:
            if self._display:
                self._display.photograph(self._app.said.with_suffix(".png"))
            raise

    def _find_engine(self) -> psutil.Process | None:
        for process in self._app.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "--role=engine" in process.cmdline():
                    return process
        return None

    def _on_display(self) -> Display:
        assert self._display is not None, "this window is offscreen"
        return self._display


def assert_it_runs_on_the_cpu(app: PackagedApp) -> None:
    """It finds no GPU, says so, and has nothing to complain about."""
    assert app.hello().devices == []
    tested = app.run("selftest")
    assert " on the CPU;" in tested.stdout and tested.stderr == ""
    assert app.run("generate", "--prompt", "What is a draft model?", "--max-tokens", "8").stdout
