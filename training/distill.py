"""The loss of drafters that learn the target's distribution over the tokens that they can say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK = 1024
SHOWN = 256


class _Distilled(torch.autograd.Function):
    """Cross entropies with the target's distribution, chunk by chunk. Their gradients are worked out at once, so that
    nothing large is kept; the value and the shares that are right are only for the log, and only of a few positions.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, own: Tensor, last: Tensor, weights: Tensor, *hidden: Tensor) -> Tensor:
        """`hidden` [positions, width] of each step, `own` the target's rows, `weights` [steps, positions]."""
        half = weight.to(torch.bfloat16)
        slope = torch.zeros_like(weight)
        slopes = [torch.empty_like(one, dtype=torch.float32) for one in hidden]
        total, right = torch.zeros(()), torch.zeros(len(hidden))
        for start in range(0, len(last), CHUNK):
            part = slice(start, start + CHUNK)
            wanted = torch.softmax(last[part].to(torch.bfloat16) @ own.t(), -1)
            best = wanted[:SHOWN].argmax(-1, keepdim=True)
            for step, state in enumerate(hidden):
                given, scale = state[part].to(torch.bfloat16), weights[step, part, None]
                error = torch.softmax(given @ half.t(), -1)
                if start == 0:
                    shown = error[:SHOWN]
                    right[step] = (shown.argmax(-1, keepdim=True) == best).float().mean()
                    total -= shown.gather(-1, best).float().clamp_min(1e-6).log().mean() / len(hidden)
                error.sub_(wanted)
                slopes[step][part] = (error @ half).float() * scale
                slope += error.t() @ (given * scale).to(torch.bfloat16)
        ctx.save_for_backward(slope, *slopes)
        ctx.mark_non_differentiable(right)
        return total, right  # type: ignore[return-value]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        slope, *states = ctx.saved_tensors
        return (slope * slopes[0], None, None, None, *(state * slopes[0] for state in states))


def distilled(
    weight: Tensor, own: Tensor, last: Tensor, weights: Tensor, hidden: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """The loss, whose gradients are those of a sum, and how often each step says the target's favorite token."""
    return _Distilled.apply(weight, own, last, weights, *hidden)  # type: ignore[no-any-return]
