"""A llama: RMS norm, rotary embedding over neighbouring pairs, SwiGLU, tied embeddings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; `feed_forward` is the inner width."""

    width: int
    layers: int
    heads: int
    feed_forward: int
    vocabulary: int = 4096
    context: int = 2048

    @property
    def head_size(self) -> int:
        return self.width // self.heads


TARGET = Shape(width=768, layers=2, heads=12, feed_forward=2048)
DRAFT = Shape(width=192, layers=1, heads=3, feed_forward=512)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.width, bias=False)
        self.v = nn.Linear(shape.width, shape.width, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor] | None = None) -> Tensor:
        batch, length, width = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, -1, self.shape.head_size).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        q, k = rotate(q, rope), rotate(k, rope)
        # Written out: on a CPU the backward pass of PyTorch's own attention takes a fifth of a training step.
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.shape.head_size)
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
        y = torch.softmax(scores.float(), -1).to(v.dtype) @ v
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.o(y if wanted is None else y[wanted])


class Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, NORM_EPSILON)
        self.attention = Attention(shape)
        self.feed_norm = nn.RMSNorm(shape.width, NORM_EPSILON)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """Everything after the attention."""
        x = x + self.dropout(attended)
        y = self.feed_norm(x)
        return x + self.dropout(self.down(F.silu(self.gate(y)) * self.up(y)))


class Llama(nn.Module):
    """Returns normed hidden states; `logits` turns them into scores over the vocabulary."""

    def __init__(self, shape: Shape, dropout: float = 0.0) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, NORM_EPSILON)
        self.rope = rope_table(shape)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                scale = 1 / math.sqrt(2 * shape.layers) if name.endswith(("o.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=scale / math.sqrt(parameter.shape[1]))

    def forward(self, tokens: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Hidden states at the positions wanted; the last layer is spared the work for all others."""
        length = tokens.shape[1]
        rope = self.rope[0][:length], self.rope[1][:length]
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers[:-1]:
            x = layer.rest(x, layer.attention(layer.attention_norm(x), rope))
        layer = self.layers[-1]
        attended = layer.attention(layer.attention_norm(x), rope, (rows, columns))
        return self.norm(layer.rest(x[rows, columns], attended))

    def summary(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """What the first layer alone makes of the last token of each row: a tenth of the work of the whole model."""
        batch, length = tokens.shape
        layer, shape = self.layers[0], self.shape
        attention = layer.attention
        last = torch.arange(batch), lengths - 1
        x = self.dropout(self.embedding(tokens))
        y = layer.attention_norm(x)
        x = x[last]
        kv_shape = (batch, length, shape.heads, shape.head_size)
        k, v = attention.k(y).view(kv_shape).transpose(1, 2), attention.v(y).view(kv_shape).transpose(1, 2)
        q = attention.q(y[last]).view(batch, shape.heads, 1, shape.head_size)
        q = rotate(q, (self.rope[0][last[1], None, None], self.rope[1][last[1], None, None]))
        k = rotate(k, (self.rope[0][:length], self.rope[1][:length]))
        seen = (torch.arange(length) < lengths[:, None])[:, None, None]
        pooled = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.norm(layer.rest(x, attention.o(pooled.reshape(batch, shape.width))))

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight)

    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


def rope_table(shape: Shape) -> tuple[Tensor, Tensor]:
    frequencies = ROPE_BASE ** (-torch.arange(0, shape.head_size, 2) / shape.head_size)
    angles = torch.outer(torch.arange(shape.context), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each pair of neighbouring values, as llama.cpp's `llama` architecture does."""
    cos, sin = rope[0].to(x.dtype), rope[1].to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
