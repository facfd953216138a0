"""An EAGLE-3 head (arXiv 2503.01840): one decoder layer over the target's own hidden states.

At position p it takes the token after p and a mix of the target's states at p, or in later steps its own output of the
step before, and says the token after that. Training unrolls those steps, so that it learns to live with its own output.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from training.layers import FeedForward, Norm, Rotation
from training.target import Sizes, TargetFile


class Eagle3(nn.Module):
    """`ids` are the target's tokens that it can say."""

    def __init__(self, sizes: Sizes, ids: NDArray[np.int64], dropout: float = 0.0, length: int = 1024) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.sizes = sizes
        width, kv = sizes.width, sizes.kv_heads * sizes.head_size
        self.register_buffer("ids", torch.from_numpy(ids))
        self.mix_norm = Norm(3 * width, sizes.epsilon)
        self.mix = nn.Linear(3 * width, width, bias=False)
        self.token_norm, self.state_norm = Norm(width, sizes.epsilon), Norm(width, sizes.epsilon)
        self.q = nn.Linear(2 * width, width, bias=False)
        self.k = nn.Linear(2 * width, kv, bias=False)
        self.v = nn.Linear(2 * width, kv, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.inner_norm, self.last_norm = Norm(width, sizes.epsilon), Norm(width, sizes.epsilon)
        self.inner = FeedForward(width, sizes.feed_forward)
        self.head = nn.Linear(width, len(ids), bias=False)
        self.rotate = Rotation(sizes, length)

    @torch.no_grad()
    def start_from(self, target: TargetFile, scales: NDArray[np.float32]) -> None:
        """Begin as the target's last layer over its last kept state; `scales` are the sizes of the three states."""
        width, last = self.sizes.width, f"blk.{target.sizes.layers - 1}."

        def of(name: str) -> Tensor:
            return torch.from_numpy(target.weight(f"{name}.weight"))

        whole = math.sqrt(float((scales**2).mean()))
        self.mix_norm.weight.copy_(torch.from_numpy(np.repeat(whole / scales, width)))
        self.mix.weight.normal_(0, 0.02)
        self.mix.weight[:, 2 * width :] += torch.eye(width)
        self.state_norm.weight.copy_(of(f"{last}attn_norm"))
        self.token_norm.weight.fill_(1.0)
        for part, name in ((self.q, "attn_q"), (self.k, "attn_k"), (self.v, "attn_v")):
            weight = of(last + name)
            part.weight[:, :width].normal_(0, float(weight.std()) / 2)
            part.weight[:, width:] = weight
        self.o.weight.copy_(of(f"{last}attn_output") / float(scales[2]))
        self.inner_norm.weight.copy_(of(f"{last}ffn_norm"))
        self.inner.gate.weight.copy_(of(f"{last}ffn_gate"))
        self.inner.up.weight.copy_(of(f"{last}ffn_up"))
        self.inner.down.weight.copy_(of(f"{last}ffn_down") / float(scales[2]))
        self.last_norm.weight.copy_(of("output_norm"))
        self.head.weight.copy_(torch.from_numpy(target.output())[self.ids])

    def mixed(self, states: Tensor) -> Tensor:
        """What the decoder takes of the target's three states."""
        y: Tensor = self.mix(self.mix_norm(states))
        return y

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.sizes.head_size).transpose(1, 2)

    def unrolled(self, tokens: Tensor, states: Tensor, padding: Tensor, first: int, steps: int) -> list[Tensor]:
        """Outputs of `steps` steps for positions from `first` on.

        `tokens` are embeddings of the token after each position, [rows, positions, width]; `padding` counts the
        positions at the start of each row that are empty.
        """
        length, groups = tokens.shape[1], self.sizes.heads // self.sizes.kv_heads
        places = torch.arange(length)
        named, mixed = self.token_norm(tokens), self.mixed(states)
        inputs = self.drop(torch.cat((named, self.state_norm(mixed)), -1))
        keys = self.rotate(self._heads(self.k(inputs)), places).repeat_interleave(groups, 1)
        values = self._heads(self.v(inputs)).repeat_interleave(groups, 1)
        state, asked = mixed[:, first:], inputs[:, first:]
        outputs: list[Tensor] = []
        own_keys: list[Tensor] = []
        own_values: list[Tensor] = []
        for step in range(steps):
            if step:
                state = torch.cat((mixed[:, first : first + 1], outputs[-1][:, :-1]), 1)
                asked = self.drop(torch.cat((named[:, first:], self.state_norm(state)), -1))
                own_keys = [_later(key) for key in own_keys]
                own_values = [_later(value) for value in own_values]
                own_keys.append(self.rotate(self._heads(self.k(asked)), places[first:]).repeat_interleave(groups, 1))
                own_values.append(self._heads(self.v(asked)).repeat_interleave(groups, 1))
            query = self.rotate(self._heads(self.q(asked)), places[first:])
            hidden = (places[None, :] > places[first:, None] - step)[None] | (places < padding[:, None])[:, None]
            seen = _attended(query, keys, values, hidden[:, None], own_keys, own_values)
            state = state + self.o(seen.transpose(1, 2).flatten(2))
            outputs.append(state + self.inner(self.drop(self.inner_norm(state))))
        return outputs

    def logits(self, output: Tensor) -> Tensor:
        """Of the tokens that it can say."""
        y: Tensor = self.head(self.last_norm(output))
        return y

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """By their names in a GGUF."""
        names = {
            "fc": self.mix, "enc.output_norm": self.mix_norm, "output_norm": self.last_norm, "output": self.head,
            "blk.0.attn_norm": self.token_norm, "blk.0.attn_norm_2": self.state_norm, "blk.0.attn_q": self.q,
            "blk.0.attn_k": self.k, "blk.0.attn_v": self.v, "blk.0.attn_output": self.o,
            "blk.0.ffn_norm": self.inner_norm, "blk.0.ffn_gate": self.inner.gate,
            "blk.0.ffn_up": self.inner.up, "blk.0.ffn_down": self.inner.down,
        }  # fmt: skip
        found = {f"{name}.weight": part.weight.detach().float().numpy() for name, part in names.items()}
        return found | {"d2t": self.ids.numpy()}


def _later(x: Tensor) -> Tensor:
    """The same, one position later."""
    return F.pad(x[:, :, :-1], (0, 0, 1, 0))


def _attended(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor, own_keys: list[Tensor], own_values: list[Tensor]
) -> Tensor:
    """Attention over the first step's cells, and over one cell of each later step."""
    scale = 1 / math.sqrt(query.shape[-1])
    scores = (query @ keys.transpose(-1, -2)).float().mul(scale).masked_fill(hidden, -1e4)
    mine = [(query * key).float().sum(-1, keepdim=True) * scale for key in own_keys]
    weights = torch.softmax(torch.cat((scores, *mine), -1), -1).to(values.dtype)
    length = keys.shape[2]
    seen = weights[..., :length] @ values
    for index, value in enumerate(own_values):
        seen = seen + weights[..., length + index : length + index + 1] * value
    return seen
