"""The parts drafters are made of, as llama.cpp computes them: RMS norm, rotation of neighboring pairs, SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.target import Sizes


class Norm(nn.Module):
    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self._epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self._epsilon)


class Rotation:
    """Cosines and sines for `length` positions."""

    def __init__(self, sizes: Sizes, length: int) -> None:
        pace = sizes.rope_base ** (-torch.arange(0, sizes.head_size, 2).float() / sizes.head_size)
        angles = torch.arange(length).float()[:, None] * pace
        self.cosine, self.sine = angles.cos(), angles.sin()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate heads, [rows, heads, positions, size]."""
        cosine, sine = self.cosine[positions], self.sine[positions]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y
