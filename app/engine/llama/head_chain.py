"""Several MTP heads of a target, of which the first drafts the first token, the second the second one, and so on.

Each head is a layer with keys and values of its own in one KV cache, and llama.cpp computes one of them at a time. All
of them process the target's tokens and hidden states. The cells of a draft are written by one head alone, so each head
processes the whole draft again before it adds a token to it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from app.engine.llama.context import Context
from app.engine.llama.head import Head, found
from app.engine.llama.model import Model
from app.errors import Canceled, KnownError
from app.protocol.options import LoadSettings


class HeadChain(Head):
    """The KV cache of all heads of a target. A draft has at most as many tokens as there are heads."""

    _keeps_windows = True
    """A cell has one place for all heads, which a cache that reuses what has left a window doesn't promise."""

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        """See `Head`."""
        self._choose = found("llama_set_nextn_layer_offset", "i", "H", None, ctypes.c_int32)
        super().__init__(target, model, settings)
        self.longest_draft = model.mtp_layers
        self._draft_states = np.zeros((self.longest_draft, len(self._own)), np.float32)
        """The hidden states with which the tokens of the draft are processed."""
        self._drafted = 0
        """How many tokens at the end of the cache belong to the draft."""

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """See `Head.decode`. All heads process ``tokens``, except for the last one if it has an output. That one is
        processed by the first head if it comes after the text, and otherwise by the next one.
        """
        if outputs:
            is_draft = self._drafted and len(self.tokens) > self._states.end
            if len(tokens) > 1 or not is_draft:
                self._process(tokens[:-1])
            self._draft(tokens[-1])
        else:
            self._process(tokens)

    def _process(self, tokens: Sequence[int]) -> None:
        """Let all heads process the tokens that only one has processed so far, and ``tokens``."""
        begin = len(self.tokens) - self._drafted
        tokens = [*self.tokens[begin:], *tokens]
        for head in range(self.longest_draft if tokens else 0):
            self.roll_back(begin)
            self._choose(self.handle, head)
            super()._add(tokens, 0)

    def _draft(self, token: int) -> None:
        """Process ``token`` with the head whose turn it is. After the last one, the first begins anew, because
        time is measured over more tokens.
        """
        if self._drafted == self.longest_draft:
            self._drafted = 0
        number, begin = self._drafted, len(self.tokens) - self._drafted
        tokens, states = [*self.tokens[begin:], token], self._draft_states
        if number:
            states[number] = self._own
        else:
            self._fill(states[:1], begin - 1)
        self.roll_back(begin)
        self._choose(self.handle, number)
        try:
            if number:
                self._inputs[:number] = states[:number]
                Context._add(self, tokens[:-1], 0)
            self._inputs[0] = states[number]
            Context._add(self, tokens[-1:], 1)
        except (Canceled, KnownError):
            self.roll_back(begin)
            raise
        self._drafted = number + 1
        self._keep_own()

    def roll_back(self, length: int) -> None:
        """See `Cache.roll_back`. What is left of a draft is of no use, because only one head has processed it."""
        if length < len(self.tokens):
            super().roll_back(min(length, len(self.tokens) - self._drafted))
            self._drafted = 0

    def clear(self, *, overwrite: bool = False) -> None:
        """See `Head.clear`."""
        super().clear(overwrite=overwrite)
        self._drafted = 0
        if overwrite:
            self._draft_states[:] = 0.0
