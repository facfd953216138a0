"""Drafts for a target, found on a hub of many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.models.gguf import GgufHeader, read_header
from app.models.hub.api import Hub
from app.models.hub.catalog import load_catalog
from app.models.hub.drafts import (
    MAX_CHECKED,
    DraftCandidate,
    best_draft,
    find_drafts,
    in_order,
    search_words,
)
from app.models.hub.network import Network
from app.models.hub.repository import RemoteFile, RemoteModel, Repository, UnreachableError
from app.models.pairing import Verdict
from app.system import Canceled
from tests.support.eagle3_models import make_bare_head
from tests.support.gguf_files import make_model
from tests.support.hub_faults import Fault
from tests.support.hub_server import HubServer

SMALL = {"width": 16, "heads": 1, "layers": 1}


class Shelf:
    """Models made for the hub, smaller and larger ones."""

    def __init__(self, server: HubServer, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def add(self, id: str, downloads: int = 0, about: dict[str, Any] | None = None, **options: Any) -> str:
        name = f"{id.rpartition('/')[2]}-Q8_0.gguf"
        path = make_model(self._folder / name, **{**SMALL, **options})
        self._server.add(id, {name: path}, downloads=downloads, **(about or {}))
        return id


@pytest.fixture
def shelf(server: HubServer, tmp_path: Path) -> Shelf:
    return Shelf(server, tmp_path)


@pytest.fixture
def target(tmp_path: Path) -> GgufHeader:
    path = make_model(tmp_path / "target.gguf", name="Qwen3 8B", width=256, layers=4)
    header = read_header(path)
    # So that the sizes in the names of small models mean something.
    return msgspec.structs.replace(header, parameters=8_000_000_000)


def found(hub: Hub, target: GgufHeader) -> dict[str, DraftCandidate]:
    return {candidate.repository: candidate for candidate in find_drafts(hub, target)}


def test_the_tokenizers_decide_and_not_the_names(shelf: Shelf, network: Network, target: GgufHeader) -> None:
    good = shelf.add("a/Qwen3-0.6B-GGUF", 3)
    other = shelf.add("b/Qwen3-0.6B-other-GGUF", 2, vocab_size=900)
    candidates = found(Hub(network), target)
    assert candidates[good].verdict.fits
    assert candidates[good].license == "apache-2.0"
    assert 0 < candidates[good].share < 1 / 10
    assert "900 in the draft" in candidates[other].verdict.reason
    assert [candidate.repository for candidate in in_order(reversed(candidates.values()))] == [good, other]


def test_large_ones_are_not_even_asked_for(
    shelf: Shelf, server: HubServer, network: Network, target: GgufHeader
) -> None:
    shelf.add("a/Qwen3-0.6B-and-8B-GGUF", width=384, layers=4)
    shelf.add("a/Qwen3-0.6B-GGUF")
    shelf.add("a/Qwen3-14B-not-Qwen3-0.6B-GGUF")
    assert list(found(Hub(network), target)) == ["a/Qwen3-0.6B-GGUF"]
    assert not [request for request in server.requests if "14B" in request.path and "?blobs" in request.path]


def test_reasons_for_candidates_that_cannot_be_judged(
    shelf: Shelf, server: HubServer, network: Network, target: GgufHeader
) -> None:
    gated = shelf.add("a/Qwen3-0.6B-gated", about={"gated": "manual"})
    kind = shelf.add("b/Qwen3-0.6B-bert", architecture="bert")
    gone = shelf.add("c/Qwen3-0.6B-gone")
    server.faults.always(f"/api/models/{gone}", Fault(status=404), at="api")
    candidates = found(Hub(network), target)
    assert "is gated: accept its terms" in candidates[gated].verdict.reason
    assert "is an embedding model" in candidates[kind].verdict.reason
    assert not candidates[gated].verdict.fits
    assert gone not in candidates


def test_it_stops_when_asked_and_where_the_hub_fails(
    shelf: Shelf, server: HubServer, network: Network, target: GgufHeader
) -> None:
    for number in range(3):
        shelf.add(f"a/Qwen3-0.6B-{number}")
    seen: list[DraftCandidate] = []
    with pytest.raises(Canceled):
        for candidate in find_drafts(Hub(network), target, is_canceled=lambda: bool(seen)):
            seen.append(candidate)
    assert len(seen) == len(server.bodies()) == 1
    for number in range(3):
        server.faults.always(f"/api/models/a/Qwen3-0.6B-{number}", Fault(status=503), at="api")
    with pytest.raises(UnreachableError):
        list(find_drafts(Hub(network), target))


def repository(**sizes: int) -> Repository:
    def model(quantization: str, size: int) -> RemoteModel:
        file = RemoteFile(repository="a/b", commit="0" * 40, path=f"{quantization}.gguf", size=size, sha256="0" * 64)
        return RemoteModel(files=(file,), quantization=quantization)

    models = sorted((model(name, size) for name, size in sizes.items()), key=lambda model: model.size)
    return Repository(id="a/b", commit="0" * 40, models=tuple(models))


def test_eagle3_heads_of_the_target_are_found_and_compared(
    shelf: Shelf, server: HubServer, network: Network, target: GgufHeader, tmp_path: Path
) -> None:
    """Those that the catalog knows, and those whose repositories have the target's name: that tells its size, not the
    head's."""
    small = shelf.add("a/Qwen3-0.6B-GGUF")
    head = make_bare_head(tmp_path / "right.gguf", target_width=256, feed_forward=64)
    other = make_bare_head(tmp_path / "other.gguf", target_width=128)
    server.add("b/Qwen3-8B_eagle3", {"Qwen3-8B_eagle3-Q8_0.gguf": head}, downloads=9)
    server.add("c/Qwen3-8B-EAGLE3-GGUF", {"model-Q8_0.gguf": other})
    server.add("d/Qwen3-8B-eagle3-safetensors", {"model.safetensors": b"1"}, downloads=20)
    candidates = found(Hub(network), target)
    assert list(candidates) == ["b/Qwen3-8B_eagle3", "c/Qwen3-8B-EAGLE3-GGUF", small]
    assert candidates["b/Qwen3-8B_eagle3"].verdict.reason == (
        "Compatible: the EAGLE-3 head in this file belongs to the target."
    )
    refused = candidates["c/Qwen3-8B-EAGLE3-GGUF"].verdict
    assert not refused.fits and refused.reason == "The EAGLE-3 head in model-Q8_0.gguf belongs to another model."
    unable = msgspec.structs.replace(target, architecture="gemma3")
    assert list(found(Hub(network), unable)) == [small]
    (listed, _) = load_catalog().heads_for("Qwen/Qwen3.6-27B")
    server.add(listed.repository, {"Q4_K_M.gguf": head})
    (beside,) = load_catalog().heads_for("gpt-oss-20b-MXFP4.gguf")
    server.add(beside.repository, {"gpt-oss-20b-MXFP4.gguf": other, "eagle3-gpt-oss-20b-Q8_0.gguf": head})
    gpt_oss = msgspec.structs.replace(target, path=tmp_path / "gpt-oss-20b-MXFP4.gguf")
    assert found(Hub(network), gpt_oss)[beside.repository].model.name == "eagle3-gpt-oss-20b-Q8_0.gguf"
    named = msgspec.structs.replace(target, path=tmp_path / "Qwen3.6-27B-Q4_K_M.gguf")
    assert found(Hub(network), named)[listed.repository].verdict.fits


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"Q8_0": 90, "Q4_0": 50, "F16": 180}, "Q8_0"),
        ({"Q8_0": 150, "Q4_0": 80, "F16": 300}, "Q4_0"),
        ({"Q8_0": 300, "IQ2_XXS": 80}, "Q8_0"),
        ({"IQ2_XXS": 80, "F16": 400}, "IQ2_XXS"),
        ({"Q8_0": 400, "Q4_0": 350}, None),
        ({}, None),
    ],
)
def test_which_file_of_a_repository_drafts(sizes: dict[str, int], expected: str | None) -> None:
    model = best_draft(repository(**sizes).models, 1000)
    assert (model.quantization if model else None) == expected


def test_order() -> None:
    def candidate(share: float, *, fits: bool = True) -> DraftCandidate:
        model = repository(Q8_0=1).models[0]
        return DraftCandidate("a/b", model, "", Verdict(fits, ""), share)

    mixed = [candidate(0.3), candidate(0.05, fits=False), candidate(0.02), candidate(0.2), candidate(0.09)]
    assert [(one.share, one.verdict.fits) for one in in_order(mixed)] == [
        (0.09, True),
        (0.02, True),
        (0.2, True),
        (0.3, True),
        (0.05, False),
    ]


def test_few_candidates_of_each_search_and_all_together(
    shelf: Shelf, server: HubServer, network: Network, target: GgufHeader
) -> None:
    for number in range(6):
        shelf.add(f"a/Qwen3-0.6B-{number}", number)
        shelf.add(f"a/Qwen3-1.7B-{number}", number)
    names = list(found(Hub(network), target))
    assert names == [f"a/Qwen3-{size}B-{number}" for size in ("0.6", "1.7") for number in (5, 4)]
    assert len(server.bodies()) == len(names) <= MAX_CHECKED


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Qwen2.5 Coder 7B Instruct"], ["Qwen2.5-Coder-0.5B", "Qwen2.5-0.5B", "Qwen2.5-Coder-1.5B"]),
        (["Meta Llama 3.1 8B Instruct"], ["Llama-3.2-1B", "Llama-3.2-3B"]),
        (["DeepSeek_R1_Distill_Llama_70B"], ["Llama-3.2-1B"]),
        (["My Tune 8B", "Qwen/Qwen3-8B"], ["Qwen3-0.6B", "Qwen3-1.7B", "my-tune draft", "my-tune"]),
        (["Some New-Family 12B chat"], ["some-new-family draft", "some-new-family"]),
        (["mixtral-8x7b-instruct"], ["mixtral draft", "mixtral"]),
        (["Qwen3 8B", "qwen3-8b-q4_k_m"], ["Qwen3-0.6B", "Qwen3-1.7B"]),
        (["8B"], []),
        ([""], []),
    ],
)
def test_where_to_look(names: list[str], expected: list[str]) -> None:
    assert search_words(names) == expected
