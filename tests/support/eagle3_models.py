"""Tiny EAGLE-3 heads, each a file of its own, and targets to go beside them.

A head's input is the embedding of a token, and what the target's layers had before it: the inputs of three layers after
the token *before* that one, joined (``fc``). After its own first token it goes on from its own hidden state.

`make_table_target` and `make_table_head` know their text: each token is followed by one certain token (`cycle`). The
head looks only at what the layers had, which tells the token before, so it is always right, and if a token were paired
with another one's layer inputs, it would always be wrong. After the tokens of ``wrong_after``, it is wrong, and never
proposes a token that is not among those it ``knows``. So `tests.support.mtp_models.rounds_of` says what is accepted.

`make_random_target` and `make_random_head` have random weights throughout. The head is sometimes right, and everything
it reads matters to it: all three layers, the token, and each cell of its cache.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.architectures import qwen_metadata, qwen_tensors
from tests.support.gguf_files import (
    CHATML_TEMPLATE,
    NORMAL,
    RandomWeights,
    Shape,
    Tensors,
    Vocabulary,
    feed_forward,
    llama_weights,
    make_model,
    spm_vocabulary,
)
from tests.support.mtp_models import CERTAIN, LITTLE, SIZE, cycle, padded, write

TargetArchitecture = Literal["llama", "qwen35"]
"""With an ordinary KV cache, and with a running state."""
LAYERS = 4
"""Of a target."""
READ = (1, 2, 3)
"""The layers whose inputs a head reads: 0 is the embedding."""
_EPSILON = 1e-5
_ATTENTION = 1.5
"""How strongly a token's query looks for its own key, so that the head's random layer mostly sees the newest token."""


def make_table_target(
    path: Path,
    architecture: TargetArchitecture = "llama",
    *,
    follows: Mapping[int, int] | None = None,
    unused: int = 0,
    **options: Any,
) -> Path:
    """Write a model whose text is `cycle`, or ``follows``. So many ``unused`` tokens are added, which no text has."""

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _trunk(architecture, shape, random)
        write(made, 0.0)
        wide = (shape.vocabulary, shape.width)
        made["token_embd.weight"] = padded(np.eye(SIZE, dtype=np.float32), wide)
        made["output.weight"] = padded(_steps(follows or cycle()) * np.float32(CERTAIN / shape.width**0.5), wide)
        return made

    options = {"width": SIZE, "sharpness": 1.0, **options}
    return _target(path, architecture, tensors, vocabulary=_vocabulary(unused), **options)


def make_table_head(
    path: Path,
    wrong_after: Collection[int] = (),
    *,
    follows: Mapping[int, int] | None = None,
    knows: Sequence[int] | None = None,
    unused: int = 0,
    read: Sequence[int] = READ,
    own: Collection[str] = ("token_embd.weight", "output.weight"),
    **options: Any,
) -> Path:
    """Write the head of a table target of the same ``follows``, ``unused`` and width.

    With ``knows``, it has a vocabulary of its own of these tokens (``d2t``). Of the two matrices, it has its ``own``.
    If it borrows the target's output, it is always right.
    """
    follows = follows or cycle()
    borrows_output = "output.weight" not in own
    assert not (borrows_output and wrong_after)

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        square, wide = (shape.width, shape.width), (shape.vocabulary, shape.width)
        made = _layer(shape, random)
        write(made, 0.0)
        step = padded(_steps(follows), square)
        nothing = np.zeros(square, np.float32)
        # The layer's input is the token that is to be continued, its output the one that continues it. If the target's
        # matrix gives the logits, which looks one token ahead by itself, the input is the token before.
        first = np.eye(shape.width, dtype=np.float32) if borrows_output else step
        made["fc.weight"] = np.hstack([nothing, first, nothing])
        other = next(iter(follows.values()))
        wrong = {token: follows[other] if follows[token] == other else other for token in wrong_after}
        _advance(made, padded(_steps({**follows, **wrong}), square))
        made["token_embd.weight"] = padded(np.eye(SIZE, dtype=np.float32), wide)
        certain = np.float32(CERTAIN / shape.width**0.5)
        made["output.weight"] = padded(np.eye(SIZE, dtype=np.float32) * certain, wide)
        return _cut(made, own, knows)

    options = {"width": SIZE, "sharpness": 1.0, **options}
    return _head(path, tensors, read, vocabulary=_vocabulary(unused), **options)


def make_random_target(
    path: Path, architecture: TargetArchitecture = "llama", *, writes: float = LITTLE, **options: Any
) -> Path:
    """Write a target with random weights that never ends an answer. Its layers change what they get by ``writes``."""
    vocabulary = spm_vocabulary(SIZE)
    ends = [token for token in (vocabulary.eos, vocabulary.eot) if token is not None]

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _trunk(architecture, shape, random)
        write(made, writes)
        made["output.weight"][ends] = 0.0
        return made

    return _target(path, architecture, tensors, vocabulary=vocabulary, **options)


def make_random_head(
    path: Path,
    target: Path,
    *,
    knows: Sequence[int] | None = None,
    read: Sequence[int] = READ,
    own: Collection[str] = ("token_embd.weight", "output.weight"),
    **options: Any,
) -> Path:
    """Write a head with random weights for the random ``target`` (in F32), whose matrices it has as well."""
    theirs = {one.name: one.data for one in gguf.GGUFReader(target).tensors if "blk." not in one.name}
    width = theirs["output.weight"].shape[1]

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _layer(shape, random)
        write(made, LITTLE)
        block, same = "blk.0.", np.eye(shape.width, dtype=np.float32)
        for name, share in (("attn_q", _ATTENTION), ("attn_k", _ATTENTION), ("attn_v", 1.0)):
            little = LITTLE * random.matrix(shape.width, 2 * shape.width, shape.width**-0.5)
            made[f"{block}{name}.weight"] = np.hstack([share * same, 0.0 * same]) + little
        made[block + "attn_output.weight"] += same
        made["fc.weight"] = LITTLE * random.matrix(shape.width, 3 * shape.width, shape.width**-0.5)
        return _cut(made | {name: theirs[name].copy() for name in ("token_embd.weight", "output.weight")}, own, knows)

    options = {"seed": 7, **options, "width": width, "sharpness": 1.0}
    return _head(path, tensors, read, vocabulary=spm_vocabulary(SIZE), **options)


def make_bare_head(path: Path, read: Sequence[int] = (0, 1, 2), target_width: int = 96, **options: Any) -> Path:
    """Write only what says that a file is a head, and of which targets: for tests that read headers."""

    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_array("eagle3.target_layers", list(read))
        writer.add_uint32("eagle3.target_hidden_size", target_width)

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = llama_weights(shape, random)
        del made["token_embd.weight"]
        return made | {"fc.weight": random.matrix(shape.width, 3 * target_width, 1.0)}

    options = {"layers": 1, "width": target_width, **options}
    return make_model(path, architecture="eagle3", edit=metadata, tensors=tensors, **options)


def make_pair(folder: Path, architecture: TargetArchitecture = "llama", **options: Any) -> tuple[Path, Path]:
    """Write a random target and its head into ``folder``."""
    target = make_random_target(folder / f"{architecture}.gguf", architecture)
    return target, make_random_head(folder / f"eagle3-{architecture}.gguf", target, **options)


def make_table_pair(
    folder: Path, wrong_after: Collection[int] = (), architecture: TargetArchitecture = "llama", **options: Any
) -> tuple[Path, Path]:
    """Write a table target and its head into ``folder``."""
    target = make_table_target(folder / f"{architecture}.gguf", architecture)
    return target, make_table_head(folder / f"eagle3-{architecture}.gguf", wrong_after, **options)


# ---------------------------------------------------------------- parts


def _vocabulary(unused: int) -> Vocabulary:
    vocabulary = spm_vocabulary(SIZE)
    assert vocabulary.scores is not None
    vocabulary.tokens += [f"▁unused{number}" for number in range(unused)]
    vocabulary.types += [NORMAL] * unused
    vocabulary.scores += [-1e6] * unused
    return vocabulary


def _trunk(architecture: TargetArchitecture, shape: Shape, random: RandomWeights) -> Tensors:
    return llama_weights(shape, random) if architecture == "llama" else qwen_tensors(shape, random)


def _target(path: Path, architecture: TargetArchitecture, tensors: Any, **options: Any) -> Path:
    options = {"weights": "F32", "layers": LAYERS, "heads": 4, "context_length": 2048, **options}
    edit = qwen_metadata if architecture == "qwen35" else None
    return make_model(
        path, architecture=architecture, tensors=tensors, edit=edit, chat_template=CHATML_TEMPLATE, **options
    )


def _head(path: Path, tensors: Any, read: Sequence[int], **options: Any) -> Path:
    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_array("eagle3.target_layers", list(read))
        writer.add_uint32("eagle3.target_hidden_size", options["width"])

    options = {"weights": "F32", "heads": 4, "context_length": 2048, **options}
    return make_model(path, architecture="eagle3", layers=1, edit=metadata, tensors=tensors, **options)


def _steps(follows: Mapping[int, int]) -> NDArray[np.float32]:
    """From a token to the one that follows it."""
    step = np.zeros((SIZE, SIZE), np.float32)
    step[[follows[token] for token in range(SIZE)], range(SIZE)] = 1.0
    return step


def _layer(shape: Shape, random: RandomWeights) -> Tensors:
    """A head's only layer, with random weights."""
    block, width, spread = "blk.0.", shape.width, shape.width**-0.5
    kv_width = width // shape.heads * shape.kv_heads
    norms = (block + "attn_norm", block + "attn_norm_2", "output_norm")
    return {
        **{f"{name}.weight": np.ones(width, np.float32) for name in norms},
        block + "attn_q.weight": random.matrix(width, 2 * width, spread),
        block + "attn_k.weight": random.matrix(kv_width, 2 * width, spread),
        block + "attn_v.weight": random.matrix(kv_width, 2 * width, spread),
        block + "attn_output.weight": random.matrix(width, width, spread),
        **feed_forward(block, shape, random),
    }


def _advance(made: Tensors, step: NDArray[np.float32]) -> None:
    """Let the feed-forward network replace a token by the one that follows it: everything else writes nothing."""
    block, width = "blk.0.", len(step)
    normed = (1 / width + _EPSILON) ** -0.5  # what the norm makes of a 1 among zeros
    gated = normed * normed / (1 + np.exp(-normed))
    same = np.eye(width, dtype=np.float32)
    for name in ("ffn_gate", "ffn_up"):
        made[f"{block}{name}.weight"] = padded(same, made[f"{block}{name}.weight"].shape)
    down = (step - same) / np.float32(gated)
    made[block + "ffn_down.weight"] = padded(down, made[block + "ffn_down.weight"].shape)


def _cut(made: Tensors, own: Collection[str], knows: Sequence[int] | None) -> Tensors:
    """Leave out the matrices that are not the head's ``own``, and all tokens but those it ``knows``."""
    for name in ("token_embd.weight", "output.weight"):
        if name not in own:
            made.pop(name, None)
    if knows is not None:
        made["output.weight"] = made["output.weight"][list(knows)]
        made["d2t"] = np.array(knows, np.int64)
    return made
