"""Processes of this program: how they are started, both from source and in a package, and in what environment."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO, TextIO

from app.paths import HOME_VARIABLE

FOLDER = Path(__file__).resolve().parents[1]
"""The working folder of our processes: ``app`` is found there, and on Windows other programs' libraries aren't."""
RESET_VARIABLE = "PYINSTALLER_RESET_ENVIRONMENT"
"""When set to 1, tells a frozen program that it is a separate process, not part of the one that started it."""
CLOSE_WHEN_READY = "--close-when-ready"
"""An option for ``--window``: the window closes itself when its engine has loaded a pair or failed to."""
_BUNDLES_OWN = {
    "linux": ["LD_LIBRARY_PATH"],
    "darwin": ["DYLD_LIBRARY_PATH", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"],
    "win32": ["QT_PLUGIN_PATH", "QML2_IMPORT_PATH"],
}
"""What PyInstaller sets, by system; on Linux our packages leave out the part about Qt."""
_ENGINE_VARIABLES = {"GOMP_SPINCOUNT": "3000", "GGML_NO_BACKTRACE": "1"}
"""What llama.cpp's libraries read when they are loaded.

Threads of libgomp spin while they wait for each other; on a machine that does something else as well they then use up
the very time slices they wait for. On 2 cores, beside one busy process, a pass takes twice as long as on an idle
machine with 3,000 spins, and 14 times as long with 100,000. Idle, fewer cost more: 1,000 take 2 % longer than that.
And ggml forks debuggers when it aborts, which would outlive the engine."""
_CONSOLE_PROGRAM = "slipstream-cli.exe"
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?)S?$|_PROXY$", re.IGNORECASE)


def is_frozen() -> bool:
    """Whether this is the packaged app."""
    return bool(getattr(sys, "frozen", False))


def own_command(*arguments: str) -> list[str]:
    """Program and arguments of another process of this program. On Windows, the variant with standard streams."""
    if not is_frozen():
        return [sys.executable, "-m", "app", *arguments]
    console = Path(sys.executable).with_name(_CONSOLE_PROGRAM)
    return [str(console) if console.is_file() else sys.executable, *arguments]


def windows_program(*parts: str, environment: Mapping[str, str] = os.environ) -> str:
    """The path of a program that comes with Windows, ``parts`` below its folder.

    Given only a name, Windows would first look next to our program and in the working folder, where anybody may have
    put another one.
    """
    folder = environment.get("SystemRoot", "")
    return str(PureWindowsPath(folder if PureWindowsPath(folder).is_absolute() else "C:\\Windows", *parts))


def prepare_engine(environment: MutableMapping[str, str]) -> None:
    """Set the environment for llama.cpp's libraries before they are loaded; what the user has set stays."""
    for name, value in _ENGINE_VARIABLES.items():
        environment.setdefault(name, value)


def restore_environment(environment: MutableMapping[str, str], platform: str = sys.platform) -> None:
    """Remove from ``environment`` what PyInstaller set for this process, or restore what the user had.

    This process has found its libraries, and Qt its plugins through PySide6. A browser or a file manager that we start
    would find ours, too, and crash.
    """
    for name in _BUNDLES_OWN.get(platform, []):
        environment.pop(name, None)
        users = environment.pop(f"{name}_ORIG", None)
        if users is not None:
            environment[name] = users


def is_secret(name: str) -> bool:
    """Whether a variable of this name may contain a secret, or a proxy, which may contain one."""
    return _SECRET.search(name) is not None


def child_environment(own: Mapping[str, str], **changes: str) -> dict[str, str]:
    """``own`` without secrets, with ``changes``, for another process of this program with another working folder."""
    harmless = {name: value for name, value in own.items() if not is_secret(name)}
    if home := harmless.get(HOME_VARIABLE, "").strip():
        harmless[HOME_VARIABLE] = str(Path(home).expanduser().absolute())
    return {**harmless, RESET_VARIABLE: "1", **changes}


def engine_command(*options: str) -> list[str]:
    """Program and arguments of the engine process, both from source and in a package."""
    return own_command("--role=engine", *options)


def remote_command() -> list[str]:
    """Program and arguments of the process for models on servers."""
    return own_command("--role=remote")


def start_process(
    command: Sequence[str], changes: Mapping[str, str] | None = None, *, errors: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start a process of this program, with pipes and without a window, in its own session, so Ctrl+C only reaches us.

    ``changes`` are variables to set, ``errors`` is where its standard error goes. Raises `OSError`.
    """
    return subprocess.Popen(command, **process_options(changes, errors=errors))


def process_options(changes: Mapping[str, str] | None = None, *, errors: int = subprocess.PIPE) -> dict[str, Any]:
    """What `start_process` starts a process with, for others that start one (asyncio)."""
    return {
        "cwd": FOLDER,
        "env": child_environment(os.environ, **(changes or {})),
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": errors,
        "start_new_session": True,
        "creationflags": getattr(subprocess, "CREATE_NO_WINDOW", 0),
    }


def claim_stdout() -> BinaryIO:
    """In a child process: keep the real stdout for messages; whatever a library prints goes to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(own, os.O_BINARY)
        msvcrt.setmode(0, os.O_BINARY)
    return os.fdopen(own, "wb")  # buffered, because a raw file may write less than it was given


def claim_streams(*, discards: bool = False) -> tuple[BinaryIO, BinaryIO]:
    """In a child process: the pipes to its parent. What a library prints goes to stderr, or is discarded."""
    own_in, own_out = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere if discards else 2, 1)
    os.close(nowhere)
    if sys.platform == "win32":
        import msvcrt

        for descriptor in (own_in, own_out):
            msvcrt.setmode(descriptor, os.O_BINARY)
    return os.fdopen(own_in, "rb"), os.fdopen(own_out, "wb")


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether Qt will find a display; without one it ends the process."""
    if not platform.startswith(("linux", "freebsd", "openbsd", "netbsd")):
        return True
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def write_line(stream: TextIO | None, text: str) -> None:
    """For ``sys.stdout`` and ``sys.stderr``, which don't exist in a Windows program that only has a window."""
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.write(f"{text}\n")
            stream.flush()
