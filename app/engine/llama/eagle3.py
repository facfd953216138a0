"""EAGLE-3 heads in llama.cpp: one layer that reads the inputs of three of the target's layers.

As with an MTP head, a token's cell comes from the token and from what the target had after the token *before* it: here
three layer inputs, which the head's first matrix joins into one vector (``encode``). While it drafts, its own hidden
state takes the place of that vector. The first token of a text has no token before it, and no cell.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.sampling import Floats
from app.engine.llama.checkpoints import SEQUENCE
from app.engine.llama.context import Context
from app.engine.llama.head import Head, found
from app.engine.llama.model import Model
from app.protocol.options import HEAD_OUTPUTS, HEAD_PASS, DrafterName, LoadSettings


class Eagle3Head(Head):
    """The KV cache of an EAGLE-3 head, which follows the cache of its target. Close it before its target."""

    drafter: DrafterName = "eagle3"
    _outputs = HEAD_OUTPUTS
    _context_type = llama_cpp.LLAMA_CONTEXT_TYPE_DEFAULT

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        """llama.cpp computes logits of every token of a pass, so passes are short."""
        self._switch_input = found("llama_set_embeddings_layer_inp")
        self._input_of = found("llama_get_embeddings_layer_inp")
        read, count = found("llama_model_target_layer_ids"), found("llama_model_target_layer_ids_n")
        self._layers: list[int] = read(model.handle)[: count(model.handle)]
        """Of the target; the number after its last layer stands for its hidden state."""
        self._target_layers, self._target_width = target.model.layers, target.model.state_width
        self._longest_pass = target.length
        self._target_rows: dict[int, Floats] = {}
        """llama.cpp's buffers, by address."""
        size = min(settings.micro_batch_size, HEAD_PASS)
        super().__init__(target, model, msgspec.structs.replace(settings, batch_size=size, micro_batch_size=size))
        self._first_cell = -1
        """The first token that has a cell; −1 for none."""
        shape = self._capacity, len(self._layers) * self._target_width
        self._encoded = llama_cpp.llama_batch_init(*shape, 1)
        for i in range(self._capacity):
            self._encoded.n_seq_id[i], self._encoded.logits[i] = 1, 1
            self._encoded.seq_id[i][0] = SEQUENCE
        self._features = np.ctypeslib.as_array(self._encoded.embd, shape=shape)
        self._encoded_positions = np.ctypeslib.as_array(self._encoded.pos, shape=(self._capacity,))

    def _belongs(self, target: Model) -> bool:
        return all(0 <= layer <= target.layers for layer in self._layers)

    def _width_read(self, target: Model) -> int:
        return len(self._layers) * target.state_width

    def _switch(self, on: bool) -> None:
        for layer in self._layers:
            if layer < self._target_layers:
                self._switch_input(self._target, layer, on)
            else:
                super()._switch(on)

    # ------------------------------------------------------------ drafting

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """Where the head has no cell yet, it begins with the first token whose layer inputs are known."""
        if self._first_cell < 0:
            known = self._states.first + 1 - len(self.tokens)
            skipped = min(max(known, 0), len(tokens) - min(outputs, 1))
            self.tokens.extend(tokens[:skipped])
            self._exact = len(self.tokens)
            tokens = tokens[skipped:]
            if not tokens:
                return
        if outputs and len(tokens) > self._outputs:
            self._add(tokens[:-1], 0)
            tokens = tokens[-1:]
        begin, end = len(self.tokens), len(self.tokens) + len(tokens)
        self._fill(self._inputs[: len(tokens)], begin - 1)
        # WORKAROUND for llama.cpp's src/models/eagle3.cpp, which gives the logits of the first tokens, not of those
        # that were asked for: all are asked for.
        Context._add(self, tokens, len(tokens) if outputs else 0)
        if self._first_cell < 0:
            self._first_cell = begin
        self._exact = min(end, self._states.end + 1)
        if outputs:
            self._keep_own()

    def _logits(self, outputs: int) -> Floats:
        return super()._logits(self._batch.n_tokens)[-outputs:] if outputs else super()._logits(0)

    def _read(self, states: Floats) -> Floats:
        """Encode the inputs of the target's layers. The memory isn't touched, but llama.cpp checks the positions."""
        count, begin = len(states), self._memory.newest() + 1
        self._features[:count] = states
        self._encoded_positions[:count] = range(begin, begin + count)
        self._encoded.n_tokens = count
        if code := llama_cpp.llama_encode(self.handle, self._encoded):
            self._raise(code)
        return self._rows_at(self._all_states(self.handle), count)

    # ------------------------------------------------------------ following the target

    def _states_of_target(self, count: int) -> Floats | None:
        if self.failure:
            return None
        joined = np.empty((count, len(self._layers) * self._target_width), np.float32)
        for place, layer in enumerate(self._layers):
            begin = place * self._target_width
            joined[:, begin : begin + self._target_width] = self._input_after_pass(layer)[:count]
        return joined

    def _input_after_pass(self, layer: int) -> Floats:
        """llama.cpp's rows of the last pass, and more that aren't to be read."""
        has_input = layer < self._target_layers
        pointer = self._input_of(self._target, layer) if has_input else self._all_states(self._target)
        address = ctypes.addressof(pointer.contents)
        view = self._target_rows.get(address)
        if view is None:  # made once, because that takes longer than to copy a row
            shape = self._longest_pass, self._target_width
            view = self._target_rows[address] = np.ctypeslib.as_array(pointer, shape=shape)
        return view

    def _go_back(self, length: int, held: int) -> None:
        super()._go_back(length, held)
        if len(self.tokens) <= self._first_cell:
            self._first_cell = -1

    def clear(self, *, overwrite: bool = False) -> None:
        super().clear(overwrite=overwrite)
        self._first_cell = -1
        if overwrite:
            self._features[:] = 0.0

    def _take_over(self, cells: int, kv: NDArray[np.uint8], tokens: Sequence[int]) -> None:
        super()._take_over(cells, kv, tokens)
        self._first_cell = self._memory.oldest()

    def _ends_at(self, cells: int) -> bool:
        return self._memory.newest() in (cells - 1, -1)  # it may have begun only after these tokens

    def close(self) -> None:
        if self.handle:
            llama_cpp.llama_batch_free(self._encoded)
        super().close()
