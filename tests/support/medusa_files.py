"""Medusa heads as they are published, for the table models of `tests.support.mtp_models`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.mtp_models import SIZE, cycle

_NAMES = {"float32": "F32", "float16": "F16", "int64": "I64", "uint16": "BF16"}


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]], **changes: Any) -> Path:
    """``changes`` replace entries of the header; numbers of type uint16 are BF16's."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in tensors.items():
        offsets = [len(body), len(body) + tensor.nbytes]
        header[name] = {"dtype": _NAMES[str(tensor.dtype)], "shape": list(tensor.shape), "data_offsets": offsets}
        body += tensor.tobytes()
    text = json.dumps(header | changes).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def table_heads(
    count: int = 3,
    *,
    wrong_after: Collection[int] = (),
    reduced: bool = False,
    ahead: int = 2,
    width: int = SIZE,
    prefix: str = "medusa_head.",
) -> dict[str, NDArray[Any]]:
    """The tensors of heads that know the text of a table model, except behind the tokens in ``wrong_after``.

    Head i says which token comes ``ahead`` + i positions after the one that the hidden state belongs to. ``reduced``:
    their vocabulary has only half of the tokens, in an order of its own.
    """
    tensors = dict[str, NDArray[Any]]()
    ids = np.random.default_rng(3).permutation(SIZE)[: SIZE // 2] if reduced else np.arange(SIZE)
    follows = cycle()
    after_each = np.array([follows[token] for token in range(SIZE)])
    after = np.arange(SIZE)
    for _ in range(ahead):
        after = after_each[after]
    for head in range(count):
        output = np.zeros((SIZE, width), np.float32)
        output[after, np.arange(SIZE)] = 1.0
        wrong = list(wrong_after)
        output[:, wrong] = np.roll(output[:, wrong], 1, axis=0)
        tensors[f"{prefix}{head}.0.linear.weight"] = np.zeros((width, width), np.float16)
        tensors[f"{prefix}{head}.0.linear.bias"] = np.zeros(width, np.float16)
        tensors[f"{prefix}{head}.1.weight"] = output[ids].astype(np.float16)
        after = after_each[after]
    if reduced:
        tensors["d2t"] = ids.astype(np.int64)
    return tensors


def make_medusa(folder: Path, **options: Any) -> Path:
    """A folder with heads for a table model."""
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "medusa_lm_head.safetensors", table_heads(**options))
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 3, "medusa_num_layers": 1}))
    return folder
