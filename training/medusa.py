"""Medusa heads (arXiv 2401.10774): each says one later token from the target's last hidden state alone."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from training.target import Sizes, TargetFile


class MedusaHead(nn.Module):
    """A residual block, which begins as nothing, and a matrix that begins as the target's."""

    def __init__(self, width: int, ids: Tensor, target: TargetFile) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.head = nn.Linear(width, len(ids), bias=False)
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.bias.zero_()
            self.head.weight.copy_(torch.from_numpy(target.output())[ids])

    def forward(self, state: Tensor) -> Tensor:
        y: Tensor = self.head(state + F.silu(self.linear(state)))
        return y


class Medusa(nn.Module):
    """Heads for the second to the fourth token from a position; `ids` are the target's tokens that they can say."""

    def __init__(self, sizes: Sizes, ids: NDArray[np.int64], target: TargetFile, heads: int = 3) -> None:
        super().__init__()
        self.register_buffer("ids", torch.from_numpy(ids))
        self.heads = nn.ModuleList(MedusaHead(sizes.width, self.ids, target) for _ in range(heads))

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """By the names of published files, and the map of the draft vocabulary to the target's ids."""
        found: dict[str, NDArray[np.generic]] = {"d2t": self.ids.numpy()}
        for index, head in enumerate(self.heads):
            parts = {
                "0.linear.weight": head.linear.weight,
                "0.linear.bias": head.linear.bias,
                "1.weight": head.head.weight,
            }
            for name, value in parts.items():
                found[f"medusa_head.{index}.{name}"] = value.detach().numpy().astype(np.float16)
        return found

    def config(self, sizes: Sizes) -> dict[str, object]:
        """What goes into config.json."""
        return {
            "architectures": ["MedusaModel"], "medusa_num_heads": len(self.heads), "medusa_num_layers": 1,
            "hidden_size": sizes.width, "vocab_size": sizes.vocabulary, "draft_vocab_size": len(self.ids),
            "torch_dtype": "float16",
        }  # fmt: skip
