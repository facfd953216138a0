"""Tiny models that think, each in the way of a family: its marks, as that family's vocabulary has them, and a template.

Their next token depends on the last one alone (attention and feed-forward write nothing): a table says which may follow
which. So what they write is well-formed, and different with every seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import (
    CONTROL,
    NORMAL,
    USER_DEFINED,
    RandomWeights,
    Shape,
    Tensors,
    Vocabulary,
    llama_weights,
    make_model,
    spm_vocabulary,
)

Row = dict[str, float]
"""What may follow, and how often."""
_WORDS: Row = {"▁so": 2, "▁then": 2, "▁yes": 1, "▁no": 1, ".": 1, "<0x0A>": 1, "<0xC3>": 0.5}
_NEVER = -30.0
_BASE = 360
_TURNS = "{% for one in messages %}<|im_start|>{{ one.role }}\n{{ one.content }}<|im_end|>\n{% endfor %}"
_BEGIN = "<|im_start|>assistant"


@dataclass(frozen=True)
class Family:
    """How the models of a family mark their thinking.

    Attributes:
        begins: What may follow the prompt.
        ends: What may follow a word besides words; the end of the answer is among it anyway.
        rows: What may follow these tokens.
        controls: Its control tokens.
        user_defined: Its tokens that are text as well.
        words: Other tokens of its own.
        template: Its chat template.
    """

    begins: Row
    ends: Row
    rows: dict[str, Row]
    controls: tuple[str, ...] = ()
    user_defined: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    template: str = _TURNS + _BEGIN


def _switched(on: str, off: str) -> str:
    is_off = "{% if enable_thinking is defined and not enable_thinking %}"
    return f"{_TURNS}{_BEGIN}{is_off}{off}{{% else %}}{on}{{% endif %}}"


_TAGS = ("<think>", "</think>")
_AROUND: dict[str, Row] = {"<think>": {**_WORDS, "<0x0A>": 5}, "</think>": {**_WORDS, "<0x0A>": 5}}
_SPELLED: dict[str, Row] = {
    "<th": {"ink>": 1},
    "ink>": _WORDS,
    "</": {"thi": 1},
    ".</": {"thi": 1},
    "thi": {"nk>": 1, "nk>▁so": 1},
    "nk>": {**_WORDS, "<0x0A>": 5},
    "nk>▁so": _WORDS,
}
_CLOSES = {"</think>": 0.8, "<think>": 0.1}
_MAY_OPEN: Row = {**_WORDS, "<think>": 20}

FAMILIES = {
    "gpt-oss": Family(
        begins={"<|channel|>": 1},
        ends={"<|end|>": 0.8, "<|return|>": 0.3},
        rows={
            "<|channel|>": {"analysis": 6, "final": 3, "commentary": 1},
            **{channel: {"<|message|>": 1} for channel in ("analysis", "final", "commentary")},
            "<|message|>": _WORDS,
            "<|end|>": {"<|start|>": 1},
            "<|start|>": {"assistant": 1},
            "assistant": {"<|channel|>": 1},
        },
        controls=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>"),
        words=("analysis", "final", "commentary", "assistant"),
        template=(
            "<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>"
            "{% for one in messages %}<|start|>{{ one.role }}"
            "{% if one.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
            "{{ one.content }}<|end|>{% endfor %}<|start|>assistant"
        ),
    ),
    "qwen3.5": Family(
        begins=_WORDS,
        ends=_CLOSES,
        rows=_AROUND,
        user_defined=_TAGS,
        template=_switched("<think>\n", "<think>\n\n</think>\n\n"),
    ),
    "gemma4": Family(
        begins={**_WORDS, "<|channel>": 20},
        ends={"<channel|>": 0.8},
        rows={"<|channel>": {"thought": 1}, "thought": {"<0x0A>": 1}, "<channel|>": _WORDS},
        user_defined=("<|channel>", "<channel|>"),
        words=("thought",),
        template=_switched("", "<|channel>thought\n<channel|>"),
    ),
    "deepseek-v4": Family(
        begins=_WORDS, ends=_CLOSES, rows=_AROUND, user_defined=_TAGS, template=_switched("<think>", "</think>")
    ),
    "glm": Family(begins=_MAY_OPEN, ends=_CLOSES, rows=_AROUND, user_defined=_TAGS),
    "kimi-k2": Family(begins=_MAY_OPEN, ends=_CLOSES, rows=_AROUND, controls=_TAGS),
    "kimi-k3": Family(
        begins=_WORDS,
        ends={"<|close|>": 0.8},
        rows={
            "<|close|>": {"think": 4, "response": 1},
            "think": {"<|sep|>": 1},
            "response": {"<|sep|>": 1},
            "<|sep|>": {**_WORDS, "<|open|>": 20},
            "<|open|>": {"response": 1},
        },
        controls=("<|open|>", "<|close|>", "<|sep|>"),
        words=("think", "response"),
        template=_TURNS + "<|open|>think<|sep|>",
    ),
    "lfm2.5": Family(begins=_MAY_OPEN, ends={"</think>": 1.2}, rows=_AROUND, controls=_TAGS),
    "smollm3": Family(
        begins={**_WORDS, "<th": 20},
        ends={"</": 0.5, ".</": 0.5},
        rows=_SPELLED,
        words=tuple(_SPELLED),
        template=_switched("", "<think>\n\n</think>\n"),
    ),
    "granite": Family(
        begins={**_WORDS, "<th": 20},
        ends={"</": 0.5, "</resp": 0.3},
        rows={
            **_SPELLED,
            "nk>": {**_WORDS, "<resp": 20},
            "<resp": {"onse>": 1},
            "</resp": {"onse>": 1},
            "onse>": _WORDS,
        },
        words=(*_SPELLED, "<resp", "</resp", "onse>"),
        template="{# between <response> and </response> #}" + _TURNS + _BEGIN,
    ),
}


def vocabulary_of(family: Family) -> Vocabulary:
    """Letters and bytes, and the tokens of a family."""
    vocabulary = spm_vocabulary(_BASE)
    own = [word for word in _WORDS if word not in vocabulary.tokens]
    for texts, kind in (
        (family.controls, CONTROL),
        (family.user_defined, USER_DEFINED),
        ((*own, *family.words), NORMAL),
    ):
        vocabulary.tokens += texts
        vocabulary.types += [kind] * len(texts)
    odd = len(vocabulary.tokens) % 4
    vocabulary.tokens += [f"▁unused{number}" for number in range(4 - odd)]
    vocabulary.types += [NORMAL] * (4 - odd)
    assert vocabulary.scores is not None
    vocabulary.scores += [-1e4] * (len(vocabulary.tokens) - len(vocabulary.scores))  # text is spelled with letters
    return vocabulary


ENDLESS = Family(
    begins={"▁so": 1},
    ends={},
    rows={
        "<think>": {"▁so": 1},
        "▁so": {"▁then": 1},
        "▁then": {"▁so": 1},
        "<0x0A>": {"▁yes": 1},
        "</think>": {"▁yes": 1},
        "▁yes": {"▁no": 1},
        "▁no": {".": 1},
        ".": {"</s>": 1},
    },
    user_defined=_TAGS,
    template=_switched("<think>", "</think>"),
)
"""Thinks “ so then so then” until it is stopped, and answers “ yes no.”."""


WORDY = Family(
    begins=_WORDS,
    ends={},
    rows={**{word: _WORDS for word in _WORDS if word != "<0xC3>"}, "<0xA9>": _WORDS, **dict.fromkeys(_TAGS, _WORDS)},
    user_defined=_TAGS,
    template=_switched("<think>", "</think>"),
)
"""Thinks and writes words at random until it is stopped; only a budget ends its thinking."""


def make_thinking_model(path: Path, family: str | Family, *, noise: float = 0.0, context_length: int = 2048) -> Path:
    """A model of a family; with ``noise``, spread of the logarithms of its probabilities, a draft for it."""
    family = FAMILIES[family] if isinstance(family, str) else family
    vocabulary = vocabulary_of(family)
    table = _table(family, vocabulary)
    if noise:
        table += np.random.default_rng(1).normal(0.0, noise, table.shape)

    def tensors(shape: Shape, _: RandomWeights) -> Tensors:
        made = llama_weights(shape, _Nothing(0, 0.0))
        made["token_embd.weight"] = np.eye(shape.vocabulary, dtype=np.float32)
        made["output.weight"] = (table.T / shape.width**0.5).astype(np.float32)
        return made

    size = len(vocabulary.tokens)
    return make_model(
        path,
        vocabulary=vocabulary,
        width=size,
        heads=2,
        layers=1,
        feed_forward=64,
        context_length=context_length,
        weights="F32",
        sharpness=1.0,
        chat_template=family.template,
        tensors=tensors,
        edit=lambda writer: writer.add_add_space_prefix(False),
    )


class _Nothing(RandomWeights):
    """Weights of 0, with which attention and feed-forward write nothing."""

    def matrix(self, rows: int, columns: int, spread: float) -> NDArray[np.float32]:  # noqa: ARG002
        return np.zeros((rows, columns), np.float32)


def _table(family: Family, vocabulary: Vocabulary) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Logits of the next token, shape (last token, next token)."""
    words = {**_WORDS, **family.ends, "</s>": 0.3}
    rows = {**dict.fromkeys(_WORDS, words), "<0xC3>": {"<0xA9>": 1.0}, "<0xA9>": words, **family.rows}
    places = {text: place for place, text in reversed(list(enumerate(vocabulary.tokens)))}
    table = np.full((len(vocabulary.tokens), len(vocabulary.tokens)), _NEVER)
    for last, text in enumerate(vocabulary.tokens):
        for word, weight in rows.get(text, family.begins).items():
            table[last, places[word]] = np.log(weight)
    return table
