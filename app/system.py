"""Where files are, how our processes start, the log, and the two kinds of failure.

``SLIPSTREAM_HOME`` puts everything in one folder (for portable use and tests); by default, each system's usual folders
are used.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import platform
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path, PureWindowsPath
from types import TracebackType
from typing import IO, Any, BinaryIO, TextIO, TypeVar

import msgspec
import platformdirs

from app import __version__


class KnownError(Exception):
    """Something outside Slipstream went wrong: a missing file, a full disk, a pair that doesn't fit.

    The message is shown to the user: one or two plain sentences on what happened, what it means and what to do. Any
    other exception is a bug and keeps its traceback.
    """


class Canceled(Exception):  # noqa: N818 - not an error
    """The user asked to stop. Callers end quietly and keep what has been done so far."""


NAME = "Slipstream"
HOME_VARIABLE = "SLIPSTREAM_HOME"


def data_dir() -> Path:
    """For chats and their backups. Like all folders here, created if missing; raises `KnownError` if that fails."""
    return _made(_home() or platformdirs.user_data_path(NAME, appauthor=False))


def config_dir() -> Path:
    """For the settings."""
    return _made(_home() or platformdirs.user_config_path(NAME, appauthor=False))


def cache_dir() -> Path:
    """For data that can be measured or fetched again."""
    home = _home()
    return _made(home / "cache" if home else platformdirs.user_cache_path(NAME, appauthor=False))


def chat_caches_dir() -> Path:
    """For copies of KV caches, which contain the text of chats."""
    return _made(cache_dir() / "chats")


def models_dir() -> Path:
    """The default folder for downloaded models. It isn't created here."""
    home = _home()
    return home / "models" if home else platformdirs.user_data_path(NAME, appauthor=False) / "models"


def log_dir() -> Path:
    home = _home()
    return _made(home / "logs" if home else platformdirs.user_log_path(NAME, appauthor=False))


def chat_file() -> Path:
    return data_dir() / "chats.sqlite"


def settings_file() -> Path:
    return config_dir() / "settings.json"


def resource(*parts: str) -> Path:
    """A file in ``resources/``, which is next to ``app`` in the source, inside it in a wheel, or in PyInstaller's
    bundle."""
    return _resources().joinpath(*parts)


def _resources() -> Path:
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle is not None:
        return Path(bundle) / "resources"
    package = Path(__file__).resolve().parent
    installed = package / "resources"
    return installed if installed.is_dir() else package.parent / "resources"


def licenses() -> Path:
    """Slipstream's license, or in a package the index of all licenses inside."""
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle is not None:
        return Path(bundle) / "licences" / "README.txt"
    beside = Path(__file__).resolve().parents[1]
    installed = beside.glob("slipstream-*.dist-info/licenses/LICENSE")
    return next(installed, beside / "LICENSE")


def _home() -> Path | None:
    value = os.environ.get(HOME_VARIABLE, "").strip()
    return Path(value).expanduser().absolute() if value else None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "it can't be written to"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise KnownError(
            f"Slipstream can't store its files in {folder}: {reason}. Make the folder writable, or set "
            f"{HOME_VARIABLE} to a different one."
        )
    return folder


# Decoding JSON into our classes goes through here, because msgspec 0.22 isn't thread-safe at first: it marks a class as
# known before it has read all of its annotations, and another thread that decodes the class at that moment crashes the
# process. So one thread prepares at a time.

T = TypeVar("T")

Decoder = msgspec.json.Decoder
_decoders: dict[Any, Decoder[Any]] = {}
_preparing = threading.Lock()


def decoder(kind: Any, *, strict: bool = True) -> Decoder[Any]:
    """A decoder for ``kind``, any type that msgspec knows; thread-safe. Without ``strict``, numbers may be strings."""
    with _preparing:
        if (kind, strict) not in _decoders:
            _decoders[kind, strict] = Decoder(kind, strict=strict)
        return _decoders[kind, strict]


def decode(data: bytes | str | msgspec.Raw, kind: type[T], *, strict: bool = True) -> T:
    """JSON as a ``kind``. Raises `msgspec.DecodeError`, or `msgspec.ValidationError` for the wrong type."""
    found: T = decoder(kind, strict=strict).decode(data)
    return found


def convert(value: Any, kind: type[T], **options: Any) -> T:
    """A value of JSON's types as a ``kind``; ``options`` are `msgspec.convert`'s. Raises `msgspec.ValidationError`."""
    decoder(kind)
    converted: T = msgspec.convert(value, kind, **options)
    return converted


# How our processes are started, from source and in a package, and with what environment.

FOLDER = Path(__file__).resolve().parents[1]
"""Our processes' working folder: it contains ``app``, and no libraries of other programs for Windows to load."""
RESET_VARIABLE = "PYINSTALLER_RESET_ENVIRONMENT"
"""When set to 1, tells a frozen program that it is independent of the process that started it."""
CLOSE_WHEN_READY = "--close-when-ready"
"""An option for ``--window``: close the window once its engine has loaded a pair or failed to."""
_BUNDLES_OWN = {
    "linux": ["LD_LIBRARY_PATH"],
    "darwin": ["DYLD_LIBRARY_PATH", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"],
    "win32": ["QT_PLUGIN_PATH", "QML2_IMPORT_PATH"],
}
"""Variables that PyInstaller sets, by system; on Linux, our packages leave out those about Qt."""
_ENGINE_VARIABLES = {"GOMP_SPINCOUNT": "3000", "GGML_NO_BACKTRACE": "1"}
"""llama.cpp's libraries read these when they are loaded.

libgomp's threads spin while they wait for each other, and on a busy machine use up the very time slices they wait for:
on 2 cores next to one busy process, a pass takes twice as long as on an idle machine with 3,000 spins, and 14 times as
long with 100,000. Even fewer cost time on an idle machine (1,000: 2% slower). And ggml forks a debugger when it aborts,
which would outlive the engine."""
_CONSOLE_PROGRAM = "slipstream-cli.exe"
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIALS?)S?$|_PROXY$", re.IGNORECASE)


def is_frozen() -> bool:
    """Whether this is the packaged app."""
    return bool(getattr(sys, "frozen", False))


def own_command(*arguments: str) -> list[str]:
    """The command for another of our processes. On Windows, the program with standard streams."""
    if not is_frozen():
        return [sys.executable, "-m", "app", *arguments]
    console = Path(sys.executable).with_name(_CONSOLE_PROGRAM)
    return [str(console) if console.is_file() else sys.executable, *arguments]


def windows_program(*parts: str, environment: Mapping[str, str] = os.environ) -> str:
    """The path of a program that comes with Windows, at ``parts`` below its folder.

    With just a name, Windows would first look next to our program and in the working folder, where anybody could put a
    different one.
    """
    folder = environment.get("SystemRoot", "")
    return str(PureWindowsPath(folder if PureWindowsPath(folder).is_absolute() else "C:\\Windows", *parts))


def prepare_engine(environment: MutableMapping[str, str]) -> None:
    """Set the variables for llama.cpp's libraries before they are loaded, except those that the user has set."""
    for name, value in _ENGINE_VARIABLES.items():
        environment.setdefault(name, value)


def restore_environment(environment: MutableMapping[str, str], platform: str = sys.platform) -> None:
    """Undo what PyInstaller set in ``environment`` for this process.

    It has found its libraries, and Qt its plugins through PySide6; but a browser or file manager that we start would
    find ours, too, and crash.
    """
    for name in _BUNDLES_OWN.get(platform, []):
        environment.pop(name, None)
        users = environment.pop(f"{name}_ORIG", None)
        if users is not None:
            environment[name] = users


def is_secret(name: str) -> bool:
    """Whether a variable of this name may contain a secret, perhaps inside a proxy's address."""
    return _SECRET.search(name) is not None


def child_environment(own: Mapping[str, str], **changes: str) -> dict[str, str]:
    """``own`` without secrets and with ``changes``, for a process in another working folder."""
    harmless = {name: value for name, value in own.items() if not is_secret(name)}
    if home := harmless.get(HOME_VARIABLE, "").strip():
        harmless[HOME_VARIABLE] = str(Path(home).expanduser().absolute())
    return {**harmless, RESET_VARIABLE: "1", **changes}


def engine_command(*options: str) -> list[str]:
    """The command of the engine process."""
    return own_command("--role=engine", *options)


def remote_command() -> list[str]:
    """The command of the process for models on servers."""
    return own_command("--role=remote")


def start_process(
    command: Sequence[str], changes: Mapping[str, str] | None = None, *, errors: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """Start one of our processes, with pipes, no window, and its own session, so that Ctrl+C only reaches us.

    ``changes`` are variables to set; ``errors`` is where its standard error goes. Raises `OSError`.
    """
    return subprocess.Popen(command, **process_options(changes, errors=errors))


def process_options(changes: Mapping[str, str] | None = None, *, errors: int = subprocess.PIPE) -> dict[str, Any]:
    """The keyword arguments of `start_process`, also for asyncio."""
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
    """In a child process: take the real stdout for messages, and send what libraries print to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(own, os.O_BINARY)
        msvcrt.setmode(0, os.O_BINARY)
    return os.fdopen(own, "wb")  # buffered, because a raw file may write only part of the data


def claim_streams(*, discards: bool = False) -> tuple[BinaryIO, BinaryIO]:
    """In a child process: the pipes to its parent. What libraries print goes to stderr, or is discarded."""
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
    """Whether Qt will find a display; without one, it ends the process."""
    if not platform.startswith(("linux", "freebsd", "openbsd", "netbsd")):
        return True
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def write_line(stream: TextIO | None, text: str) -> None:
    """``stream`` is stdout or stderr; ``None`` in a Windows program without a console."""
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.write(f"{text}\n")
            stream.flush()


# The log file, and a crash's traces for the next start. Never log the content of chats.

log = logging.getLogger(__name__)

MAX_BYTES = 1_000_000
BACKUP_FILES = 3
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def redact(text: str) -> str:
    """``text`` with ``~`` for the user's home folder, which contains their name."""
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
    """This process's log, until `close`.

    Attributes:
        file: Where it is written.
        previous_crash: The last run's crash report, home folder redacted; ``None`` if it ended normally.
    """

    def __init__(self) -> None:
        from logging.handlers import RotatingFileHandler  # only now: it imports sockets, which the helper doesn't need

        folder = log_dir()
        self.file = folder / "slipstream.log"
        self._crash_file = folder / "slipstream-crash.txt"
        self.previous_crash = self._read_crash()
        if self.previous_crash is not None:
            # `_crash_file` is about to be used for this run.
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
        """The process ends normally; otherwise, the next start reports a crash."""
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
        # Reported as the crash only if the process doesn't end normally afterwards.
        with contextlib.suppress(OSError, ValueError):
            self._crash.write("".join(traceback.format_exception(kind, error, trace)))
            self._crash.flush()


def start_log() -> Logs:
    """Log this process to the log folder and record its crashes.

    Call it once, when no other process can be doing the same. Raises `KnownError` if the folder isn't writable.
    """
    try:
        return Logs()
    except OSError as error:
        raise KnownError(
            f"Slipstream can't write its log in {log_dir()}: {error.strerror or error}. Check the folder, then "
            "start Slipstream again."
        ) from error
