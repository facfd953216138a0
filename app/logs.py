"""The log file, and what is left of a crash for the next start.

Log with ``logging.getLogger(__name__)``. The content of chats is never logged.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import platform
import re
import sys
import threading
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import IO

from app import __version__
from app.errors import KnownError
from app.paths import log_dir

log = logging.getLogger(__name__)

MAX_BYTES = 1_000_000
BACKUP_FILES = 3
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def redact(text: str) -> str:
    """``text`` with the user's home folder, which holds their name, written as ``~``."""
    home = Path.home()
    if len(home.parts) < 2:
        return text
    for spelling in {str(home), home.as_posix(), str(home).replace("\\", "\\\\")}:
        flags = re.IGNORECASE if sys.platform == "win32" else 0
        text = re.sub(re.escape(spelling) + r"(?!\w)", "~", text, flags=flags)
    return text


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class Logs:
    """The log of this process, from `start` to `close`.

    Attributes:
        file: Where it is written.
        previous_crash: What the last run left when it crashed, home folder redacted; ``None`` if it ended well.
    """

    def __init__(self) -> None:
        folder = log_dir()
        self.file = folder / "slipstream.log"
        self._crash_file = folder / "slipstream-crash.txt"
        self.previous_crash = self._read_crash()
        if self.previous_crash is not None:
            # The file itself is about to be used for this run.
            (folder / "slipstream-previous-crash.txt").write_text(f"{self.previous_crash}\n", encoding="utf-8")
        self._handler = RotatingFileHandler(self.file, maxBytes=MAX_BYTES, backupCount=BACKUP_FILES, encoding="utf-8")
        self._handler.setFormatter(_Formatter(_FORMAT))
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.INFO)
        root.addHandler(self._handler)
        self._crash: IO[str] = self._crash_file.open("w", encoding="utf-8", errors="backslashreplace")
        self._had_faulthandler = faulthandler.is_enabled()
        faulthandler.enable(self._crash)
        self._hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
        sys.excepthook = self._on_uncaught
        threading.excepthook = self._on_uncaught_in_thread
        sys.unraisablehook = self._on_unraisable
        log.info("Slipstream %s, Python %s, %s", __version__, platform.python_version(), platform.platform())

    def close(self) -> None:
        """The normal end of the process; without it, the next start reports what was saved about a crash."""
        sys.excepthook, threading.excepthook, sys.unraisablehook = self._hooks
        faulthandler.disable()
        if self._had_faulthandler:
            faulthandler.enable()
        self._crash.close()
        with contextlib.suppress(OSError):
            self._crash_file.unlink(missing_ok=True)
        root = logging.getLogger()
        root.removeHandler(self._handler)
        root.setLevel(self._level)
        self._handler.close()

    def _read_crash(self) -> str | None:
        try:
            return redact(self._crash_file.read_text(encoding="utf-8", errors="replace")).strip() or None
        except OSError:
            return None

    def _on_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        elif isinstance(error, KnownError):
            log.error("%s", error)
        else:
            log.critical("an unexpected error interrupted the operation", exc_info=(kind, error, trace))
            self._keep(kind, error, trace)

    def _on_uncaught_in_thread(self, args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            self._on_uncaught(args.exc_type, args.exc_value, args.exc_traceback)

    def _on_unraisable(self, args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            info = (args.exc_type, args.exc_value, args.exc_traceback)
            log.error("%s", args.err_msg or "an error that could not be raised", exc_info=info)

    def _keep(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # If there was no normal end after it, this was the crash.
        with contextlib.suppress(OSError, ValueError):
            self._crash.write("".join(traceback.format_exception(kind, error, trace)))
            self._crash.flush()


def start() -> Logs:
    """Log this process to the log folder and save its crashes.

    Call it once, when it is certain that no other process does. Raises `KnownError` if the folder can't be written.
    """
    try:
        return Logs()
    except OSError as error:
        raise KnownError(
            f"Slipstream can't write its log in {log_dir()}: {error.strerror or error}. Check the folder, then "
            "start Slipstream again."
        ) from error
