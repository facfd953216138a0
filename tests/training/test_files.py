"""Trained drafters are written as files that llama.cpp loads; the guide stands in for the target."""

import json
import struct
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from training.answers import rendered
from training.target import TargetFile
from training.write import write_eagle3, write_llama, write_safetensors

GUIDE = Path(__file__).parents[2] / "resources" / "guide" / "guide-target.gguf"


@pytest.fixture(scope="module")
def target() -> TargetFile:
    return TargetFile(GUIDE)


def head_tensors(target: TargetFile, ids: np.ndarray) -> dict[str, np.ndarray]:
    sizes, random = target.sizes, np.random.default_rng(1)
    width, kv, inner = sizes.width, sizes.kv_heads * sizes.head_size, sizes.feed_forward
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (width, 3 * width), "enc.output_norm": (3 * width,), "output_norm": (width,), "output": (len(ids), width),
        "blk.0.attn_norm": (width,), "blk.0.attn_norm_2": (width,), "blk.0.ffn_norm": (width,),
        "blk.0.attn_q": (width, 2 * width), "blk.0.attn_k": (kv, 2 * width), "blk.0.attn_v": (kv, 2 * width),
        "blk.0.attn_output": (width, width), "blk.0.ffn_gate": (inner, width), "blk.0.ffn_up": (inner, width),
        "blk.0.ffn_down": (width, inner),
    }  # fmt: skip
    tensors = {f"{name}.weight": random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    return tensors | {"d2t": ids}


def loads(path: Path) -> bool:
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(bytes(path), llama_cpp.llama_model_default_params())
    if model:
        llama_cpp.llama_model_free(model)
    return bool(model)


def test_an_eagle3_head_has_the_targets_tokenizer_and_loads(target: TargetFile, tmp_path: Path) -> None:
    path, ids = tmp_path / "head.gguf", np.arange(64, dtype=np.int64) * 7
    write_eagle3(path, target, target.sizes, (0, 1, 1), head_tensors(target, ids))
    reader = gguf.GGUFReader(path)
    assert reader.fields["general.architecture"].contents() == "eagle3"
    assert reader.fields["eagle3.target_layers"].contents() == [0, 1, 1]
    assert reader.fields["tokenizer.ggml.tokens"].contents() == target.value("tokenizer.ggml.tokens")
    written = {tensor.name: tensor for tensor in reader.tensors}
    assert written["d2t"].data.tolist() == ids.tolist()
    assert written["fc.weight"].tensor_type == gguf.GGMLQuantizationType.Q8_0
    assert loads(path)


def test_a_draft_model_is_a_llama_that_loads(target: TargetFile, tmp_path: Path) -> None:
    path, last = tmp_path / "draft.gguf", f"blk.{target.sizes.layers - 1}."
    names = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
    weights = {f"blk.{index}.{name}.weight": target.weight(f"{last}{name}.weight")
               for index in range(target.sizes.layers) for name in names}  # fmt: skip
    weights |= {name: target.weight(name) for name in ("token_embd.weight", "output_norm.weight")}
    write_llama(path, target, target.sizes, weights)
    assert loads(path)
    assert path.stat().st_size < 0.6 * GUIDE.stat().st_size


def test_safetensors_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "heads.safetensors"
    tensors: dict[str, NDArray[np.generic]] = {
        "d2t": np.arange(5),
        "medusa_head.0.1.weight": np.ones((5, 3), np.float16),
    }
    write_safetensors(path, tensors, {"format": "pt"})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    first, end = header["medusa_head.0.1.weight"]["data_offsets"]
    assert np.frombuffer(body[first:end], np.float16).reshape(5, 3).tolist() == [[1.0] * 3] * 5
    assert header["d2t"] == {"dtype": "I64", "shape": [5], "data_offsets": [0, 40]}
    assert end == len(body)


def test_prompts_are_put_as_the_models_template_does() -> None:
    template = "{% for message in messages %}<{{message.role}}>{{message.content}}{% endfor %}"
    template += "{% if add_generation_prompt %}<a>{% endif %}"
    turns = (("user", "Hi"), ("assistant", "Yes?"), ("user", "<b>"))
    assert rendered(template, turns) == "<user>Hi<assistant>Yes?<user><b><a>"
