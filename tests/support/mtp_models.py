"""Tiny models with an MTP head (``nextn``), which predicts the token after the next one, in two architectures.

``glm4moe`` has an ordinary KV cache, ``qwen35`` a running state. Names and shapes of the tensors are those of
llama.cpp's ``src/models``. A head's input is the embedding of a token, and the target's hidden state of the token
*before* it.

`make_table_model` knows its text: each token is followed by one certain token, because attention and feed-forward of
the target write nothing. Its head looks only at the hidden state, which tells the token before, and from that
concludes what comes after the next. So it is always right, and if a token were paired with another one's hidden state,
it would always be wrong. After the tokens of ``wrong_after``, it is wrong.

`make_random_model` has random weights throughout. Its head is sometimes right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.architectures import expert_metadata, experts, qwen_metadata, qwen_tensors
from tests.support.gguf_files import (
    CHATML_TEMPLATE,
    NORMAL,
    RandomWeights,
    Shape,
    Tensors,
    Vocabulary,
    attention,
    feed_forward,
    make_model,
    output,
    spm_vocabulary,
)

HeadArchitecture = Literal["glm4moe", "qwen35"]
ARCHITECTURES: tuple[HeadArchitecture, ...] = ("glm4moe", "qwen35")
_TRUNK = 2
"""Layers without the head's."""
SIZE = 384
"""Tokens of the vocabulary."""
CERTAIN = 20.0
"""How far the logit of the token that follows is above all others."""
LITTLE = 0.2
"""How much a layer of a random model changes what it gets, so that the head is right now and then."""
PUSH = 4.0
"""How much stronger than a hidden state a head listens to a token that makes it wrong."""


def cycle(vocabulary: Vocabulary | None = None) -> dict[int, int]:
    """The token that follows each token in the text of a table model: all ordinary ones in a fixed random order."""
    vocabulary = vocabulary or spm_vocabulary(SIZE)
    normal = [token for token, kind in enumerate(vocabulary.types) if kind == NORMAL]
    order = np.random.default_rng(5).permutation(normal).tolist()
    follows = dict(zip(order, [*order[1:], order[0]], strict=True))
    return {token: follows.get(token, order[token % len(order)]) for token in range(len(vocabulary.tokens))}


def make_table_model(
    path: Path,
    architecture: HeadArchitecture,
    wrong_after: Collection[int] = (),
    *,
    follows: Mapping[int, int] | None = None,
    without: tuple[str, ...] = (),
    unused: int = 0,
    **options: Any,
) -> Path:
    """Write a model whose text is `cycle`, and whose head is wrong after the tokens ``wrong_after`` only.

    ``follows`` takes the place of `cycle`.
    Tensors whose names begin with one of ``without`` are left out. So many ``unused`` tokens are added, which no text
    has. More layers, a larger width and a larger feed-forward network cost more, and leave the text as it is.
    """
    follows = follows or cycle()
    vocabulary = spm_vocabulary(SIZE)
    vocabulary.tokens += [f"▁unused{number}" for number in range(unused)]
    vocabulary.types += [NORMAL] * unused
    assert vocabulary.scores is not None
    vocabulary.scores += [-1e6] * unused

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _TENSORS[architecture](shape, random)
        write(made, 0.0)
        step = np.zeros((SIZE, SIZE), np.float32)  # from a token to the one that follows it
        step[[follows[token] for token in range(SIZE)], range(SIZE)] = 1.0
        push = np.zeros((SIZE, SIZE), np.float32)
        other = next(iter(follows.values()))
        for token in wrong_after:
            push[follows[other] if token == other else other, token] = PUSH
        square, wide = (shape.width, shape.width), (shape.vocabulary, shape.width)
        made["token_embd.weight"] = padded(np.eye(SIZE, dtype=np.float32), wide)
        made["output.weight"] = padded(step * np.float32(CERTAIN / shape.width**0.5), wide)
        made[_projection(shape)] = np.hstack([padded(push, square), padded(step, square)])
        return {name: tensor for name, tensor in made.items() if not name.startswith(without)}

    options.setdefault("width", SIZE)
    return _make(path, architecture, tensors, vocabulary=vocabulary, sharpness=1.0, **options)


def padded(matrix: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.float32]:
    """``matrix`` in the corner of one of ``shape``, which is zero elsewhere."""
    whole = np.zeros(shape, np.float32)
    whole[: len(matrix), : matrix.shape[1]] = matrix
    return whole


def make_random_model(
    path: Path,
    architecture: HeadArchitecture,
    *,
    vocabulary: Vocabulary | None = None,
    writes: float = LITTLE,
    head_writes: float = LITTLE,
    **options: Any,
) -> Path:
    """Write a model with random weights that never ends an answer.

    Its head passes the embedding on to a layer of its own. The target's layers change what they get by the share
    ``writes``, that of the head by ``head_writes``. If the target's write nothing, the next token depends on the last
    one alone.
    """
    vocabulary = vocabulary or spm_vocabulary(SIZE)
    ends = [token for token in (vocabulary.eos, vocabulary.eot) if token is not None]

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = _TENSORS[architecture](shape, random)
        made["output.weight"][ends] = 0.0
        head = f"blk.{shape.layers - 1}."
        write({name: tensor for name, tensor in made.items() if name.startswith(head)}, head_writes)
        write({name: tensor for name, tensor in made.items() if not name.startswith(head)}, writes)
        passed = np.eye(shape.width, dtype=np.float32)
        hidden = LITTLE * random.matrix(shape.width, shape.width, shape.width**-0.5)
        made[_projection(shape)] = np.hstack([passed, hidden])
        return made

    options.setdefault("width", 64)
    return _make(path, architecture, tensors, vocabulary=vocabulary, **options)


def make_head_file(path: Path, architecture: HeadArchitecture, wrong_after: Collection[int] = ()) -> Path:
    """Write only the head of a table model, as makers put it beside a model."""
    trunk = tuple(f"blk.{number}." for number in range(_TRUNK))
    return make_table_model(path, architecture, wrong_after, without=trunk)


def rounds_of(answer: Sequence[int], wrong_after: Collection[int], depth: int) -> list[tuple[int, int]]:
    """Tokens tested and accepted in each verify pass, as they follow from the plain ``answer`` of a table model.

    Every pass drafts ``depth`` tokens, fewer where the answer ends; a token is accepted if all before it are, and the
    head is not wrong after the token before it.
    """
    rounds, place = [], 0
    while place < len(answer) - 1:
        tested = min(depth, len(answer) - 2 - place)
        accepted = 0
        while accepted < tested and answer[place + accepted] not in wrong_after:
            accepted += 1
        rounds.append((tested, accepted))
        place += accepted + 1
    return rounds


def _make(
    path: Path, architecture: HeadArchitecture, tensors: Callable[[Shape, RandomWeights], Tensors], **options: Any
) -> Path:
    options = {
        "weights": "F32",
        "layers": _TRUNK + 1,
        "heads": 4,
        "context_length": 2048,
        "chat_template": CHATML_TEMPLATE,
        **options,
    }

    edit = options.pop("edit", None)

    def metadata(writer: gguf.GGUFWriter) -> None:
        _METADATA[architecture](writer, options["layers"] - 1)
        writer.add_nextn_predict_layers(1)
        if edit is not None:
            edit(writer)

    return make_model(path, architecture=architecture, edit=metadata, tensors=tensors, **options)


def write(tensors: Tensors, share: float) -> None:
    """Let all layers change what they get only by this ``share`` of what they did."""
    for name in tensors:
        if name.endswith(("attn_output.weight", "ssm_out.weight")) or ".ffn_down" in name:
            tensors[name] *= np.float32(share)


def _projection(shape: Shape) -> str:
    """The tensor that makes one vector of an embedding and a hidden state, of the layer behind all others."""
    return f"blk.{shape.layers - 1}.nextn.eh_proj.weight"


def _head(shape: Shape) -> Tensors:
    norms = (f"blk.{shape.layers - 1}.nextn.{name}.weight" for name in ("enorm", "hnorm"))
    return {name: np.ones(shape.width, np.float32) for name in norms}


# ---------------------------------------------------------------- glm4moe: dense layers, experts in the head


def _glm(shape: Shape, random: RandomWeights) -> Tensors:
    width = shape.width
    tensors = {"token_embd.weight": random.matrix(shape.vocabulary, width, 1.0)}
    for number in range(shape.layers):
        block = f"blk.{number}."
        tensors |= attention(block, shape, random)
        tensors |= feed_forward(block, shape, random) if number < shape.layers - 1 else experts(block, shape, random)
        tensors.pop(block + "ffn_norm.weight", None)
        tensors[block + "post_attention_norm.weight"] = np.ones(width, np.float32)
    return tensors | _head(shape) | output(shape, random)


# ---------------------------------------------------------------- qwen35: gated delta net and attention in turn


def _qwen(shape: Shape, random: RandomWeights) -> Tensors:
    return qwen_tensors(shape, random, {*range(1, shape.layers, 2), shape.layers - 1}) | _head(shape)


_METADATA: dict[HeadArchitecture, Callable[[gguf.GGUFWriter, int], None]] = {
    "glm4moe": expert_metadata,
    "qwen35": lambda writer, _trunk: qwen_metadata(writer),
}
_TENSORS: dict[HeadArchitecture, Callable[[Shape, RandomWeights], Tensors]] = {"glm4moe": _glm, "qwen35": _qwen}
