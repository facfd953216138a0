"""Other processes of this same program, started to see whether they work."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from app import paths, program
from app.errors import KnownError

_OF_LOCALE = re.compile(r'^Detected locale ".*?^for more information\.$', re.MULTILINE | re.DOTALL)


def start(home: Path, *arguments: str, **changes: str) -> subprocess.Popen[bytes]:
    """A process with a home of its own, all streams piped. ``changes`` are variables of its environment."""
    return program.start_process(program.own_command(*arguments), {paths.HOME_VARIABLE: str(home), **changes})


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started; nothing if it has ended, when its number may be another's."""
    if process.poll() is not None:
        return
    try:
        tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()


def failure(what: str, status: int, errors: str) -> KnownError:
    """Why a process came to a bad end: a sentence about how, and the most telling line of what it wrote."""
    return told(f"{what} ended with {_status_text(status)}.", errors)


def told(sentence: str, errors: str) -> KnownError:
    """``sentence`` with the most telling line of ``errors``, all of which is in the error's notes."""
    # In a locale without UTF-8 Qt explains itself at length before anything else happens.
    lines = [line.strip() for line in _OF_LOCALE.sub("", errors).splitlines() if line.strip()]
    # A traceback says what happened at its end, everything else first.
    line = (lines[-1] if lines[0].startswith("Traceback") else lines[0]) if lines else ""
    error = KnownError(f"{sentence} {line}".strip())
    error.add_note(errors)
    return error


def _status_text(status: int) -> str:
    if status >= 0:
        return f"exit status {status if sys.platform != 'win32' else hex(status)}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
