"""Small files as makers put them on the hub: models with an MTP head inside or beside them, and heads alone."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from tests.support.eagle3_models import make_table_head, make_table_target
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.gguf_files import make_model
from tests.support.mtp_models import make_head_file, make_table_model


def write_hub_models(folder: Path) -> dict[str, Path]:
    """``inside``, ``head`` and ``plain`` of qwen35; ``gemma`` with the head ``assistant``; ``llama`` with the head
    ``eagle3``; ``other`` has none.

    ``vision`` is the vision part of a model: its header alone says so.
    """
    return {
        "inside": make_table_model(folder / "inside.gguf", "qwen35"),
        "head": make_head_file(folder / "head.gguf", "qwen35"),
        "plain": make_table_model(folder / "plain.gguf", "qwen35", without=("blk.2.",)),
        "gemma": make_gemma4(folder / "gemma.gguf"),
        "assistant": make_assistant(folder / "assistant.gguf"),
        "llama": make_table_target(folder / "llama.gguf"),
        "eagle3": make_table_head(folder / "eagle3.gguf"),
        "other": make_model(folder / "other.gguf", width=16, heads=1, layers=1),
        "vision": _vision_file(folder / "mmproj.gguf"),
    }


def _vision_file(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_tensor("v.patch_embd.weight", np.zeros((8, 8), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
