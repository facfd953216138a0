"""Measured speeds on real files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app import paths
from app.errors import KnownError
from app.models.gguf import ModelFileError
from app.models.measurements import FILE_NAME, MAX_ENTRIES, Measurements, PlainKey, up_to_rounding
from app.protocol.events import ModelInfo, PairLoaded


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.gguf"
    path.write_bytes(b"weights")
    return path


def key(target: Path, context_length: int = 2048, sampler: str = "greedy") -> PlainKey:
    return PlainKey.of(target, context_length=context_length, threads=2, gpu_layers=0, kv_type="f16", sampler=sampler)


def test_a_speed_is_kept_over_restarts(tmp_path: Path, target: Path) -> None:
    file = tmp_path / "data" / FILE_NAME
    measurements = Measurements(file)
    assert measurements.plain_speed(key(target)) is None
    measurements.record_plain_speed(key(target), 41.5)
    assert measurements.plain_speed(key(target)) == 41.5
    assert Measurements(file).plain_speed(key(target)) == 41.5
    measurements.record_plain_speed(key(target), 43.0)
    assert Measurements(file).plain_speed(key(target)) == 43.0


def test_a_speed_belongs_to_all_it_depends_on(tmp_path: Path, target: Path) -> None:
    measurements = Measurements(tmp_path / FILE_NAME)
    measurements.record_plain_speed(key(target), 41.5)
    assert measurements.plain_speed(key(target, context_length=4096)) is None
    assert measurements.plain_speed(key(target, sampler="other")) is None
    with_options = msgspec.structs.replace(key(target), options='{"expert_layers_on_cpu":4}')
    assert measurements.plain_speed(with_options) is None
    measurements.record_plain_speed(with_options, 30.0)
    assert measurements.plain_speed(key(target)) == 41.5
    assert (tmp_path / FILE_NAME).read_text().count('"options"') == 1  # other keys are as older versions wrote them
    target.write_bytes(b"other weights")
    assert measurements.plain_speed(key(target)) is None


def test_the_same_file_in_another_folder_keeps_its_speed(tmp_path: Path, target: Path) -> None:
    measurements = Measurements(tmp_path / FILE_NAME)
    measurements.record_plain_speed(key(target), 41.5)
    (tmp_path / "moved").mkdir()
    assert measurements.plain_speed(key(target.rename(tmp_path / "moved" / target.name))) == 41.5
    with pytest.raises(ModelFileError, match=r"^target\.gguf no longer exists\.$"):
        key(target)


def test_a_speed_that_is_none_is_not_believed(tmp_path: Path, target: Path) -> None:
    measurements = Measurements(tmp_path / FILE_NAME)
    measurements.record_plain_speed(key(target), 41.5)
    file = tmp_path / FILE_NAME
    file.write_bytes(file.read_bytes().replace(b"41.5", b"-1.0"))
    assert Measurements(file).plain_speed(key(target)) is None
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not a speed"):
            measurements.record_plain_speed(key(target), value)


def test_the_oldest_leave_when_there_are_too_many(tmp_path: Path, target: Path) -> None:
    measurements = Measurements(tmp_path / FILE_NAME)
    for context_length in range(MAX_ENTRIES + 1):
        measurements.record_plain_speed(key(target, context_length), 41.5)
    after = Measurements(tmp_path / FILE_NAME)
    assert after.plain_speed(key(target, 0)) is None
    assert after.plain_speed(key(target, 1)) == 41.5
    assert after.plain_speed(key(target, MAX_ENTRIES)) == 41.5


@pytest.mark.allow_logs
def test_a_folder_that_cannot_be_written_is_a_known_error(tmp_path: Path, target: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_bytes(b"a file where the folder should be")
    measurements = Measurements(in_the_way / FILE_NAME)
    assert measurements.plain_speed(key(target)) is None
    with pytest.raises(KnownError, match="couldn't be saved"):
        measurements.record_plain_speed(key(target), 41.5)
    assert measurements.plain_speed(key(target)) == 41.5


@pytest.mark.allow_logs
def test_a_file_that_is_not_understood_is_moved_aside(tmp_path: Path, target: Path) -> None:
    content = b'{"version": 1, "plain": [{"key": {}, "tokens_per_second": 1.0, "measured_at": 0}]}'
    (tmp_path / FILE_NAME).write_bytes(content)
    measurements = Measurements(tmp_path / FILE_NAME)
    assert measurements.plain_speed(key(target)) is None
    measurements.record_plain_speed(key(target), 41.5)
    assert Measurements(tmp_path / FILE_NAME).plain_speed(key(target)) == 41.5
    assert sorted(file.read_bytes() == content for file in tmp_path.glob("*.json")) == [False, True]


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


@pytest.mark.parametrize("content", [b"{", b'{"version": 1, "entries": {}}', b""])
def test_a_damaged_file_of_counts_is_begun_anew(content: bytes) -> None:
    up_to_rounding(inexact(), [True])
    (paths.cache_dir() / "texts.json").write_bytes(content)
    assert up_to_rounding(inexact(), [True, False]).endswith(": 1 of 2 were identical so far.")
