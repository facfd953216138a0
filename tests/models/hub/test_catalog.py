"""The catalog is sound, proposes what fits, and knows how models are used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import msgspec
import numpy as np
import pytest

from app.models import heads as model_heads
from app.models.gguf import read_header
from app.models.hub.catalog import (
    Advice,
    Alternate,
    Catalog,
    CatalogFile,
    CatalogModel,
    CatalogSampling,
    DraftModel,
    Inside,
    NGrams,
    Offer,
    Sidecar,
    load_catalog,
)
from app.models.hub.repository import is_repository_id
from app.models.machine_memory import MachineMemory
from app.models.memory_shape import ModelShape, shape_of
from app.models.names import quantization
from app.models.pairing import LARGE_DRAFT_SHARE
from app.protocol.events import Device

GB = 10**9
GIB = 2**30
MODELS = load_catalog().models
FILES = [(model, file) for model in MODELS for file in model.files]
NAMES = [f"{model.id}-{file.quantization}" for model, file in FILES]


@pytest.mark.parametrize(("model", "file"), FILES, ids=NAMES)
def test_every_file_is_sane(model: CatalogModel, file: CatalogFile) -> None:
    offer = Offer.of(model, file, metal=False)
    for memory in filter(None, (file.gpu, file.processor)):
        assert offer.needed < memory * GIB
    assert file.gpu is not None
    assert 0.4 * file.gpu * GB < offer.needed
    where: list[CatalogFile | Alternate] = [file, *file.alternates]
    for place in where:
        assert is_repository_id(place.repository)
        assert "*" in place.file or quantization(place.file) == place.quantization
    match file.accelerator:
        case Sidecar() as head:
            assert head.size < 0.1 * file.size
            assert is_repository_id(head.repository or file.repository)
        case DraftModel() as draft:
            assert draft.size <= LARGE_DRAFT_SHARE * file.size
            assert is_repository_id(draft.repository)
            assert quantization(draft.file) == draft.quantization


def test_the_list_as_a_whole() -> None:
    catalog = load_catalog()
    assert catalog.notes
    assert len({model.id for model in MODELS}) == len(MODELS) == 16
    assert len({model.title for model in MODELS}) == len(MODELS)
    kinds = [type(file.accelerator) for _, file in FILES]
    assert all(kind in kinds for kind in (Inside, Sidecar, DraftModel, NGrams))
    assert {file.gpu for _, file in FILES} == {4, 6, 8, 12, 16, 24, 32, 48}
    for model in MODELS:
        sizes = [file.gpu or 0 for file in model.files]
        assert sizes == sorted(sizes)
        assert model.license not in ("other", "")
        for measured in model.measured:
            assert measured.source and measured.hardware


# ---------------------------------------------------------------- what fits


def gpu(size: float, *, free: float | None = None, kind: str = "gpu") -> Device:
    total = int(size * GIB)
    free_bytes = int(free * GIB) if free is not None else int(0.97 * total)
    return msgspec.convert(
        {"name": "GPU0", "description": "A GPU", "kind": kind, "total_bytes": total, "free_bytes": free_bytes}, Device
    )


def machine(*devices: Device, memory: float = 32, free: float | None = None) -> MachineMemory:
    free_bytes = int((0.75 * memory if free is None else free) * GIB)
    return MachineMemory(memory_total=int(memory * GIB), memory_free=free_bytes, devices=list(devices))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (machine(gpu(4)), "gemma-4-e2b UD-Q4_K_XL"),
        (machine(gpu(6)), "gemma-4-e4b UD-Q4_K_XL"),
        (machine(gpu(8)), "qwen3.5-9b Q4_K_M"),
        (machine(gpu(12)), "gemma-4-12b UD-Q4_K_XL"),
        (machine(gpu(16)), "gpt-oss-20b MXFP4"),
        (machine(gpu(24)), "qwen3.8-27b UD-Q4_K_XL"),
        (machine(gpu(32)), "qwen3.8-27b UD-Q6_K"),
        (machine(gpu(24), gpu(24)), "qwen3.8-27b Q8_0"),
        (machine(gpu(80)), "qwen3.8-27b Q8_0"),
        (machine(gpu(24, free=10)), "gemma-4-12b UD-Q4_K_XL"),
        (machine(gpu(12, free=0)), "gemma-4-12b UD-Q4_K_XL"),
        (machine(gpu(12, kind="integrated"), memory=16, free=12), "gemma-4-12b UD-Q4_K_XL"),
        (machine(gpu(12, kind="integrated"), memory=16, free=6.5), "gemma-4-e4b UD-Q4_K_XL"),
        (machine(gpu(2)), "gemma-4-e2b UD-Q4_K_XL"),
        (machine(memory=64), "gemma-4-e2b UD-Q4_K_XL"),
        (machine(memory=8), "gemma-4-e2b UD-Q4_K_XL"),
        (machine(memory=6), "qwen3.5-2b Q4_K_M"),
        (machine(memory=2, free=0.1), None),
    ],
)
def test_the_best_that_fits_is_proposed(where: MachineMemory, expected: str | None) -> None:
    offer = load_catalog().propose(where)
    assert (f"{offer.model.id} {offer.file.quantization}" if offer else None) == expected
    assert offer is None or offer.model.kind == "chat"


def test_of_each_model_the_largest_file_that_fits_is_offered() -> None:
    def offered(where: MachineMemory) -> dict[str, str]:
        return {offer.model.id: offer.file.quantization for offer in load_catalog().offers(where)}

    assert offered(machine(gpu(24)))["qwen3.8-27b"] == "UD-Q4_K_XL"
    assert offered(machine(gpu(48)))["qwen3.8-27b"] == "Q8_0"
    assert offered(machine(gpu(8)))["qwen3.8-27b"] == "UD-IQ4_XS"
    assert list(offered(machine(gpu(8)))) == [model.id for model in MODELS]
    assert Catalog(notes=[], models=[]).propose(machine(gpu(24))) is None


def test_a_head_that_cannot_run_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    model = next(model for model in MODELS if model.id == "gemma-4-12b")
    (file,) = model.files
    assert isinstance(file.accelerator, Sidecar)
    with_head = Offer.of(model, file, metal=False)
    monkeypatch.setattr(model_heads, "ASSISTANTS", {})
    without = Offer.of(model, file, metal=False)
    assert without.accelerator == NGrams() and without.size == file.size
    assert with_head.accelerator == file.accelerator and with_head.size == file.size + file.accelerator.size
    assert Offer.of(model, file, metal=True).accelerator == NGrams()


def test_proposing_does_not_import_the_network() -> None:
    code = "import sys; from app.models.hub.catalog import load_catalog; load_catalog(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"httpx2", "huggingface_hub", "keyring"} & set(result.stdout.split())


# ---------------------------------------------------------------- how models are used


def test_sampling_depends_on_thinking() -> None:
    advice = load_catalog().advice_for("Qwen3.8-27B-UD-Q4_K_XL.gguf")
    assert advice.level == "medium"
    assert advice.sampling(thinks=False).presence_penalty == 1.5
    assert advice.sampling(thinks=True).presence_penalty == 0.0
    same = Advice(plain=CatalogSampling(top_k=64))
    assert same.sampling(thinks=True) == same.plain
    assert load_catalog().advice_for("unknown", "") == Advice()


# ---------------------------------------------------------------- memory, by the rules of memory_shape


def shape(
    path: Path,
    architecture: str,
    layers: int,
    kv_heads: int | list[int],
    numbers: dict[str, int],
    attends: Sequence[int] | None = None,
    swa: list[bool] | None = None,
) -> ModelShape:
    """A header with the published shape of a model and weights of one number; all layers attend by default."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_embedding_length(2048)
    writer.add_head_count(16)
    writer.add_head_count_kv(kv_heads)
    if swa is not None:
        writer.add_array(f"{architecture}.attention.sliding_window_pattern", swa)
    for key, value in numbers.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    state = "shortconv.conv" if architecture == "lfm2moe" else "ssm_out"
    for layer in range(layers):
        name = "attn_k" if attends is None or layer in attends else state
        writer.add_tensor(f"blk.{layer}.{name}.weight", np.zeros(1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return shape_of(read_header(path))


def head_length(length: int, suffix: str = "") -> dict[str, int]:
    return {f"attention.{kind}_length{suffix}": length for kind in ("key", "value")}


def per_token(found: ModelShape) -> int:
    """Bytes of KV cache in F16 of the layers that keep the whole context."""
    return 2 * sum(layer.keys + layer.values for layer in found.layers if not layer.window)


def check(id: str, found: ModelShape) -> None:
    model = next(model for model in MODELS if model.id == id)
    assert model.kv_per_token == per_token(found)
    assert model.state == sum(layer.state for layer in found.layers)
    cells = 512 + max((layer.window for layer in found.layers), default=0)
    cells += -cells % 256
    assert model.window == 2 * cells * sum(layer.keys + layer.values for layer in found.layers if layer.window)


@pytest.mark.parametrize(
    ("id", "architecture", "layers", "kv_heads", "head"),
    [
        ("qwen3-8b", "qwen3", 36, 8, 128),
        ("qwen2.5-coder-14b", "qwen2", 48, 8, 128),
        ("granite-4.2-8b", "granite", 40, 8, 128),
        ("ministral-3-14b", "mistral3", 40, 8, 128),
        ("gpt-oss-20b", "gpt-oss", 24, 8, 64),
        ("lfm2.5-8b-a1b", "lfm2moe", 24, 8, 64),
    ],
)
def test_ordinary_caches(tmp_path: Path, id: str, architecture: str, layers: int, kv_heads: int, head: int) -> None:
    more = {"gpt-oss": {"attention.sliding_window": 128}, "lfm2moe": {"shortconv.l_cache": 3}}.get(architecture, {})
    attends = range(0, layers, 4) if architecture == "lfm2moe" else None
    check(id, shape(tmp_path / "m.gguf", architecture, layers, kv_heads, head_length(head) | more, attends))
