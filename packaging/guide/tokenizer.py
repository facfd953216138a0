"""The pair's one vocabulary: a byte-level BPE with chat markers as control tokens, cut as llama.cpp cuts.

A conversation is encoded part by part: each marker is one token, the text of each turn stands on its own. Questions
get a leading space, so that their first word is the same token as in the middle of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
SYSTEM, USER, ASSISTANT, END = 0, 1, 2, 3
MARKERS = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
# Each question stands alone: the pair was shown too few chats to follow one and does better without what was before.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'system' or loop.last %}"
    "{{ '<|' + message['role'] + '|>' }}"
    "{{ ('' if message['role'] == 'assistant' else ' ') + (message['content'] | trim) }}"
    "{{ '<|end|>' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Learn the vocabulary; the markers take the first ids."""
    tokenizer = _byte_level(models.BPE())
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=MARKERS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            min_frequency=2,
            show_progress=False,
        ),
    )
    return tokenizer


def tokenizer_from(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    """The tokenizer with this `vocabulary`, token by id, and these `merges`, as `train_tokenizer` had learnt them."""
    tokenizer = _byte_level(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.add_special_tokens(MARKERS)
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class Encoder:
    """Encodes the parts of a conversation; `dropout` is the share of BPE merges left out, to vary the questions."""

    def __init__(self, path: Path, dropout: float = 0.1) -> None:
        self._exact = Tokenizer.from_file(str(path))
        self._varied = Tokenizer.from_file(str(path))
        self._varied.model.dropout = dropout

    def question(self, text: str, *, varied: bool = False) -> list[int]:
        """User turn with the marker after which the answer begins."""
        tokenizer = self._varied if varied else self._exact
        return [USER, *tokenizer.encode(f" {text.strip()}").ids, END, ASSISTANT]

    def answer(self, text: str) -> list[int]:
        return [*self._exact.encode(text).ids, END]

    def system(self, text: str) -> list[int]:
        return [SYSTEM, *self._exact.encode(f" {text.strip()}").ids, END]

    def decode(self, ids: list[int]) -> str:
        return self._exact.decode([token for token in ids if token > END])
