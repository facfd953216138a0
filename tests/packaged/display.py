"""A display without a screen on this machine; the clean system sees its socket and nothing else of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

from tests.packaged.clean_system import CleanSystem

_SIZE = "1100x720x24"  # as large as the first window


class Display:
    """Xvfb from ``with`` to its end, with a keyboard (xdotool) and a camera (ImageMagick).

    Attributes:
        name: What ``DISPLAY`` is set to.
    """

    def __enter__(self) -> Display:
        read, write = os.pipe()
        # No access control: whoever is on this machine may look at a test.
        options = ["-screen", "0", _SIZE, "-nolisten", "tcp", "-ac", "-displayfd", str(write)]
        command = ["setpriv", "--pdeathsig", "TERM", "Xvfb", *options]  # it does not outlive the tests
        self._server = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
        os.close(write)
        with os.fdopen(read) as answer:
            number = answer.readline().strip()
        assert number, "Xvfb did not start"
        self.name = f":{number}"
        self._socket = Path(f"/tmp/.X11-unix/X{number}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.terminate()
        self._server.wait(60)

    def show_in(self, system: CleanSystem) -> None:
        """Let the programs of ``system`` draw here."""
        system.mount(self._socket, str(self._socket))

    # ------------------------------------------------------------ windows and keys

    def windows(self, title: str) -> list[str]:
        """Numbers of the windows that can be seen and whose title holds ``title``."""
        found = self._xdotool("search", "--onlyvisible", "--name", title, check=False)
        return found.split()

    def type(self, window: str, text: str) -> None:
        """Type into a window, then press Enter."""
        self._xdotool("windowfocus", "--sync", window, "type", "--delay", "20", text)
        self._xdotool("key", "Return")

    def press(self, window: str, keys: str) -> None:
        """Press keys together, as in ``ctrl+q``."""
        self._xdotool("windowfocus", "--sync", window, "key", keys)

    def _xdotool(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["xdotool", *arguments],
            env={**os.environ, "DISPLAY": self.name},
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check=check,
        )
        return done.stdout

    # ------------------------------------------------------------ pictures

    def photograph(self, file: Path) -> int:
        """Keep what is on the screen as a PNG; returns how many colors it has."""
        subprocess.run(["import", "-display", self.name, "-window", "root", file], timeout=60, check=True)
        counted = subprocess.run(
            ["identify", "-format", "%k", file], stdout=subprocess.PIPE, text=True, timeout=60, check=True
        )
        return int(counted.stdout)
