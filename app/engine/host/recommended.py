"""What the file of a model recommends."""

from __future__ import annotations

import logging
import math

import msgspec

from app import decoders
from app.engine.llama.model import Model
from app.protocol.limits import DEFAULT_DRAFT_LENGTH, MAX_CONTEXT_LENGTH, MAX_DRAFT_LENGTH
from app.protocol.options import Sampling

log = logging.getLogger("slipstream.engine")

_SAMPLING_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
    "penalty_window": "penalty_last_n",
}
"""Fields of `Sampling` and their names in a GGUF file, after ``general.sampling.``."""
_ALL = {"top_k": 0, "penalty_window": MAX_CONTEXT_LENGTH}
"""The meaning of llama.cpp's -1: every token of the vocabulary, the whole context."""
_MOST_RECOMMENDED = 2**31 - 1
"""llama.cpp reads 32 bits, and so do the window's fields."""


def recommended_sampling(model: Model) -> tuple[Sampling, list[str]]:
    """The sampling that the file of ``model`` recommends, and the names of the fields it specifies.

    Invalid values are left out; the others are used.
    """
    sampling, fields = Sampling(), list[str]()
    for name, key in _SAMPLING_KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if not text:
            continue
        value: object = _ALL[name] if name in _ALL and text == "-1" else text
        try:
            changed = decoders.convert({**msgspec.to_builtins(sampling), name: value}, Sampling, strict=False)
        except msgspec.ValidationError as error:
            log.info("%s that %s recommends is not used: %s", name, model.path.name, error)
            continue
        if math.isfinite(number := getattr(changed, name)) and number <= _MOST_RECOMMENDED:
            sampling = changed
            fields.append(name)
    return sampling, fields


def default_draft_length(model: Model) -> int:
    """The fixed draft length that the file of ``model`` recommends."""
    value = model.metadata("slipstream.draft_length")
    if value is None or not (value.isascii() and value.isdigit()):
        return DEFAULT_DRAFT_LENGTH
    return min(max(int(value), 1), MAX_DRAFT_LENGTH)
