"""Whose values are used where nobody chose: field by field the file's, the catalog's, the usual ones."""

from __future__ import annotations

import msgspec
import pytest

from app.models.hub.catalog import load_catalog
from app.protocol.messages import ModelInfo, PairLoaded, Sampling
from app.ui.engine.recommended import SOURCE_TEXTS, recommended


def pair(path: str, name: str = "", **values: float) -> PairLoaded:
    sampling = msgspec.structs.replace(Sampling(), **values)
    return PairLoaded(
        request=1, target=ModelInfo(path=path, name=name or "x"), sampling=sampling, recommended=list(values)
    )


def test_the_usual_values_of_a_model_that_nobody_knows() -> None:
    for loaded in (None, pair("/m/unknown.gguf")):
        found = recommended(loaded)
        assert found.sampling == Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
        assert found.sources == dict.fromkeys(Sampling.__struct_fields__, "default")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/m/Qwen3-8B-Q4_K_M.gguf", ""),
        ("/m/Qwen3-8B-UD-Q6_K_XL.gguf", ""),
        ("/m/qwen3_8b.BF16-00001-of-00002.gguf", ""),
        ("/m/Qwen_Qwen3-8B-Q8_0.gguf", "Qwen3 8B"),
        ("/blobs/sha256-0f", "Qwen3 8B"),
    ],
)
def test_a_model_of_the_catalog_in_any_quantization(path: str, name: str) -> None:
    found = recommended(pair(path, name))
    assert found.sampling == Sampling(temperature=0.6, top_p=0.95, top_k=20)
    assert {key for key, source in found.sources.items() if source == "catalog"} == {"temperature", "top_p", "top_k"}


@pytest.mark.parametrize("name", ["Qwen3 8B Base", "Qwen3-8", "My Qwen3-8B"])
def test_another_model_of_a_similar_name(name: str) -> None:
    assert recommended(pair(f"/m/{name}-Q8_0.gguf", name)).sampling == Sampling()


def test_the_file_goes_before_the_catalog_field_by_field() -> None:
    found = recommended(pair("/m/Qwen3-8B-Q4_K_M.gguf", temperature=0.8, min_p=0.0))
    assert found.sampling == Sampling(temperature=0.8, top_p=0.95, top_k=20, min_p=0.0)
    assert {key: source for key, source in found.sources.items() if source != "default"} == {
        "temperature": "model file",
        "min_p": "model file",
        "top_p": "catalog",
        "top_k": "catalog",
    }


def test_what_the_catalog_says_is_something_the_engine_takes() -> None:
    said = 0
    for entry in load_catalog().pairs:
        for model in (entry.target, entry.draft):
            values = {key: value for key, value in msgspec.structs.asdict(model.sampling).items() if value is not None}
            said += bool(values)
            msgspec.convert(values, Sampling)
            assert load_catalog().sampling_for(model.file) == model.sampling
    assert said
    assert set(SOURCE_TEXTS) == {"model file", "catalog", "default"}
