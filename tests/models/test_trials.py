"""Trials of pairs and uses of models, kept in files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.errors import KnownError
from app.models.gguf import ModelFileError
from app.models.library.usage import Usage
from app.models.trials import FILE_NAME, FileKey, Trial, Trials

TARGET, DRAFT, OTHER = (FileKey(name, 10, 20) for name in ("target.gguf", "draft.gguf", "other.gguf"))


def trial(speed_up: float = 2.0, when: int = 1_000, **facts: object) -> Trial:
    made = Trial(acceptance_rate=0.7, plain_speed=10.0, drafted_speed=10 * speed_up, tokens=100, measured_at=when)
    return msgspec.structs.replace(made, **facts)


def test_the_latest_trial_counts_and_all_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE_NAME
    trials = Trials(file)
    assert trials.get(TARGET, DRAFT) is None and trials.history(TARGET) == []
    trials.put(TARGET, DRAFT, trial(1.5, 1))
    trials.put(TARGET, OTHER, trial(0.9, 2))
    trials.put(TARGET, DRAFT, trial(2.0, 3, engine="new"))
    for one in (trials, Trials(file)):
        assert one.get(TARGET, DRAFT) == trial(2.0, 3, engine="new")
        assert one.get(DRAFT, TARGET) is None
        assert [(key.name, one.speed_up) for key, one in one.history(TARGET)] == [
            ("draft.gguf", 2.0),
            ("other.gguf", 0.9),
            ("draft.gguf", 1.5),
        ]


def test_of_a_pair_only_so_many_stay(tmp_path: Path) -> None:
    trials = Trials(tmp_path / FILE_NAME)
    trials.put(TARGET, OTHER, trial())
    for when in range(25):
        trials.put(TARGET, DRAFT, trial(when=when))
    history = trials.history(TARGET)
    assert [one.measured_at for key, one in history if key == DRAFT] == list(range(24, 4, -1))
    assert trials.get(TARGET, OTHER) is not None


def test_a_file_is_known_by_name_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "one.gguf"
    path.write_bytes(b"weights")
    key = FileKey.of(path)
    (tmp_path / "moved").mkdir()
    assert FileKey.of(path.rename(tmp_path / "moved/one.gguf")) == key
    (tmp_path / "moved/one.gguf").write_bytes(b"other weights")
    assert FileKey.of(tmp_path / "moved/one.gguf") != key
    with pytest.raises(ModelFileError, match="no longer exists"):
        FileKey.of(path)


@pytest.mark.parametrize(
    ("fact", "value"),
    [("plain_speed", 0.0), ("drafted_speed", float("nan")), ("acceptance_rate", 1.1), ("plain_speed", -1.0)],
)
def test_nonsense_is_neither_kept_nor_believed(tmp_path: Path, fact: str, value: float) -> None:
    nonsense, file = msgspec.structs.replace(trial(), **{fact: value}), tmp_path / FILE_NAME
    with pytest.raises(ValueError, match="no trial"):
        Trials(file).put(TARGET, DRAFT, nonsense)
    Trials(file).put(TARGET, DRAFT, trial())
    file.write_bytes(file.read_bytes().replace(b"0.7", b"7.7"))
    assert Trials(file).get(TARGET, DRAFT) is None


@pytest.mark.allow_logs
def test_a_file_that_is_not_understood_is_moved_aside(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_bytes(b'{"version": 1}')
    trials = Trials(file)
    assert trials.get(TARGET, DRAFT) is None
    trials.put(TARGET, DRAFT, trial())
    assert Trials(file).get(TARGET, DRAFT) == trial()
    (aside,) = tmp_path.glob("trials.broken-*.json")
    assert aside.read_bytes() == b'{"version": 1}'


@pytest.mark.allow_logs
def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"no folder")
    trials = Trials(tmp_path / "data" / FILE_NAME)
    assert trials.get(TARGET, DRAFT) is None
    with pytest.raises(KnownError, match="couldn't be saved"):
        trials.put(TARGET, DRAFT, trial())
    assert trials.get(TARGET, DRAFT) == trial()


# ---------------------------------------------------------------- uses


def test_uses_are_kept(tmp_path: Path) -> None:
    usage = Usage(tmp_path / "usage.json")
    assert usage.all() == {}
    usage.note([tmp_path / "models/a.gguf", str(tmp_path / "b.gguf"), "caf\udce9.gguf"])  # which is no text
    kept = [str(tmp_path / "models/a.gguf"), str(tmp_path / "b.gguf"), "caf\udce9.gguf"]
    assert list(Usage(tmp_path / "usage.json").all()) == kept


@pytest.mark.allow_logs
def test_uses_that_cannot_be_kept_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "usage.json").mkdir()
    usage = Usage(tmp_path / "usage.json")
    usage.note(["a.gguf"])
    assert list(usage.all()) == ["a.gguf"]  # until the end
    assert Usage(tmp_path / "usage.json").all() == {}
