"""Logits by the plainest way: a context of its own, one token after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.engine.decoding.prompt import PromptBuilder
from app.engine.llama.context import Context
from app.engine.llama.model import Model
from app.protocol.commands import Message
from app.protocol.options import LoadSettings


def direct_logits(
    target: Path, messages: Sequence[Message], answer: Sequence[int], *, length: int, threads: int = 1
) -> tuple[NDArray[np.float64], int]:
    """The logits behind a chat and an answer, shape (vocabulary,), and the position of the token they choose."""
    model = Model(target, 0, lambda _: True)
    context = Context(model, LoadSettings(), length=length, threads=threads, outputs=1)
    tokens = [*PromptBuilder(model, length).chat(messages).tokens, *answer]
    for token in tokens:
        logits = context.decode([token], 1)[0].astype(np.float64)
    context.close()
    model.close()
    return logits, len(tokens)
