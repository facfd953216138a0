"""llama.cpp as a whole: started once in a process, what it logs, and the reasons it gives for failures."""

from __future__ import annotations

import ctypes
import logging
import re
from collections import deque

import llama_cpp

from app.engine.llama.devices import load_backends

log = logging.getLogger("slipstream.llama")

_LOG_INFO, _LOG_WARN, _LOG_ERROR = 2, 3, 4
errors: deque[str] = deque(maxlen=5)
"""What went wrong since somebody cleared it, the latest last."""
_WHERE_AND_WHAT = re.compile(r"^(\w+: )?(error loading model: )*")
"""What llama.cpp puts before a reason: its own function and, once or twice, what it was doing."""
_LOADED_VARIANT = re.compile(r"loaded CPU backend from .*ggml-cpu-([\w.]+)\.[a-z]+$")
_variant = ""
"""Of llama.cpp's libraries for kinds of processors the one that computes; empty where there is only one."""


def start() -> None:
    """Prepare llama.cpp once per process, before the first model. Raises `KnownError` if it cannot compute here."""
    llama_cpp.llama_log_set(_on_log, ctypes.c_void_p(0))
    load_backends()
    llama_cpp.llama_backend_init()


def engine_name() -> str:
    """What computes, for About and reports; with the variant for this kind of processor, where `start` chose one."""
    variant = f", {_variant} variant" if _variant else ""
    return f"llama.cpp (llama-cpp-python {llama_cpp.__version__}{variant})"


def reason() -> str:
    """The first of `errors`: what llama.cpp says later only follows from it."""
    return _WHERE_AND_WHAT.sub("", errors[0]) if errors else "no reason given"


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _data: object) -> None:
    if level not in (_LOG_WARN, _LOG_ERROR):
        if level == _LOG_INFO and b"loaded CPU backend" in text:
            _note_variant(text.decode("utf-8", "replace").rstrip())
        return
    line = text.decode("utf-8", "replace").rstrip()
    if level == _LOG_ERROR:
        errors.append(line)
    log.info("%s", line)  # llama.cpp warns about things that are no news to the user


def _note_variant(line: str) -> None:
    global _variant  # noqa: PLW0603 - llama.cpp says it here and nowhere else, once a process
    found = _LOADED_VARIANT.search(line)
    _variant = found[1] if found else ""
