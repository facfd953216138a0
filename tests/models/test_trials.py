"""Trials of pairs, kept in a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.models.gguf import ModelFileError
from app.models.measurements import FileKey, StoredTrial, Trial, trials_file

TARGET, DRAFT, OTHER = (FileKey(name, 10, 20) for name in ("target.gguf", "draft.gguf", "other.gguf"))


def trial(speed_up: float = 2.0, when: int = 1_000, **facts: object) -> Trial:
    made = Trial(acceptance_rate=0.7, plain_speed=10.0, drafted_speed=10 * speed_up, tokens=100, measured_at=when)
    return msgspec.structs.replace(made, **facts)


def test_the_latest_trial_of_a_pair_counts(tmp_path: Path) -> None:
    trials = trials_file(tmp_path / "data")
    latest = StoredTrial(TARGET, DRAFT, trial(2.0, 3, engine="new"))
    for one in (StoredTrial(TARGET, DRAFT, trial(1.5, 1)), StoredTrial(TARGET, OTHER, trial(0.9, 2)), latest):
        trials.add(one)
    for file in (trials, trials_file(tmp_path / "data")):
        assert file.get((TARGET, DRAFT)) == latest
        assert file.get((DRAFT, TARGET)) is None
        assert [(row.draft.name, row.trial.speed_up) for row in file.all().values()] == [
            ("other.gguf", 0.9),
            ("draft.gguf", 2.0),
        ]


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
def test_nonsense_is_not_believed(tmp_path: Path, fact: str, value: float) -> None:
    trials_file(tmp_path).add(StoredTrial(TARGET, DRAFT, msgspec.structs.replace(trial(), **{fact: value})))
    assert trials_file(tmp_path).get((TARGET, DRAFT)) is None
    trials_file(tmp_path).add(StoredTrial(TARGET, DRAFT, trial()))
    assert trials_file(tmp_path).get((TARGET, DRAFT)) is not None
