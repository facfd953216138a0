"""Measured speeds on real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.models.measurements import FileKey, PlainKey, PlainSpeed, plain_speeds, up_to_rounding
from app.protocol.events import ModelInfo, PairLoaded


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(b"weights")
    return path


def key(target: Path, context_length: int = 2048, sampler: str = "greedy") -> PlainKey:
    file = msgspec.structs.asdict(FileKey.of(target))
    return PlainKey(**file, context_length=context_length, threads=2, gpu_layers=0, kv_type="f16", sampler=sampler)


def test_a_speed_belongs_to_all_it_depends_on(tmp_path: Path, target: Path) -> None:
    speeds = plain_speeds(tmp_path)
    speeds.add(measured := PlainSpeed(key(target), 41.5, 1))
    assert speeds.get(key(target)) == measured
    assert speeds.get(key(target, context_length=4096)) is None
    assert speeds.get(key(target, sampler="other")) is None
    with_options = msgspec.structs.replace(key(target), options='{"expert_layers_on_cpu":4}')
    assert speeds.get(with_options) is None
    speeds.add(PlainSpeed(with_options, 30.0, 1))
    assert plain_speeds(tmp_path).get(key(target)) == measured
    assert (tmp_path / "measurements.json").read_text().count('"options"') == 1  # others are as older versions wrote
    moved = target.rename(tmp_path / target.with_suffix(".old").name).rename(target)
    assert speeds.get(key(moved)) == measured
    target.write_bytes(b"other weights")
    assert speeds.get(key(target)) is None


@pytest.mark.parametrize("value", [b"-1.0", b"0", b"null"])
def test_a_speed_that_is_none_is_not_believed(tmp_path: Path, target: Path, value: bytes) -> None:
    plain_speeds(tmp_path).add(PlainSpeed(key(target), 41.5, 1))
    file = tmp_path / "measurements.json"
    file.write_bytes(file.read_bytes().replace(b"41.5", value))
    assert plain_speeds(tmp_path).get(key(target)) is None


# ------------------------------------------------------------ texts with a draft


def inexact(name: str = "t.gguf", gpu_layers: int = 0, exact_unit: int = 8) -> PairLoaded:
    return PairLoaded(
        request=1, target=ModelInfo(path=name, name="t", size_bytes=5, gpu_layers=gpu_layers), exact_unit=exact_unit
    )


def test_texts_are_counted_by_file_and_by_what_computes_it() -> None:
    start = "Texts with a draft are the same up to rounding"
    assert up_to_rounding(inexact()) == f"{start}; not measured yet."
    assert up_to_rounding(inexact(), [True] * 96 + [False] * 3) == f"{start}: 96 of 99 were identical so far."
    assert up_to_rounding(inexact(), [True]) == f"{start}: 97 of 100 were identical so far."
    assert up_to_rounding(inexact(name="elsewhere/t.gguf")) == f"{start}: 97 of 100 were identical so far."
    for other in (inexact("u.gguf"), inexact(gpu_layers=9), inexact(exact_unit=4)):
        assert up_to_rounding(other) == f"{start}; not measured yet."


@pytest.mark.parametrize("unit", [0, 1])
def test_nothing_is_said_where_all_passes_agree_or_none_was_tried(unit: int) -> None:
    assert up_to_rounding(inexact(exact_unit=unit), [False]) == ""
