"""Tiny random mixture-of-experts models, of architecture llama."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.gguf_files import CHATML_TEMPLATE, RandomWeights, Shape, Tensors, llama_weights, make_model


def make_expert_model(path: Path, *, experts: int = 4, used: int = 2, **options: Any) -> Path:
    """Write a model whose every layer has so many experts, ``used`` of them for each token; ``options`` as for
    `make_model`."""

    def metadata(writer: gguf.GGUFWriter) -> None:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)

    options.setdefault("weights", "F32")
    options.setdefault("chat_template", CHATML_TEMPLATE)
    return make_model(path, edit=metadata, tensors=partial(_tensors, experts), **options)


def _tensors(count: int, shape: Shape, random: RandomWeights) -> Tensors:
    tensors = llama_weights(shape, random)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        for part in ("gate", "up", "down"):
            matrix = tensors.pop(f"{block}ffn_{part}.weight")
            (rows, columns), scale = matrix.shape, float(np.std(matrix))
            experts = [matrix, *(random.matrix(rows, columns, scale) for _ in range(count - 1))]
            tensors[f"{block}ffn_{part}_exps.weight"] = np.stack(experts)
        tensors[f"{block}ffn_gate_inp.weight"] = random.matrix(count, shape.width, shape.width**-0.5)
    return tensors
