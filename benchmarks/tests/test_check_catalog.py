"""What ``scripts/check-catalog`` finds on the hub of the tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.models.gguf import GgufHeader, read_header
from app.models.hub.catalog import (
    Catalog,
    CatalogFile,
    CatalogModel,
    DraftModel,
    Inside,
    NGrams,
    PublishedHead,
    Sidecar,
    VisionFile,
)
from app.models.memory_shape import shape_of
from tests.support.hub_models import write_hub_models
from tests.support.hub_server import HubServer, without_settings_of_the_system

SCRIPT = Path(__file__).parents[2] / "scripts" / "check-catalog"


@pytest.fixture(autouse=True)
def _no_settings_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings_of_the_system(monkeypatch)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_hub_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


def per_token(header: GgufHeader) -> int:
    return 2 * sum(layer.keys + layer.values for layer in shape_of(header).layers if not layer.window)


def entry(id: str, path: Path, accelerator: Inside | Sidecar | DraftModel | NGrams) -> CatalogModel:
    """As the file of a test is; Gemma's windows are 32 tokens, which with a batch are 768 cells."""
    header = read_header(path)
    layers = shape_of(header).layers
    file = CatalogFile(
        repository=f"maker/{id}",
        file=f"{id}-Q4_0.gguf",
        quantization="Q4_0",
        size=path.stat().st_size,
        gpu=4,
        context=1024,
        accelerator=accelerator,
    )
    return CatalogModel(
        id=id,
        title=id,
        kind="chat",
        why="For tests.",
        license="apache-2.0",
        files=[file],
        kv_per_token=per_token(header),
        window=768 * 2 * sum(layer.keys + layer.values for layer in layers if layer.window),
        state=sum(layer.state for layer in layers),
    )


@pytest.fixture
def catalog(server: HubServer, files: dict[str, Path]) -> Catalog:
    """One model of each kind, and the hub as it says."""
    other = files["other"]
    draft = DraftModel(
        title="Small",
        repository="maker/small",
        file="small-Q8_0.gguf",
        quantization="Q8_0",
        size=other.stat().st_size,
        kv_per_token=per_token(read_header(other)),
        license="mit",
    )
    beside = Sidecar(
        architecture="gemma4-assistant",
        file="mtp-beside.gguf",
        size=files["assistant"].stat().st_size,
    )
    server.add("maker/inside", {"inside-Q4_0.gguf": files["inside"]})
    beside_files = {"beside-Q4_0.gguf": files["gemma"], "mtp-beside.gguf": files["assistant"]}
    server.add("maker/beside", {**beside_files, "mmproj-F16.gguf": files["vision"]})
    server.add("maker/drafted", {"drafted-Q4_0.gguf": other})
    server.add("maker/small", {"small-Q8_0.gguf": other}, license="mit")
    server.add("maker/plain", {"plain-Q4_0.gguf": files["inside"]})
    models = [
        entry("inside", files["inside"], Inside(architecture="qwen35")),
        msgspec.structs.replace(
            entry("beside", files["gemma"], beside),
            mmproj=VisionFile(file="mmproj-F16.gguf", size=files["vision"].stat().st_size),
        ),
        entry("drafted", other, draft),
        entry("plain", files["inside"], NGrams()),
    ]
    server.add("maker/heads", {"Large-EAGLE3-Q8_0.gguf": files["eagle3"]})
    heads = [PublishedHead(names=["Large"], repository="maker/heads", source="tests")]
    return Catalog(notes=["For tests."], models=models, heads=heads)


def run(server: HubServer, catalog: Catalog, folder: Path, *more: str) -> tuple[int, str]:
    """The script as one starts it: its exit status and what it says."""
    file = folder / "catalog.json"
    file.write_bytes(msgspec.json.encode(catalog))
    command = [sys.executable, str(SCRIPT), "--endpoint", server.endpoint, "--catalog", str(file), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_nothing_has_changed(server: HubServer, catalog: Catalog, tmp_path: Path) -> None:
    status, told = run(server, catalog, tmp_path)
    assert (status, "CHANGED" in told) == (0, False), told
    assert told.endswith("5 files looked up, 0 changes.\n")
    assert "has an MTP head inside that the catalog doesn't use" in told
    sent = sum(one.sent for one in server.bodies())
    assert sent < sum(file.size for repository in server.repositories.values() for file in repository.files.values())


def test_what_has_changed_is_told(server: HubServer, catalog: Catalog, files: dict[str, Path], tmp_path: Path) -> None:
    server.add("maker/inside", {"inside-Q4_0.gguf": files["plain"]}, license="other-license")
    server.add("maker/beside", {"beside-Q4_0.gguf": files["gemma"], "mtp-beside.gguf": files["head"]})
    server.add("maker/small", {"small-Q4_0.gguf": files["other"]}, license="mit")
    del server.repositories["maker/plain"]
    server.add("maker/heads", {"Large-EAGLE3-Q8_0.gguf": files["other"]})
    status, told = run(server, catalog, tmp_path)
    assert status == 1
    for line in (
        "inside Q4_0: CHANGED",
        "  - no MTP head inside",
        "  - license: other-license, listed as apache-2.0",
        f"  - size of inside-Q4_0.gguf: {files['plain'].stat().st_size:,} bytes, listed as",
        "  - mtp-beside.gguf is no MTP head of the architecture gemma4-assistant",
        "  - maker/small no longer has small-Q8_0.gguf; it has small-Q4_0.gguf",
        "  - maker/plain is gone",
        "maker/heads: CHANGED",
        "  - maker/heads has no EAGLE-3 head",
    ):
        assert line in told, told
    status, told = run(server, catalog, tmp_path, "drafted")
    assert (status, "inside" in told) == (1, False)
    assert told.endswith("1 file looked up, 1 change.\n")


def test_vision_files(server: HubServer, catalog: Catalog, files: dict[str, Path], tmp_path: Path) -> None:
    gemma = {"beside-Q4_0.gguf": files["gemma"], "mtp-beside.gguf": files["assistant"]}
    listed = f"{files['vision'].stat().st_size:,}"
    server.add("maker/beside", {**gemma, "mmproj-F16.gguf": files["other"]})
    status, told = run(server, catalog, tmp_path, "beside")
    assert status == 1
    assert "  - mmproj-F16.gguf is no vision file" in told
    assert f"  - size of mmproj-F16.gguf: {files['other'].stat().st_size:,} bytes, listed as {listed}" in told
    server.add("maker/beside", gemma)
    status, told = run(server, catalog, tmp_path, "beside")
    assert (status, "  - maker/beside no longer has mmproj-F16.gguf; it has" in told) == (1, True)
    server.add("maker/beside", {**gemma, "mmproj-F16.gguf": files["vision"]})
    unknown = msgspec.structs.replace(catalog.models[1], mmproj=VisionFile(file="mmproj-F16.gguf"))
    status, told = run(server, msgspec.structs.replace(catalog, models=[unknown]), tmp_path)
    assert status == 0 and f"mmproj-F16.gguf: {listed} bytes, not listed" in told


def test_memory_that_is_listed_wrong(server: HubServer, catalog: Catalog, tmp_path: Path) -> None:
    first = msgspec.structs.replace(catalog.models[0], kv_per_token=1, state=1)
    status, told = run(server, msgspec.structs.replace(catalog, models=[first]), tmp_path)
    assert status == 1
    assert f"  - KV cache: {catalog.models[0].kv_per_token:,} bytes, listed as 1" in told
    assert f"  - state: {catalog.models[0].state:,} bytes, listed as 1" in told


def test_no_network(server: HubServer, catalog: Catalog, tmp_path: Path) -> None:
    status, told = run(server, catalog, tmp_path, "--endpoint", "http://127.0.0.1:9")
    assert status == 2 and "check-catalog: " in told
    assert run(server, catalog, tmp_path, "nothing")[0] == 2
