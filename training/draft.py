"""A small draft model of the llama architecture with the target's whole vocabulary.

Its embeddings begin as the principal parts of the target's. While it learns, only the frequent tokens and a few others,
drawn anew for each batch, compete: a matrix of all of them would take most of the time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from training.data import Batch
from training.distill import distilled
from training.layers import FeedForward, Norm, Rotation
from training.target import Sizes, TargetFile

OTHERS = 1024
"""Rare tokens that compete in a batch."""


def draft_sizes(target: Sizes, width: int = 160, layers: int = 2, feed_forward: int = 640) -> Sizes:
    """Sizes of the draft model: heads of 32."""
    return replace(
        target, width=width, layers=layers, feed_forward=feed_forward, heads=width // 32, kv_heads=width // 32
    )


class _Layer(nn.Module):
    def __init__(self, sizes: Sizes, rotate: Rotation) -> None:
        super().__init__()
        self.sizes, self.rotate = sizes, rotate
        width = sizes.width
        self.norm, self.inner_norm = Norm(width, sizes.epsilon), Norm(width, sizes.epsilon)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.inner = FeedForward(width, sizes.feed_forward)
        for weight in (self.o.weight, self.inner.down.weight):
            weight.data.mul_(0.3)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.sizes.head_size).transpose(1, 2)

    def forward(self, x: Tensor, hidden: Tensor, first: int) -> Tensor:
        """Of positions from `first` on."""
        places = torch.arange(x.shape[1])
        y = self.norm(x)
        query = self.rotate(self._heads(self.q(y[:, first:])), places[first:])
        scores = (query @ self.rotate(self._heads(self.k(y)), places).transpose(-1, -2)).float()
        scores = scores.mul(1 / math.sqrt(self.sizes.head_size)).masked_fill(hidden[:, None, first:], -1e4)
        values = self._heads(self.v(y))
        seen = torch.softmax(scores, -1).to(values.dtype) @ values
        x = x[:, first:] + self.o(seen.transpose(1, 2).flatten(2))
        z: Tensor = x + self.inner(self.inner_norm(x))
        return z


class DraftModel(nn.Module):
    def __init__(self, sizes: Sizes, target: TargetFile) -> None:
        super().__init__()
        rotate = Rotation(sizes, 1024)
        self.sizes = sizes
        whole = torch.from_numpy(target.weight("token_embd.weight"))
        _, axes = torch.linalg.eigh(whole.t() @ whole)
        self.embedding = nn.Parameter(whole @ axes[:, -sizes.width :])
        self.layers = nn.ModuleList(_Layer(sizes, rotate) for _ in range(sizes.layers))
        self.last_norm = Norm(sizes.width, sizes.epsilon)

    def forward(self, batch: Batch) -> Tensor:
        """The last state at positions from `batch.first` on, which says the token after the following one."""
        tokens = F.pad(batch.following, (1, 0)).scatter(1, batch.padding[:, None], batch.opening[:, None])
        places = torch.arange(tokens.shape[1])
        hidden = (places[None, :] > places[:, None])[None] | (places < batch.padding[:, None])[:, None]
        x = self.embedding[tokens]
        for layer in self.layers[:-1]:
            x = layer(x, hidden, 0)
        y: Tensor = self.last_norm(self.layers[-1](x, hidden, batch.first + 1))
        return y

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """By their names in a GGUF."""
        found = {"token_embd.weight": self.embedding, "output_norm.weight": self.last_norm.weight}
        for index, layer in enumerate(self.layers):
            parts = {
                "attn_norm": layer.norm, "attn_q": layer.q, "attn_k": layer.k, "attn_v": layer.v,
                "attn_output": layer.o, "ffn_norm": layer.inner_norm, "ffn_gate": layer.inner.gate,
                "ffn_up": layer.inner.up, "ffn_down": layer.inner.down,
            }  # fmt: skip
            found |= {f"blk.{index}.{name}.weight": part.weight for name, part in parts.items()}
        return {name: value.detach().numpy() for name, value in found.items()}


class DraftLesson:
    """`ids` are the frequent tokens."""

    def __init__(self, model: DraftModel, output: Tensor, ids: NDArray[np.int64]) -> None:
        self.module = self.model = model
        self._output, self._ids = output.to(torch.bfloat16), torch.from_numpy(ids)
        rare = torch.ones(len(output), dtype=torch.bool)
        rare[self._ids] = False
        self._rare = rare.nonzero()[:, 0]

    def loss(self, batch: Batch) -> tuple[Tensor, float, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            state = self.model(batch)
        kept = batch.valid.flatten()
        ids = torch.cat((self._ids, self._rare[torch.randint(len(self._rare), (OTHERS,))]))
        last, weights = batch.last.flatten(0, 1)[kept], torch.ones(1, int(kept.sum()))
        total, right = distilled(
            self.model.embedding[ids], self._output[ids], last, weights, [state.flatten(0, 1)[kept]]
        )
        return total, float(kept.sum()), right
