"""The largest logits of each row of a pass, which llama.cpp picks where it computes them.

Whole rows of 200,000 to 260,000 logits would otherwise be copied from the device and searched here. On the CPU
llama.cpp's selection takes longer than ours, so there it isn't used. Figures: ``benchmarks/notes/top_k.md``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Logits, TopLogits
from app.engine.llama.checkpoints import SEQUENCE
from app.engine.llama.model import Model
from app.protocol.limits import LEAST_PICKED_VOCABULARY

_PICKED = 128
"""How many are picked: enough for usual values of top-k with penalties over the usual 64 tokens. It is always the same,
because for another number llama.cpp would plan its graphs anew.
"""
_LEAST_PART = 3
"""Rows that aren't this many times as long are copied as a whole."""


def pays(model: Model) -> bool:
    """Whether picking takes less time than copying whole rows of ``model`` and searching them."""
    is_large = model.vocabulary_size >= LEAST_PICKED_VOCABULARY
    return is_large and model.has_output_on_gpu and hasattr(llama_cpp, "llama_set_sampler")


class TopK:
    """What the passes of a context return: its whole rows, or the largest logits of each. Close it after the context.

    llama.cpp applies a sampler to every output of its sequence, and then no longer copies the whole rows. A context
    begins with one: with every change its buffers are allocated anew, and if that failed, the process would end.
    """

    def __init__(self, params: llama_cpp.llama_context_params, vocabulary: int, outputs: int, *, is_used: bool) -> None:
        """``params`` are of the context, which must become `handle`; it has at most ``outputs`` at once."""
        self.handle = 0
        self._shape = outputs, vocabulary
        self._is_used = is_used and vocabulary >= _LEAST_PART * _PICKED
        self._chain: Any = None
        if self._is_used:
            self._chain = chain = _sampler()
            config = llama_cpp.llama_sampler_seq_config(SEQUENCE, ctypes.cast(chain, ctypes.c_void_p))
            params.samplers, params.n_samplers = ctypes.pointer(config), 1
        self._views: dict[tuple[int, object], NDArray[Any]] = {}
        """llama.cpp's output, by address and type; its places depend on the number of outputs."""

    def use(self, count: int | None) -> bool:
        """Make the next passes pick at least ``count`` logits of each row; returns False if they give whole rows.

        More are picked: if the last of ``count`` has the same logit as others, these are known, too.
        """
        is_wanted = self._is_used and count is not None and count < _PICKED
        if is_wanted != (self._chain is not None):
            self._set(_sampler() if is_wanted else None)
        return self._chain is not None

    def _set(self, chain: Any) -> None:
        if not llama_cpp.llama_set_sampler(self.handle, SEQUENCE, chain):
            llama_cpp.llama_sampler_free(chain)
            self._is_used, chain = False, None
        self.close()
        self._chain = chain

    def read(self, first: int, outputs: int) -> Logits | None:
        """The logits of the last pass, whose first output was that of the token with the number ``first``.

        ``None`` if llama.cpp refused the sampler, and its own whole rows are there.
        """
        picked = llama_cpp.llama_get_sampled_candidates_count_ith(self.handle, first)
        values = llama_cpp.llama_get_sampled_logits_ith(self.handle, first)
        if not picked:  # where the device doesn't have the operation, the sampler gives whole rows
            self._is_used = False
            return self._view(values)[:outputs] if values else None
        ids = self._view(llama_cpp.llama_get_sampled_candidates_ith(self.handle, first))[:outputs, :picked]
        return TopLogits.sorted(ids, self._view(values)[:outputs, :picked])

    def _view(self, pointer: Any) -> NDArray[Any]:
        place = ctypes.addressof(pointer.contents), type(pointer)
        view = self._views.get(place)
        if view is None:
            view = self._views[place] = np.ctypeslib.as_array(pointer, shape=self._shape)
        return view

    def close(self) -> None:
        """Free the sampler that the context had."""
        if self._chain is not None:
            llama_cpp.llama_sampler_free(self._chain)
            self._chain = None


def _sampler() -> Any:
    """A new one for each use, because llama.cpp takes a chain only once."""
    params = llama_cpp.llama_sampler_chain_default_params()
    params.no_perf = True
    chain = llama_cpp.llama_sampler_chain_init(params)
    llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_top_k(_PICKED))
    return chain
