"""The catalog is sound, proposes what fits, and becomes downloads."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from app.errors import KnownError
from app.models.hub.api import Hub
from app.models.hub.catalog import Catalog, CatalogModel, CatalogPair, load_catalog, resolve
from app.models.hub.errors import NotFoundError
from app.models.hub.names import is_repository_id
from app.models.hub.network import Network
from app.models.hub.repository import quantization
from app.models.machine_memory import MachineMemory
from app.models.pairing import LARGE_DRAFT_SHARE
from app.protocol.devices import Device
from tests.support.hub_server import HubServer

GB = 10**9
GIB = 2**30
PAIRS = load_catalog().pairs
_BITS = {"Q8_0": 8.5, "Q4_K_M": 4.85}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_every_pair_is_sane(pair: CatalogPair) -> None:
    assert pair.draft.size <= LARGE_DRAFT_SHARE * pair.target.size
    assert 0.5 * pair.memory * GB < pair.needed < pair.memory * GIB
    assert not pair.measured, "say in the notes who measured it, and how"
    for model in (pair.target, pair.draft):
        assert is_repository_id(model.repository)
        assert quantization(model.file) == model.quantization
        assert model.license
        assert "mtp" not in model.repository.lower() + model.file.lower()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_sizes_agree_with_the_parameters_in_the_names(pair: CatalogPair) -> None:
    for model in (pair.target, pair.draft):
        billions = next(
            float(word.removesuffix("B")) for word in model.file.split("-") if word.endswith("B") and word[0].isdigit()
        )
        bits = 8 * model.size / (billions * 1e9)
        # Small models have more than their name says: large vocabularies count, and are quantized less.
        assert 0.95 * _BITS[model.quantization] < bits < 1.75 * _BITS[model.quantization]


def test_the_list_as_a_whole() -> None:
    catalog = load_catalog()
    assert catalog.notes
    assert len({pair.id for pair in catalog.pairs}) == len(catalog.pairs)
    assert len({pair.title for pair in catalog.pairs}) == len(catalog.pairs)
    assert [pair.memory for pair in catalog.pairs] == sorted(pair.memory for pair in catalog.pairs)
    assert {pair.memory for pair in catalog.pairs if pair.kind == "chat"} >= {4, 8, 12, 16, 24, 48}


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
        (machine(gpu(8)), 8),
        (machine(gpu(12)), 12),
        (machine(gpu(16)), 16),
        (machine(gpu(24)), 24),
        (machine(gpu(24), gpu(24)), 48),
        (machine(gpu(80)), 48),
        (machine(gpu(24, free=10)), 12),
        (machine(gpu(12, free=0)), 12),
        (machine(gpu(12, kind="integrated"), memory=16, free=12), 12),
        (machine(gpu(12, kind="integrated"), memory=16, free=6.5), 6),
        (machine(gpu(2)), 6),
        (machine(memory=64), 6),
        (machine(memory=8), 6),
        (machine(memory=6), 4),
        (machine(memory=4), None),
        (machine(memory=2, free=0.1), None),
    ],
)
def test_the_best_that_fits_is_proposed(where: MachineMemory, expected: int | None) -> None:
    pair = load_catalog().propose(where)
    assert (pair.memory if pair else None) == expected
    assert pair is None or pair.kind == "chat"


def test_nothing_fits_without_pairs() -> None:
    assert Catalog(notes=[], pairs=[]).propose(machine(gpu(24))) is None


def test_proposing_does_not_import_the_network() -> None:
    code = "import sys; from app.models.hub.catalog import load_catalog; load_catalog(); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"httpx2", "huggingface_hub", "keyring"} & set(result.stdout.split())


def test_a_pair_becomes_one_item(server: HubServer, network: Network) -> None:
    for pair in PAIRS:
        for number, model in enumerate((pair.target, pair.draft)):
            files = {model.file: bytes([number]) * 10, "other-Q2_K.gguf": b"other", "README.md": b"hi"}
            server.add(model.repository, files, license=model.license)
        item = resolve(Hub(network), pair)
        assert item.title == pair.title
        assert item.files == (
            server.remote_file(pair.target.repository, pair.target.file),
            server.remote_file(pair.draft.repository, pair.draft.file),
        )
        assert item.license in (pair.target.license, f"{pair.target.license}, {pair.draft.license}")
        assert item.id == resolve(Hub(network), pair).id


def test_a_split_target_counts_as_one(server: HubServer, network: Network) -> None:
    pair = CatalogPair(
        id="split",
        title="Split",
        kind="chat",
        memory=48,
        runs_on=["gpu"],
        context=8192,
        why="For this test.",
        measured=False,
        target=model("maker/big", "Big*.gguf"),
        draft=model("maker/small", "small-Q8_0.gguf"),
    )
    parts = [f"Q8_0/big-Q8_0-{number:05d}-of-00002.gguf" for number in (1, 2)]
    server.add("maker/big", {**dict.fromkeys(parts, b"part"), "big-Q4_0.gguf": b"less"}, license="")
    server.add("maker/small", {"small-Q8_0.gguf": b"small"}, license="mit")
    item = resolve(Hub(network), pair)
    assert [file.path for file in item.target] == parts
    assert item.license == "apache-2.0, mit"


def model(repository: str, file: str) -> CatalogModel:
    return CatalogModel(
        repository=repository, file=file, quantization="Q8_0", size=1, kv_per_token=1, license="apache-2.0"
    )


def test_pairs_that_are_gone(server: HubServer, network: Network) -> None:
    pair = PAIRS[0]
    with pytest.raises(NotFoundError):
        resolve(Hub(network), pair)
    server.add(pair.target.repository, {pair.target.file: b"t"})
    server.add(pair.draft.repository, {pair.draft.file.replace("Q4_K_M", "Q2_K"): b"d"})
    with pytest.raises(KnownError, match=f"no longer offers {pair.draft.file}"):
        resolve(Hub(network), pair)
