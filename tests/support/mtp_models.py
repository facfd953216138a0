"""Tiny models with an MTP head (``nextn``), which predicts the token after the next one, or with several in a chain.

Their layers are in `tests.support.head_architectures`. A head's input is the embedding of a token, and the hidden state
of the token *before* it: the target's, or that of the head before it in the chain.

`make_table_model` knows its text: each token is followed by one certain token, because attention and feed-forward of
the target write nothing. Its head looks only at the hidden state, which tells the token before, and from that
concludes what comes after the next. So it is always right, and if a token were paired with another one's hidden state,
it would always be wrong. After the tokens of ``wrong_after``, it is wrong; of several heads, each after its own.

`make_random_model` has random weights throughout. Its head is sometimes right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import (
    CHATML_TEMPLATE,
    NORMAL,
    RandomWeights,
    Shape,
    Tensors,
    Vocabulary,
    make_model,
    spm_vocabulary,
)
from tests.support.head_architectures import METADATA, TENSORS
from tests.support.head_architectures import HeadArchitecture as HeadArchitecture

ARCHITECTURES: tuple[HeadArchitecture, ...] = ("glm4moe", "qwen35")
"""Those that are tested most."""
CHAINS: tuple[HeadArchitecture, ...] = ("hy_v3", "mimo2", "step35")
"""Those that can have several heads."""
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
    *wrong_after: Collection[int],
    follows: Mapping[int, int] | None = None,
    without: tuple[str, ...] = (),
    unused: int = 0,
    scaled: bool = False,
    **options: Any,
) -> Path:
    """Write a model whose text is `cycle`, and whose head is wrong after the tokens ``wrong_after`` only. It has as
    many heads as there are ``wrong_after``, and one if there is none.

    ``follows`` takes the place of `cycle`.
    Tensors whose names begin with one of ``without`` are left out. So many ``unused`` tokens are added, which no text
    has. More layers, a larger width and a larger feed-forward network cost more, and leave the text as it is.
    ``scaled``: the heads' matrices have scales of 1, as files in NVFP4 have them.
    """
    follows, heads = follows or cycle(), max(len(wrong_after), 1)
    vocabulary = spm_vocabulary(SIZE)
    vocabulary.tokens += [f"▁unused{number}" for number in range(unused)]
    vocabulary.types += [NORMAL] * unused
    assert vocabulary.scores is not None
    vocabulary.scores += [-1e6] * unused

    def tensors(shape: Shape, random: RandomWeights) -> Tensors:
        made = TENSORS[architecture](shape, random, shape.layers - heads)
        write(made, 0.0)
        step = np.zeros((SIZE, SIZE), np.float32)  # from a token to the one that follows it
        step[[follows[token] for token in range(SIZE)], range(SIZE)] = 1.0
        square, wide = (shape.width, shape.width), (shape.vocabulary, shape.width)
        made["token_embd.weight"] = padded(np.eye(SIZE, dtype=np.float32), wide)
        made["output.weight"] = padded(step * np.float32(CERTAIN / shape.width**0.5), wide)
        for number, tokens in enumerate(wrong_after or [()], shape.layers - heads):
            made |= _joining(number, shape.width)
            made[_projection(number)] = np.hstack([padded(pushed(tokens, follows), square), padded(step, square)])
            made |= _scales(number, made) if scaled else {}
        return {name: tensor for name, tensor in made.items() if not name.startswith(without)}

    options.setdefault("width", SIZE)
    return _make(path, architecture, heads, tensors, vocabulary=vocabulary, sharpness=1.0, **options)


def pushed(wrong_after: Collection[int], follows: Mapping[int, int]) -> NDArray[np.float32]:
    """What makes a head wrong after these tokens, for the embedding of a token."""
    push = np.zeros((SIZE, SIZE), np.float32)
    other = next(iter(follows.values()))
    for token in wrong_after:
        push[follows[other] if token == other else other, token] = PUSH
    return push


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
    heads: int = 1,
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
        numbers = range(shape.layers - heads, shape.layers)
        made = TENSORS[architecture](shape, random, shape.layers - heads)
        made["output.weight"][ends] = 0.0
        own = tuple(f"blk.{number}." for number in numbers)
        write({name: tensor for name, tensor in made.items() if name.startswith(own)}, head_writes)
        write({name: tensor for name, tensor in made.items() if not name.startswith(own)}, writes)
        passed = np.eye(shape.width, dtype=np.float32)
        for number in numbers:
            hidden = LITTLE * random.matrix(shape.width, shape.width, shape.width**-0.5)
            made |= _joining(number, shape.width)
            made[_projection(number)] = np.hstack([passed, hidden])
        return made

    options.setdefault("width", 64)
    return _make(path, architecture, heads, tensors, vocabulary=vocabulary, **options)


def make_head_file(path: Path, architecture: HeadArchitecture, *wrong_after: Collection[int]) -> Path:
    """Write only the head of a table model, as makers put it beside a model."""
    trunk = tuple(f"blk.{number}." for number in range(_TRUNK))
    return make_table_model(path, architecture, *wrong_after, without=trunk)


def rounds_of(answer: Sequence[int], depth: int, *wrong_after: Collection[int]) -> list[tuple[int, int]]:
    """Tokens tested and accepted in each verify pass, as they follow from the plain ``answer`` of a table model.

    Every pass drafts ``depth`` tokens, fewer where the answer ends; a token is accepted if all before it are, and the
    head is not wrong after the token before it. Of several heads in a chain, each drafts the token of its number.
    """
    if len(wrong_after) > 1:
        depth = min(depth, len(wrong_after))
    else:
        wrong_after = wrong_after * depth
    rounds, place = [], 0
    while place < len(answer) - 1:
        tested = min(depth, len(answer) - 2 - place)
        accepted = 0
        while accepted < tested and answer[place + accepted] not in wrong_after[accepted]:
            accepted += 1
        rounds.append((tested, accepted))
        place += accepted + 1
    return rounds


def _make(
    path: Path,
    architecture: HeadArchitecture,
    heads: int,
    tensors: Callable[[Shape, RandomWeights], Tensors],
    /,
    **options: Any,
) -> Path:
    options = {
        "weights": "F32",
        "layers": _TRUNK + heads,
        "heads": 4,
        "context_length": 2048,
        "chat_template": CHATML_TEMPLATE,
        **options,
    }

    edit = options.pop("edit", None)

    def metadata(writer: gguf.GGUFWriter) -> None:
        METADATA[architecture](writer, options["layers"] - heads, options["layers"])
        writer.add_nextn_predict_layers(heads)
        if edit is not None:
            edit(writer)

    return make_model(path, architecture=architecture, edit=metadata, tensors=tensors, **options)


def write(tensors: Tensors, share: float) -> None:
    """Let all layers change what they get only by this ``share`` of what they did."""
    for name in tensors:
        if name.endswith(("attn_output.weight", "ssm_out.weight")) or ".ffn_down" in name:
            tensors[name] *= np.float32(share)


def _projection(number: int) -> str:
    """The tensor that makes one vector of an embedding and a hidden state."""
    return f"blk.{number}.nextn.eh_proj.weight"


def _scales(number: int, made: Tensors) -> Tensors:
    """Those of a head's matrices in the layer of this ``number``."""
    names = (name for name in made if name.startswith(f"blk.{number}.") and made[name].ndim == 2)
    scales = (name.replace("weight", kind) for name in names if "gate_inp" not in name for kind in _SCALES)
    return {name: np.ones(1, np.float32) for name in scales}


_SCALES = ("scale", "input_scale")


def _joining(number: int, width: int) -> Tensors:
    """The norms of a head in the layer of this ``number``."""
    return {f"blk.{number}.nextn.{name}.weight": np.ones(width, np.float32) for name in ("enorm", "hnorm")}
