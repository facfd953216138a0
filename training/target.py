"""What is read of the target's file: its weights as floats, its sizes, and its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama-like model."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int
    rope_base: float
    epsilon: float
    context: int

    @property
    def head_size(self) -> int:
        return self.width // self.heads


class TargetFile:
    """A GGUF of a Llama-like model."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        name = self.value("general.architecture")
        self.sizes = Sizes(
            layers=self.value(f"{name}.block_count"),
            width=self.value(f"{name}.embedding_length"),
            feed_forward=self.value(f"{name}.feed_forward_length"),
            heads=self.value(f"{name}.attention.head_count"),
            kv_heads=self.value(f"{name}.attention.head_count_kv"),
            vocabulary=len(self._reader.fields["tokenizer.ggml.tokens"].data),
            rope_base=self.value(f"{name}.rope.freq_base"),
            epsilon=self.value(f"{name}.attention.layer_norm_rms_epsilon"),
            context=self.value(f"{name}.context_length"),
        )

    def value(self, key: str) -> Any:
        """The value of a metadata key."""
        return self._reader.fields[key].contents()

    def weight(self, name: str) -> NDArray[np.float32]:
        """A tensor as floats, rows first."""
        tensor = self._tensors[name]
        return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)

    def output(self) -> NDArray[np.float32]:
        """The matrix that makes logits, which may be the one of the embeddings."""
        return self.weight("output.weight" if "output.weight" in self._tensors else "token_embd.weight")

    def copy_tokenizer(self, writer: gguf.GGUFWriter, *, template: bool = False) -> None:
        """Give a file that is written the same tokenizer."""
        for key, field in self._reader.fields.items():
            if key.startswith("tokenizer.") and (template or key != "tokenizer.chat_template"):
                kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(key, field.contents(), kind, inner)
