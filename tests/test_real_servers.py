"""What scripts/real-servers is made of, without the servers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support import real_servers
from tests.support.live_servers import Product, products
from tests.support.real_models import UnavailableError


def test_without_a_registry_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path)), ("PIP_CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(name, value)
    product = Product("llama.cpp", "1.0", tmp_path / "llama-1.0", "model")
    with pytest.raises(UnavailableError, match=r"^pip can't install llama\.cpp 1\.0 here: "):
        real_servers.install(product)
    assert not (product.folder / "complete").exists()


def test_servers_that_nobody_knows_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(products(tmp_path, [])) == {"vllm", "llama-server"}
    with pytest.raises(SystemExit, match="2"):
        real_servers.main(["--folder", str(tmp_path), "ollama"])
    assert "ollama isn't one of vllm, llama-server" in capsys.readouterr().err


def test_safetensors_are_what_their_readers_expect(tmp_path: Path) -> None:
    """Eight bytes of length, a head in JSON, and the numbers in their order."""
    tensors = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.ones(2, np.float16)[::-1]}
    real_servers._write_safetensors(tmp_path / "model.safetensors", tensors)
    data = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    head, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    assert head["a"] == {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}
    begin, end = head["b"]["data_offsets"]
    assert rest[begin:end] == tensors["b"].tobytes() and end == len(rest)
