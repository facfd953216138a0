"""The tokenizer in a GGUF file, with llama.cpp's rules for what the file leaves out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from app.models.gguf_parser import Array, Value, text_of
from app.models.gguf_types import VALUE_STRING

TOKENS_KEY = "tokenizer.ggml.tokens"
TYPES_KEY = "tokenizer.ggml.token_type"
SCORES_KEY = "tokenizer.ggml.scores"
MODEL_KEY = "tokenizer.ggml.model"

_KINDS = {
    "llama": "SPM",
    "gpt2": "BPE",
    "gemma4": "BPE",
    "hybriddna": "BPE",
    "whitespace": "BPE",
    "bert": "WPM",
    "t5": "UGM",
    "rwkv": "RWKV",
    "plamo2": "PLaMo-2",
}
_DEFAULT_BOS = {"llama": 1, "bert": 101, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 1}
_DEFAULT_EOS = {"llama": 2, "t5": 1, "gpt2": 11, "hybriddna": 11, "whitespace": 11, "plamo2": 2}
_PRE_WITHOUT_BOS = ("chatglm-bpe", "glm4", "glm5")
_PRE_THAT_ADD_BOS = (
    "chameleon",
    "falcon-h1",
    "falcon3",
    "gemma4",
    "jina-v5-nano",
    "lfm2",
    "llama-bpe",
    "llama-v3",
    "llama3",
    "midm-2.0",
    "pixtral",
    "tekken",
)


class TokenizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer without its tokens; ids are ``None`` if there is no such token."""

    kind: str
    """llama.cpp's type of vocabulary, which several models share: ``SPM``, ``BPE``, …"""
    model: str
    """As the file names it: ``llama``, ``gpt2``, ``bert``, …"""
    pre: str
    size: int
    """Tokens."""
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    fingerprint: str
    """SHA-256 of the list of tokens: the same only for equal lists."""


class Tokenizer(TokenizerFacts, frozen=True, kw_only=True, eq=False):
    """With its tokens."""

    tokens: tuple[bytes, ...]
    eot_id: int | None
    """End of turn, if the file names it; llama.cpp finds more by their text."""

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.size} tokens)"


def read_tokenizer(values: Mapping[str, Value]) -> Tokenizer | None:
    """The tokenizer in a file's metadata, or ``None`` if it has none."""
    tokens = values.get(TOKENS_KEY)
    model = text_of(values, MODEL_KEY)
    if not model or not isinstance(tokens, Array) or tokens.kind != VALUE_STRING or tokens.texts is None:
        return None
    pre = "gemma4" if model == "gemma4" else text_of(values, "tokenizer.ggml.pre")
    is_bpe = _KINDS.get(model) == "BPE"
    bos = None if is_bpe and pre in _PRE_WITHOUT_BOS else _DEFAULT_BOS.get(model)
    adds_bos = model in ("llama", "bert") or (is_bpe and pre in _PRE_THAT_ADD_BOS)
    add_bos = _flag(values, "tokenizer.ggml.add_bos_token", adds_bos) or pre == "gemma4"
    return Tokenizer(
        kind=_KINDS.get(model, model),
        model=model,
        pre=pre,
        size=len(tokens.texts),
        tokens=tokens.texts,
        bos_id=_special(values, "bos", bos, tokens.count),
        eos_id=_special(values, "eos", _DEFAULT_EOS.get(model), tokens.count),
        eot_id=_special(values, "eot", None, tokens.count),
        add_bos=add_bos,
        add_eos=_flag(values, "tokenizer.ggml.add_eos_token", model == "t5"),
        fingerprint=tokens.digest,
    )


def _flag(values: Mapping[str, Value], key: str, default: bool) -> bool:
    value = values.get(key)
    return value if isinstance(value, bool) else default


def _special(values: Mapping[str, Value], name: str, default: int | None, count: int) -> int | None:
    """The id of a special token; llama.cpp ignores ids outside the vocabulary and takes its default."""
    value = values.get(f"tokenizer.ggml.{name}_token_id")
    for candidate in (value, default):
        if isinstance(candidate, int) and not isinstance(candidate, bool) and 0 <= candidate < count:
            return candidate
    return None
