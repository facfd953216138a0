"""Small files as makers put them on the hub: models with an MTP head inside or beside them, and heads alone."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.support.gguf_files import make_model
from tests.support.mtp_models import make_head_file, make_table_model

TARGET_WIDTH = 64


def write_hub_models(folder: Path) -> dict[str, Path]:
    """``inside``, ``head`` and ``plain`` of qwen35; ``gemma`` with the head ``assistant``; ``other`` has none."""
    return {
        "inside": make_table_model(folder / "inside.gguf", "qwen35"),
        "head": make_head_file(folder / "head.gguf", "qwen35"),
        "plain": make_table_model(folder / "plain.gguf", "qwen35", without=("blk.2.",)),
        "gemma": make_model(folder / "gemma.gguf", architecture="gemma4", width=TARGET_WIDTH, layers=2),
        "assistant": write_assistant(folder / "assistant.gguf", TARGET_WIDTH),
        "other": make_model(folder / "other.gguf", width=16, heads=1, layers=1),
    }


def write_assistant(path: Path, width: int) -> Path:
    """The header of Gemma 4's head for a target of this ``width``, with weights of one number."""
    writer = gguf.GGUFWriter(path, "gemma4-assistant")
    writer.add_block_count(4)
    writer.add_embedding_length(32)
    writer.add_uint32("gemma4-assistant.embedding_length_out", width)
    writer.add_uint32("gemma4-assistant.nextn_predict_layers", 4)
    writer.add_tensor("nextn.post_projection.weight", np.zeros(1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
