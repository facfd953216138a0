"""A KV cache that a GPU can't compute with is refused before it is allocated; `tests.engine.gpu` has a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.host import loading
from app.engine.host.loading import ModelOptions, check_cache
from app.engine.llama import backend
from app.models.gguf import GgufHeader, read_header
from app.protocol.options import KvType, LoadSettings
from app.system import KnownError
from tests.support.gguf_files import make_model

KEYS = 64
"""Numbers in the keys of a token, in each layer of the model."""
F16 = 2 * KEYS
"""Bytes of them."""


@pytest.fixture
def header(tmp_path: Path) -> GgufHeader:
    return read_header(make_model(tmp_path / "model.gguf", width=KEYS, heads=2))


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Limits in bytes by name, 0 for none, of the GPUs there are; tests fill it."""
    found: dict[str, int] = {}
    monkeypatch.setattr(backend, "offload_handles", lambda: {name: number for number, name in enumerate(found)})
    monkeypatch.setattr(loading, "largest_tensor", lambda handle: list(found.values())[handle])
    return found


def options(**settings: object) -> ModelOptions:
    return ModelOptions.of_target(LoadSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kv_type", "bytes_per_token"), [("f16", F16), ("q8_0", 34 * KEYS // 32)])
def test_the_longest_possible_context_is_named(
    header: GgufHeader, gpus: dict[str, int], kv_type: KvType, bytes_per_token: int
) -> None:
    gpus["G0"] = 4096 * bytes_per_token + 1
    check_cache(header, 4096, options(kv_type=kv_type))
    with pytest.raises(KnownError, match=r"for 4,097 tokens is too large .* at most 4,096 tokens"):
        check_cache(header, 4097, options(kv_type=kv_type))
    with pytest.raises(KnownError, match=r"for 100,000 tokens is too large .* at most 4,096 tokens"):
        check_cache(header, 100_000, options(kv_type=kv_type, target_gpu_layers=2))  # the output, and a layer
    check_cache(header, 100_000, options(kv_type=kv_type, target_gpu_layers=1))
    check_cache(header, 100_000, options(kv_type=kv_type, target_gpu_layers=0))
