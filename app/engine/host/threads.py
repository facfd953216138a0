"""Which of two numbers of threads is quicker for a model on this machine, remembered once it was timed."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from app.engine.llama.thread_count import default_threads, other_threads
from app.protocol.limits import MAX_THREADS
from app.storage.keyed_file import KeyedFile, cache_file, key_of

_Number = Annotated[int, Meta(ge=1, le=MAX_THREADS)]


def remembered_threads(stamp: Sequence[int]) -> int | None:
    """For the model whose files have this ``stamp``; ``None`` if nothing was timed."""
    return _store().get(_key(stamp))


def remember_threads(stamp: Sequence[int], threads: int) -> None:
    """Use so many from the next load on."""
    _store().put(_key(stamp), threads)


def _store() -> KeyedFile[int]:
    return KeyedFile(cache_file("threads.json"), _Number)


def _key(stamp: Sequence[int]) -> str:
    machine = (platform.node(), platform.machine(), platform.processor())
    return key_of({"target": stamp, "machine": machine, "threads": (default_threads(), other_threads())})
