"""Which of llama.cpp's kernels compute a pass on the processor.

Some of its kernels round differently for another width of a pass or another number of threads: flash attention shares
out the context among the threads in a pass over one token only, and K-quants are multiplied by other code from eight
tokens on. Its reference implementation has one kernel for all of them, which is as quick in passes over a few tokens.
Long prompts take about twice as long with it, so they are computed without. ``benchmarks/notes/real-models.md`` has
figures.
"""

from __future__ import annotations

import ctypes
import platform

import llama_cpp

from app.engine.llama import backend

_SCHEDULER = ("_ZNK13llama_context9get_schedEv", "?get_sched@llama_context@@QEBAPEAUggml_backend_sched@@XZ")
"""``llama_context::get_sched`` as GCC, Clang and Microsoft's compiler name it."""
_USE_REFERENCE = b"ggml_backend_cpu_set_use_ref"

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
REPACKED = frozenset({"Q4_0", "Q4_K", "Q2_K", "IQ4_NL", "MXFP4"})
"""Types of weights that llama.cpp writes anew in another order on x86 when they are loaded."""
REPACKED_UNLIKE = frozenset({"Q4_K", "Q2_K"})
"""Those of which passes over four tokens and more are then multiplied by kernels that round differently."""


class Kernels:
    """Switches a context between llama.cpp's usual kernels and its reference implementation, on the processor.

    Where llama.cpp's library doesn't show its scheduler, nothing is switched: `app.engine.host.exactness` then finds
    that results depend on the width.
    """

    def __init__(self, context: int) -> None:
        """``context``: llama.cpp's handle of a context."""
        self._backends = _processor_backends(context)
        self._uses_reference = False

    def use_reference(self, wanted: bool) -> None:
        """For the next passes."""
        if wanted == self._uses_reference:
            return
        self._uses_reference = wanted
        for handle, switch in self._backends:
            switch(handle, wanted)


def _processor_backends(context: int) -> list[tuple[int, ctypes._CFunctionType]]:
    """ggml's handles of what computes on the processor for ``context``, with the function that switches each.

    WORKAROUND for llama.h, which doesn't have the setting: ggml does, but not a way from a context to its backends.
    """
    scheduler = next((name for name in _SCHEDULER if hasattr(llama_cpp.llama_cpp._lib, name)), None)
    if scheduler is None:
        return []
    ggml = backend.library()
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    found = prototype((scheduler, llama_cpp.llama_cpp._lib))(context)
    result = []
    for index in range(ggml.ggml_backend_sched_get_n_backends(found)):
        handle = ggml.ggml_backend_sched_get_backend(found, index)
        device = ggml.ggml_backend_get_device(handle)
        if ggml.ggml_backend_dev_type(device) == backend.CPU:
            registry = ggml.ggml_backend_dev_backend_reg(device)
            address = ggml.ggml_backend_reg_get_proc_address(registry, _USE_REFERENCE)
            if address:
                switch = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool)(address)
                result.append((handle, switch))
    return result
