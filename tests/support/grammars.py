"""What a grammar of llguidance's takes, by its text or at random."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import llguidance

from app.helper.grammars import _tokenizer, limits

_END = 256
_MOST_ORDERS = 200
_WEIGHTS = {_END: 20, **dict.fromkeys(b'"}]', 20), **dict.fromkeys(b"09aeiotx,:", 5)}
"""Of bytes drawn at random: what ends texts, lists and objects is likelier, and so is ASCII."""


def accepts(grammar: str, value: Any) -> bool:
    """Whether ``value`` can be written as JSON, with its keys in any order."""
    return any(takes(grammar, text) for text in itertools.islice(_written(value), _MOST_ORDERS))


def takes(grammar: str, text: str) -> bool:
    """Whether ``text`` is a whole answer."""
    matcher = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0, limits=limits())
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


def drawn(grammar: str, rng: random.Random, most: int = 400) -> str | None:
    """An answer at random, byte by byte; ``None``: it isn't over after ``most`` bytes, or its text isn't whole."""
    matcher = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0, limits=limits())
    found = bytearray()
    while len(found) < most and not matcher.is_error():
        mask = matcher.compute_bitmask()
        allowed = [token for token in range(257) if mask[token // 8] >> token % 8 & 1]
        if not allowed or (matcher.is_accepting() and (len(allowed) == 1 or rng.random() < 0.3)):
            break
        weights = [_WEIGHTS.get(token, 1 if token < 127 else 0.02) for token in allowed]
        token = rng.choices(allowed, weights)[0]
        if token == _END:
            break
        found.append(token)
        matcher.consume_token(token)
    return found.decode(errors="surrogateescape") if matcher.is_accepting() else None


def _written(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for keys in itertools.permutations(value):
            each = [[f"{json.dumps(key, ensure_ascii=False)}: {one}" for one in _written(value[key])] for key in keys]
            for parts in itertools.product(*each):
                yield "{" + ", ".join(parts) + "}"
    elif isinstance(value, list):
        for parts in itertools.product(*map(list, map(_written, value))):
            yield "[" + ", ".join(parts) + "]"
    else:
        yield json.dumps(value, ensure_ascii=False)
