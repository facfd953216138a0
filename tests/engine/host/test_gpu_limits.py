"""A KV cache that a GPU can't compute with is refused before it is allocated; `tests.engine.gpu` has a real GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.engine.host import gpu_limits
from app.engine.host.gpu_limits import check_cache
from app.engine.llama import backend
from app.engine.llama.backend import can_compute_with
from app.errors import KnownError
from app.models.gguf import read_header
from app.protocol.limits import KvType
from tests.support.gguf_files import make_model

KEYS = 64
"""Numbers in the keys of a token, in each layer of the model."""


@pytest.mark.parametrize(("kv_type", "bytes_per_token"), [("f16", 2 * KEYS), ("q8_0", 34 * KEYS // 32)])
def test_the_longest_possible_context_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kv_type: KvType, bytes_per_token: int
) -> None:
    header = read_header(make_model(tmp_path / "model.gguf", width=KEYS, heads=2))
    monkeypatch.setattr(gpu_limits, "can_compute_with", lambda size: size <= 4096 * bytes_per_token)
    check_cache(header, 4096, kv_type, -1)
    with pytest.raises(KnownError, match=r"for 4,097 tokens is too large .* at most 4,096 tokens"):
        check_cache(header, 4097, kv_type, -1)
    with pytest.raises(KnownError, match=r"for 100,000 tokens is too large .* at most 4,096 tokens"):
        check_cache(header, 100_000, kv_type, 2)  # the output, and a layer
    check_cache(header, 100_000, kv_type, 1)
    check_cache(header, 100_000, kv_type, 0)


def test_without_a_gpu_everything_can_be_computed_with() -> None:
    backend.start()
    if backend.gpu_devices():
        pytest.skip("there is one")
    assert can_compute_with(2**40)
