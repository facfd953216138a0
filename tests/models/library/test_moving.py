"""Moving the models folder: by another name, and over file systems with interruptions anywhere."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.errors import Canceled, KnownError
from app.models.library import library as library_module
from app.models.library.moving import move_folder
from tests.support.library_parts import library, small_model, titles

Moved = dict[str, bytes]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    small_model(folder / "owner/repository/one.gguf")
    small_model(folder / "two.gguf", max_tensors_per_file=4)
    (folder / "owner/half.gguf.part").write_bytes(b"half")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system."""
    places = [place for place in map(Path, ("/dev/shm", tempfile.gettempdir())) if place.is_dir()]
    shared = next((place for place in places if place.stat().st_dev != tmp_path.stat().st_dev), None)
    if shared is None:
        pytest.skip("there is no second file system here")
    folder = Path(tempfile.mkdtemp(dir=shared))
    yield folder / "models"
    shutil.rmtree(folder)


def content(folder: Path) -> Moved:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_on_one_disk_the_folder_gets_another_name(tmp_path: Path, old: Path) -> None:
    before, new = content(old), tmp_path / "new place" / "models"
    new.mkdir(parents=True)
    assert move_folder(old, new) == []
    assert (content(new), old.exists()) == (before, False)


def test_into_a_folder_that_has_something(tmp_path: Path, old: Path) -> None:
    before, new = content(old), tmp_path / "new"
    small_model(new / "there.gguf")
    there = content(new)
    told: list[tuple[int, int]] = []
    assert move_folder(old, new, progress=lambda done, total: told.append((done, total))) == []
    assert (content(new), old.exists()) == (before | there, False)
    assert told[-1][0] == told[-1][1] == 2 * sum(map(len, before.values()))


def test_over_file_systems(old: Path, other_disk: Path) -> None:
    """Also where a move was killed while it copied: what it left is made again."""
    before, times = content(old), {file.name: file.stat().st_mtime_ns for file in old.rglob("*.gguf")}
    (other_disk / "owner/repository").mkdir(parents=True)
    (other_disk / "owner/repository/one.gguf.moving").write_bytes(b"half of it")
    seen: list[tuple[Moved, Moved]] = []
    assert move_folder(old, other_disk, lambda: seen.append((content(old), content(other_disk)))) == []
    assert seen == [(before, before)], "it is taken into use before the first file is deleted"
    assert (content(other_disk), old.exists()) == (before, False)
    assert {file.name: file.stat().st_mtime_ns for file in other_disk.rglob("*.gguf")} == times


def test_what_is_known_moves_along(tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = library(tmp_path)
    before = shown.scan()
    new = tmp_path / "elsewhere"
    move_folder(old, new, lambda: shown.moved(old, new))
    monkeypatch.setattr(library_module, "read_header", lambda path: pytest.fail(f"{path} was read again"))
    after = shown.scan()
    assert titles(after) == titles(before) and all(entry.path.is_relative_to(new) for entry in after)
    assert [entry.summary for entry in after] == [entry.summary for entry in before]


def test_stopping_anywhere_leaves_all_in_place_and_it_can_be_asked_again(old: Path, other_disk: Path) -> None:
    before = content(old)
    for asked in itertools.count():
        answers = iter([False] * asked)
        try:
            move_folder(old, other_disk, is_canceled=lambda answers=answers: next(answers, True))  # type: ignore[misc]
        except Canceled:
            assert content(old) == before
            assert all(before[name] == data for name, data in content(other_disk).items())
        else:
            break
    assert asked > 4
    assert (content(other_disk), old.exists()) == (before, False)


def test_nothing_is_lost_when_the_new_folder_cannot_be_taken_into_use(
    tmp_path: Path, old: Path, other_disk: Path
) -> None:
    def fail() -> None:
        raise KnownError("the settings cannot be saved")

    before = content(old)
    for new in (tmp_path / "new", other_disk):
        with pytest.raises(KnownError, match="the settings cannot be saved"):
            move_folder(old, new, fail)
        assert content(old) == before


def test_another_file_in_the_way_is_not_written_over(old: Path, other_disk: Path) -> None:
    before = content(old)
    other_disk.mkdir()
    (other_disk / "two-00001-of-00002.gguf").write_bytes(b"another")
    in_the_way = next(file.name for file in old.glob("two-00001*"))
    (other_disk / in_the_way).write_bytes(b"another")
    with pytest.raises(KnownError, match="already exists and is a different file"):
        move_folder(old, other_disk)
    assert content(old) == before and (other_disk / in_the_way).read_bytes() == b"another"


def test_too_little_space_is_said_before_anything_is_copied(
    old: Path, other_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(old)
    full = shutil.disk_usage(other_disk.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(
        KnownError, match=r"There isn't enough space in .*: the models need .* KB, but only 1 KB is free\."
    ):
        move_folder(old, other_disk)
    assert content(old) == before and content(other_disk) == {}


def test_links_stay_links(tmp_path: Path, old: Path, other_disk: Path) -> None:
    target = small_model(tmp_path / "theirs/linked.gguf")
    (old / "linked.gguf").symlink_to(Path("..") / "theirs/linked.gguf")
    (old / "folder").symlink_to(target.parent, target_is_directory=True)
    (old / "inside.gguf").symlink_to("owner/repository/one.gguf")
    move_folder(old, other_disk)
    assert (other_disk / "linked.gguf").read_bytes() == target.read_bytes()
    assert (other_disk / "folder/linked.gguf").read_bytes() == target.read_bytes()
    assert (other_disk / "inside.gguf").samefile(other_disk / "owner/repository/one.gguf")
    assert (other_disk / "linked.gguf").is_symlink() and target.exists() and not old.exists()


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda old: (old, old), "into itself"),
        (lambda old: (old, old / "below"), "into itself"),
        (lambda old: (old / "owner", old), "into itself"),
        (lambda old: (old / "gone", old / "other"), "doesn't exist"),
    ],
)
def test_moves_that_make_no_sense(old: Path, choose: Callable[[Path], tuple[Path, Path]], message: str) -> None:
    with pytest.raises(KnownError, match=message):
        move_folder(*choose(old))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions work otherwise here")
def test_a_place_that_cannot_be_written(old: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"no folder")
    before = content(old)
    with pytest.raises(KnownError, match=r"The models couldn't be moved: .* They are still in"):
        move_folder(old, tmp_path / "file" / "models")
    assert content(old) == before


def test_into_a_folder_that_cannot_be_removed(old: Path, tmp_path: Path) -> None:
    """As an empty drive, or a link to one."""
    before, disk, new = content(old), tmp_path / "disk", tmp_path / "link"
    disk.mkdir()
    new.symlink_to(disk, target_is_directory=True)
    assert move_folder(old, new) == []
    assert (content(disk), old.exists(), new.is_symlink()) == (before, False, True)


def test_a_folder_that_is_a_link_gives_its_files(old: Path, tmp_path: Path) -> None:
    before, link, new = content(old), tmp_path / "link", tmp_path / "new"
    link.symlink_to(old, target_is_directory=True)
    assert move_folder(link, new) == []
    assert (content(new), new.is_symlink(), content(old)) == (before, False, {})
