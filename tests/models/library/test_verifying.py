"""Whether files are still what was downloaded, and what is known of where they came from."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest

from app.models.library.library import LibraryEntry, open_library
from app.models.origins import Origin, Origins, origins_file
from app.system import Canceled, KnownError
from tests.support.library_parts import small_model


@pytest.fixture
def origins(home: Path) -> Origins:
    home.mkdir()
    return origins_file(home)


@pytest.fixture
def split(home: Path) -> LibraryEntry:
    small_model(home / "models/owner/split.gguf", max_tensors_per_file=4)
    (entry,) = open_library("", []).scan()
    return entry


def downloaded(origins: Origins, *parts: Path) -> None:
    for part in parts:
        digest = hashlib.sha256(part.read_bytes()).hexdigest()
        origins.put(
            part,
            Origin(repository="owner/x", commit="0" * 40, path=part.name, sha256=digest, size=1, license="apache-2.0"),
        )


def test_all_parts_are_compared(origins: Origins, split: LibraryEntry) -> None:
    assert open_library("", []).verify(split) is None
    downloaded(origins, *split.parts[:-1])
    assert open_library("", []).verify(split) is None
    downloaded(origins, *split.parts)
    told: list[tuple[int, int]] = []
    assert open_library("", []).verify(split, lambda done, total: told.append((done, total))) is True
    assert told[-1] == (split.size, split.size)
    with split.parts[1].open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    assert open_library("", []).verify(split) is False


def test_stopping_and_files_that_went(origins: Origins, split: LibraryEntry) -> None:
    downloaded(origins, *split.parts)
    answers = itertools.chain([False], itertools.repeat(True))
    with pytest.raises(Canceled):
        open_library("", []).verify(split, is_canceled=lambda: next(answers))
    split.parts[-1].unlink()
    with pytest.raises(KnownError, match="The files of split can't be read: No such file"):
        open_library("", []).verify(split)


def test_the_license_is_the_repositorys_or_the_files(home: Path, origins: Origins) -> None:
    path = small_model(home / "models/one.gguf", edit=lambda writer: writer.add_license("mit"))
    (entry,) = open_library("", []).scan()
    assert (entry.origin, entry.license) == (None, "mit")
    downloaded(origins, path)
    (entry,) = open_library("", []).scan()
    assert entry.origin is not None and (entry.origin.repository, entry.license) == ("owner/x", "apache-2.0")
