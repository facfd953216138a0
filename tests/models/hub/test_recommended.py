"""Whose values are used where nobody chose: field by field the file's, the catalog's, the usual ones."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from app.models.hub.catalog import load_catalog
from app.models.hub.recommended import SOURCE_TEXTS, recommended
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import Sampling


def pair(path: str, name: str = "", levels: Sequence[str] = ("off", "on"), **values: float) -> PairLoaded:
    sampling = msgspec.structs.replace(Sampling(), **values)
    return PairLoaded(
        request=1,
        target=ModelInfo(path=path, name=name or "x"),
        sampling=sampling,
        recommended=list(values),
        thinking=list(levels),
        may_think=bool(levels),
    )


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


def test_the_file_goes_before_the_catalog_field_by_field() -> None:
    found = recommended(pair("/m/Qwen3-8B-Q4_K_M.gguf", temperature=0.8, min_p=0.0))
    assert found.sampling == Sampling(temperature=0.8, top_p=0.95, top_k=20, min_p=0.0)
    assert {key: source for key, source in found.sources.items() if source != "default"} == {
        "temperature": "model file",
        "min_p": "model file",
        "top_p": "catalog",
        "top_k": "catalog",
    }


@pytest.mark.parametrize(
    ("chosen", "temperature", "level"), [("", 0.6, "on"), ("on", 0.6, "on"), ("off", 0.7, "off"), ("low", 0.6, "on")]
)
def test_thinking_decides(chosen: str, temperature: float, level: str) -> None:
    """A level that the model doesn't have is the recommended one, as nothing was chosen that it understands."""
    found = recommended(pair("/m/Qwen3-8B-Q4_K_M.gguf"), chosen)
    assert (found.sampling.temperature, found.thinking) == (temperature, level)


@pytest.mark.parametrize(
    ("chosen", "level"), [("", "medium"), ("on", "medium"), ("off", "off"), ("low", "low"), ("xhigh", "xhigh")]
)
def test_how_much_a_model_thinks_where_nothing_is_chosen(chosen: str, level: str) -> None:
    levels = ("off", "on", "low", "medium", "xhigh")
    found = recommended(pair("/m/Qwen3.8-27B-UD-Q4_K_XL.gguf", levels=levels), chosen)
    assert found.thinking == level
    assert found.sampling.presence_penalty == (1.5 if level == "off" else 0.0)


def test_models_of_earlier_catalogs_are_used_as_before() -> None:
    for name in ("Qwen3-4B-Q4_K_M", "Qwen3-14B-Q4_K_M", "Qwen3-32B-Q4_K_M", "Qwen_Qwen3-0.6B-Q4_K_M"):
        assert recommended(pair(f"/m/{name}.gguf")).sampling == Sampling(temperature=0.6, top_p=0.95, top_k=20)
    for size in ("7B", "14B", "32B", "0.5B"):
        found = recommended(pair(f"/m/Qwen2.5-Coder-{size}-Instruct-Q4_K_M.gguf", levels=()))
        assert found.sampling == Sampling(temperature=0.7, top_p=0.8, top_k=20)


def test_what_the_catalog_says_is_something_the_engine_takes() -> None:
    for model in load_catalog().models:
        for advised in (model.advice.plain, model.advice.thinking):
            values = msgspec.structs.asdict(advised) if advised else {}
            said = {key: value for key, value in values.items() if value is not None}
            msgspec.convert(said, Sampling)
            assert said or advised is None, model.id
    assert set(SOURCE_TEXTS) == {"model file", "catalog", "default", "server", "unknown"}
