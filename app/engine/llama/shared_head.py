"""A drafting head that reads its target's KV cache and has none of its own: the assistant of a Gemma 4 model.

llama.cpp lets its context see the cells of the last two layers of the target (``ctx_other``). All tokens of a draft
have the position that follows the target's last token, and none of them is written to a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import llama_cpp
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.llama.context import Context
from app.engine.llama.head import HISTORY, Head, States
from app.engine.llama.model import Model
from app.protocol.options import LoadSettings


class SharedHead(Head):
    """A head without cells. Its ``tokens`` are the target's, and those it was given to draft from.

    Nothing has to be processed before it can draft: what it needs is the target's hidden state after its last token.
    """

    _is_drafting = False
    """Whether the last hidden state of its own belongs to a draft after the present tokens of the target."""

    def __init__(self, target: Context, model: Model, settings: LoadSettings) -> None:
        """See `Head`. It processes one token at a time, and only the last hidden states are kept."""
        super().__init__(target, model, msgspec.structs.replace(settings, batch_size=1, micro_batch_size=1))
        self.chunk = target.chunk
        self._states = States(2 * HISTORY, len(self._own))

    def _add(self, tokens: Sequence[int], outputs: int) -> None:
        """Draft from the last of ``tokens``. Those before it have no effect: the target has not processed them either.

        See `Head.decode`.
        """
        held = self._exact
        if outputs and not self._is_drafting:
            self._fill(self._inputs[:1], held - 1)
        elif outputs:
            self._inputs[0] = self._own
        self.tokens.extend(tokens)
        if not outputs:
            return
        self._batch.token[0], self._batch.pos[0], self._batch.logits[0] = tokens[-1], held, 1
        self._batch.n_tokens = 1
        code = llama_cpp.llama_decode(self.handle, self._batch)
        if code != 0:
            del self.tokens[held:]
            self._raise(code)
        self._is_drafting = True
        self._keep_own()

    def read(self, tokens: Sequence[int], count: int) -> None:
        """See `Head.read`."""
        states = self._states_of_target(count)
        if states is not None:
            last = states[-HISTORY:]
            self._states.append(len(tokens) - len(last), last)
        self._follow(tokens, len(tokens) - count)

    def _follow(self, tokens: Sequence[int], same: int) -> None:
        """The target has ``tokens``, of which the first ``same`` are those it had."""
        same = min(same, len(self.tokens))
        del self.tokens[same:]
        self.tokens.extend(tokens[same:])
        self._exact, self._is_drafting = len(tokens), False

    def catch_up(self, tokens: Sequence[int], least: int = 0) -> None:
        """Nothing is missing."""

    def roll_back(self, length: int) -> None:
        """See `Cache.roll_back`."""
        if length < len(self.tokens):
            del self.tokens[length:]
            self._is_drafting = False

    def follow(self, length: int, wanted: int) -> None:
        """See `Head.follow`."""
        super().follow(length, wanted)
        self._follow(self.tokens, length)
        self.roll_back(length)
        self._exact = length

    def clear(self, *, overwrite: bool = False) -> None:
        """See `Head.clear`."""
        super().clear(overwrite=overwrite)
        self._is_drafting = False

    def _erase(self, overwrite: bool) -> None:
        """The cells are the target's, which may just have been restored."""

    # ------------------------------------------------------------ copies

    def _kv_size(self) -> int:
        return 0

    def _copy_kv_out(self, into: NDArray[np.uint8]) -> bool:
        return not len(into)

    def _take_over(self, cells: int, kv: NDArray[np.uint8], tokens: Sequence[int]) -> None:  # noqa: ARG002
        self.tokens, self._exact = list(tokens), len(tokens)
