"""Speculative decoding in one page, to be read before the real loop (`app/engine/decoding/loop.py`).

    python examples/minimal_loop.py TARGET.gguf DRAFT.gguf "Once upon a time" --temperature 0.8

A small draft model proposes some tokens; the large target model checks them all in one pass, which costs little more
than a pass over one token, and keeps those it would have chosen itself. The text is the target's own at any
temperature: under the rule used here (`coupled`, arXiv 2408.07978), drafts change how long it takes, not a word of it.

The real loop adds draft lengths that follow measured costs, several drafters, all sampler settings, thinking, formats,
tools, models whose state can't be rolled back token by token, and kernels whose logits don't depend on a pass's width.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from llama_cpp import Llama
from numpy.typing import NDArray

Logits = NDArray[np.float32]
"""Shape (vocabulary,), or (tokens, vocabulary) for a pass."""
_GOLDEN, _MIX_1, _MIX_2 = (np.uint64(one) for one in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass
class Round:
    """The outcome of one draft and the pass that verified it."""

    tokens: list[int]
    """The accepted part of the draft, then one token of the target's own."""
    drafted: int


class Model:
    """A model and its KV cache, which contains exactly `tokens`."""

    def __init__(self, path: str, context_length: int = 2048) -> None:
        self.llama = Llama(path, n_ctx=context_length, logits_all=True, flash_attn=True, verbose=False)
        self.tokens: list[int] = []

    def process(self, tokens: Sequence[int]) -> Logits:
        """One pass over these tokens; returns the logits of the token after each."""
        self.llama.eval(tokens)
        self.tokens += tokens
        return self.llama.scores[len(self.tokens) - len(tokens) : len(self.tokens)]

    def roll_back(self, length: int) -> None:
        """Forget everything after the first ``length`` tokens."""
        del self.tokens[length:]
        self.llama.n_tokens = length  # the next `eval` removes the rest from the cache


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64: each bit of the result depends on each bit of ``x``."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def noise(seed: int, position: int, size: int) -> NDArray[np.float64]:
    """Gumbel noise for ``size`` tokens: a hash of seed, position and token, so there is no state to roll back."""
    with np.errstate(over="ignore"):
        start = np.array([seed * 8 + 1], np.uint64) + np.uint64(position + 1) * _GOLDEN
        key = mixed(mixed(start + _GOLDEN) + _GOLDEN) + _GOLDEN
        bits = mixed(key + np.arange(size, dtype=np.uint64) * _GOLDEN) >> np.uint64(11)
    return -np.log(-np.log((bits.astype(np.float64) + 0.5) * 2.0**-53))


def choose(logits: Logits, position: int, temperature: float, seed: int) -> int:
    """The token at ``position``: the most likely one at temperature 0, otherwise a sample.

    argmax(logits ÷ temperature + Gumbel noise) is an exact sample. Target and draft use the same noise at a position,
    so a draft model with similar logits mostly chooses the same token.
    """
    if temperature == 0:
        return int(np.argmax(logits))
    return int(np.argmax(logits / temperature + noise(seed, position, len(logits))))


def propose(draft: Model, tokens: Sequence[int], length: int, temperature: float, seed: int) -> list[int]:
    """``length`` tokens that may follow ``tokens``. First rolls the draft's cache back to what it shares with them."""
    known = 0
    while known < min(len(draft.tokens), len(tokens) - 1) and draft.tokens[known] == tokens[known]:
        known += 1
    draft.roll_back(known)
    logits = draft.process(tokens[known:])[-1]
    proposed: list[int] = []
    while len(proposed) < length:
        proposed.append(choose(logits, len(tokens) + len(proposed), temperature, seed))
        if len(proposed) < length:
            logits = draft.process(proposed[-1:])[-1]
    return proposed


def generate(
    target: Model,
    draft: Model | None,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    draft_length: int = 4,
    temperature: float = 0.0,
    seed: int = 0,
) -> Iterator[Round]:
    """The answer to ``prompt``, round by round. The same seed gives the same tokens with any draft, or none."""
    target.roll_back(0)
    tokens = list(prompt)
    logits = target.process(tokens)[-1]  # the first token comes from the prompt: there is nothing to verify yet
    tokens.append(choose(logits, len(tokens), temperature, seed))
    yield Round(tokens[-1:], drafted=0)
    while len(tokens) - len(prompt) < max_tokens and tokens[-1] != target.llama.token_eos():
        length = min(draft_length, max_tokens - (len(tokens) - len(prompt)) - 1)
        proposed = propose(draft, tokens, length, temperature, seed) if draft is not None and length > 0 else []
        rows = target.process([tokens[-1], *proposed])  # the last token isn't in the cache yet
        new: list[int] = []
        for row in rows:
            new.append(choose(row, len(tokens) + len(new), temperature, seed))
            is_accepted = len(new) <= len(proposed) and new[-1] == proposed[len(new) - 1]
            if not is_accepted or new[-1] == target.llama.token_eos():
                break
        tokens += new
        target.roll_back(len(tokens) - 1)  # drops the rejected part of the draft
        yield Round(new, drafted=len(proposed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("draft")
    parser.add_argument("prompt")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=100)
    options = parser.parse_args()
    target, draft = Model(options.target), Model(options.draft)
    prompt = target.llama.tokenize(options.prompt.encode())
    rounds = list(generate(target, draft, prompt, max_tokens=options.max_tokens, temperature=options.temperature))
    tokens = [token for one in rounds for token in one.tokens]
    passes, accepted = len(rounds) - 1, len(tokens) - len(rounds)
    print(target.llama.detokenize(tokens).decode(errors="replace"))
    drafted = sum(one.drafted for one in rounds)
    print(f"\n{len(tokens)} tokens in {passes} passes; {accepted} of {drafted} draft tokens were accepted")


if __name__ == "__main__":
    main()
