"""What llama.cpp lets one do with the memory behind a context: cut it, and copy it out and back."""

from __future__ import annotations

import ctypes

import llama_cpp
import numpy as np
from numpy.typing import NDArray

SEQUENCE = 0
WHOLE, CHECKPOINT = llama_cpp.LLAMA_STATE_SEQ_FLAGS_NONE, llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""What is copied: everything, or only what cannot be cut, which is the running state or the sliding windows."""

Bytes = NDArray[np.uint8]


class Memory:
    """What a context holds. Callers check what its methods return."""

    def __init__(self, context: int) -> None:
        """``context`` is llama.cpp's handle."""
        self._context = context
        self._memory = llama_cpp.llama_get_memory(context)

    def cut(self, length: int) -> bool:
        """Forget all but the first ``length`` tokens. May say True and leave another state."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, SEQUENCE, length, -1))

    def oldest(self) -> int:
        """The first position all layers hold, −1 when there is none."""
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, SEQUENCE))

    def newest(self) -> int:
        """The last position all layers hold, −1 when there is none."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, SEQUENCE))

    def size(self, flags: int) -> int:
        """Bytes of a copy: of `WHOLE` or of `CHECKPOINT`."""
        return int(llama_cpp.llama_state_seq_get_size_ext(self._context, SEQUENCE, flags))

    def copy_out(self, into: Bytes, flags: int) -> bool:
        """Copy out what ``flags`` say."""
        done = llama_cpp.llama_state_seq_get_data_ext(self._context, _pointer(into), len(into), SEQUENCE, flags)
        return bool(done == len(into) > 0)

    def copy_back(self, data: Bytes, flags: int) -> bool:
        """Put it back in place of what is there. What lies behind a `CHECKPOINT` has to be cut then."""
        done = llama_cpp.llama_state_seq_set_data_ext(self._context, _pointer(data), len(data), SEQUENCE, flags)
        return bool(done == len(data) > 0)

    def erase(self, overwrite: bool = False) -> None:
        """Forget everything, and ``overwrite`` what it was."""
        llama_cpp.llama_memory_clear(self._memory, overwrite)


def _pointer(data: Bytes) -> object:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
